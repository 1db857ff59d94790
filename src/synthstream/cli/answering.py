"""Answers to questions of readers, and what must be told beside them. Commands import it when they run: it is heavy."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from datetime import time
from pathlib import Path
from statistics import NormalDist

import polars as pl
import typer

from synthstream.cli.common import console
from synthstream.cli.reading import write
from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError
from synthstream.publish.published import Releases
from synthstream.publish.readme import falling, left_out, less
from synthstream.release.areas import Bounds
from synthstream.release.points import PointRelease
from synthstream.release.release import Release
from synthstream.release.series import steps
from synthstream.release.tables import TableRelease
from synthstream.release.window import Spanning
from synthstream.schema.binned import Integer, Number, open_ended
from synthstream.schema.clock import Clock
from synthstream.schema.columns import Column
from synthstream.schema.conditions import first, in_single_quotes, quoted
from synthstream.schema.polygons import BEYOND
from synthstream.schema.region import Domain
from synthstream.synthesizers.succession import known_since

_HOW_SURE = (
    "count is of the synthetic rows: mostly the closer one, but without a known error. measured has one: where count "
    "is more than two stderr away, trust measured."
)
_UNMEASURED = (
    "measured: no table tells this. It can be told for whole values and bins of one column beside the place, if the "
    "stream crosses it with the place (see plan). count is of the synthetic rows, without a known error."
)
_OF_DISTRICTS = (
    " Districts are counted together with those of another place, not with the grids that tell of a box: say where the "
    "other place is by a grid of it that is crossed with this one (see plan)."
)
_OF_ITS_OWN = " No grid is counted together with its own districts: of a part of one, ask for --polygon."
_OF_EPOCHS = (
    "measured: each table of this stream counts one epoch alone, so that none tells of all events. Ask for whole "
    "epochs, which are added up: --between {start} and the end of one; of other dates a message names the ends."
)
# How often count may be called far from measured where noise alone is between them.
_BY_CHANCE = 0.0025
_OF_CHOICE = (
    " Such tables are measured in some epochs alone, and tell of a window only if each of its epochs has them: ask of "
    "one epoch."
)


def polygons_in(release: Release, polygon: Path, feature: str | None, place: str | None) -> Domain:
    """Polygons of a file."""
    if isinstance(release, PointRelease) and place is None:
        return release.polygon(polygon, feature=feature)
    if isinstance(release, TableRelease):
        return release.polygon(polygon, feature=feature, place=place)
    raise ConfigError("--place: a stream of points has one place; leave it out.")


def why_empty(condition: str | None, release: Release) -> str:
    """That there are no rows, and what may be wrong with the condition, as far as the public schema tells."""
    if condition is None:
        return f"{release.name}: there are no rows; what is written is empty."
    advice = in_single_quotes(condition, release.schema.names)
    return f"{release.name}: no row satisfies {condition!r}; what is written is empty.{advice}"


def inside(
    release: Release, lower: Bounds | Domain, upper: Bounds, where: str | None, config: StreamConfig
) -> pl.DataFrame:
    """How many events lie in a box, or in polygons."""
    clock = config.clock
    tell_of(release, lower, upper)
    if isinstance(release, TableRelease):
        found = release.mass(lower, upper, where=where)
        if found["measured"] is not None:
            _tell_of_ticks(found["since"], found["measured_at"], release, clock)
        named = [column for column in release.schema.districts.values() if column.name in (where or "")]
        asked = {axis.name for axis in lower.columns} if isinstance(lower, Domain) else {*lower, *upper}
        own = any(asked & {*column.sources} for column in named)
        unknown = unmeasured(release, config, _UNMEASURED + (_OF_ITS_OWN if own else _OF_DISTRICTS if named else ""))
        typer.echo(unknown if found["measured"] is None else _HOW_SURE, err=True)
        known: dict[str, pl.DataType | type[pl.DataType]] = {"measured": pl.Float64, "stderr": pl.Float64}
        return pl.DataFrame([found], schema_overrides=known | {"since": pl.Int64, "measured_at": pl.Int64})
    if where is not None or not isinstance(release, PointRelease):
        raise ConfigError("--where: a stream of points has no columns beside its coordinates; leave it out.")
    return pl.DataFrame([release.mass(lower, upper)], schema_overrides={"measured": pl.Float64, "stderr": pl.Float64})


def _tell_of_ticks(since: int, measured_at: int, release: Release, clock: Clock) -> bool:
    """Whether all ticks that are asked about are measured, and no others; say so if not."""
    if (since, measured_at) == (getattr(release, "first", 0), release.tick):
        return True
    start, end = clock.begins(since), clock.begins(measured_at + 1)
    typer.echo(
        f"measured counts events from {start} to before {end}, ticks {since} to {measured_at}: such tables are "
        "measured at refreshes, not at every tick.",
        err=True,
    )
    return False


def tell_of_window(found: pl.DataFrame, release: Release, config: StreamConfig) -> None:
    """Say so where what is measured counts other ticks than a window, or where its rows are far from it.

    Rows of a window begin as those of other ticks: where few events of one value came in these, they have few.
    """
    known = found.filter(pl.col("measured").is_not_null())
    if not isinstance(release, Spanning) or known.is_empty():
        return
    ticks = known.select("since", "measured_at").unique() if "measured_at" in known.columns else known.clear()
    if len(ticks) == 1:
        since, measured_at = ticks.row(0)
        if not _tell_of_ticks(since, measured_at, release, config.clock):
            return
    share = _BY_CHANCE / 2 / len(known)
    # Of Gaussian noise, or of Laplace noise, of one draw at the most.
    limit = -math.log(2 * share) / math.sqrt(2) if config.privacy.budget.pure else -NormalDist().inv_cdf(share)
    far = known.filter((pl.col("count") - pl.col("measured")).abs() > limit * pl.col("stderr"))
    if len(far):
        lines = "1 line" if len(far) == 1 else f"{len(far):,} lines"
        typer.echo(f"count is more than {limit:.1f} stderr from measured in {lines}: there, trust measured.", err=True)


def unmeasured(release: Release, config: StreamConfig, unknown: str) -> str:
    """What is told where nothing measured tells: that it is unknown, or what to ask where epochs are measured apart."""
    if config.measures != "epochs":
        return unknown
    if getattr(release, "first", None) is None:
        return _OF_EPOCHS.format(start=config.clock.begins(0))
    return unknown + _OF_CHOICE


def tell_of(release: Release, lower: Bounds | Domain, upper: Bounds, *, series: str | None = None) -> None:
    """Tell what of an area lies outside of the bounds, and where the stream counts a polygon itself.

    Args:
        series: whose ``synthstream series`` is asked; left out: a table is.
    """
    if isinstance(release, PointRelease | TableRelease):
        what, area = ("polygons", lower) if isinstance(lower, Domain) else ("box", release.box(lower, upper))
        if area.beyond > BEYOND:
            less = float(f"{100 * min(area.beyond, 1 - area.beyond):.2g}")  # 100 % would be all of it
            share = f"{less if area.beyond < 0.5 else 100 - less:.12g} % of the area of the {what}"
            typer.echo(f"{share} lies outside of {release.name}'s bounds: events there are not counted.", err=True)
        if isinstance(lower, Domain):
            _counted_itself(release, lower, series)
        elif free := [c.name for c in area.columns if c.name not in {*lower, *upper}] if lower or upper else []:
            typer.echo(f"{', '.join(free)}: no --box, so the box goes from end to end of it.", err=True)


def _counted_itself(release: Release, polygons: Domain, series: str | None) -> None:
    """Say so where the stream has a count of some polygons, which needs no sum over cells."""
    asked = tuple(axis.name for axis in polygons.columns)
    for column in release.schema.districts.values():
        if column.sources == asked and (name := column.called(polygons.shape)) is not None:
            own = column.name if column.name.isidentifier() else quoted(column.name).replace('"', '\\"')
            told = name.replace("'", "''")
            ask = f"--where \"{own} = '{told}'\""
            if series is not None:
                ask = f"synthstream series {shlex.quote(series)} {shlex.quote(column.name)}"
            typer.echo(f"The stream counts this district itself: {ask} has the smaller error.", err=True)


def tell_of_counts(config: StreamConfig, *, over_time: bool = False) -> None:
    """Say so where a limit of persons leaves events out of every count, or rows take events away: no error tells of it.

    Args:
        over_time: whether counts of some time alone are shown, which the limit, or rows that take away, set apart.
    """
    unit = config.privacy.unit
    fewer = falling(unit) if over_time else ""
    if words := left_out(unit):
        typer.echo(f"{words} {fewer[0].upper()}{fewer[1:]}." if fewer else words, err=True)
    if over_time and (words := less(config)):
        typer.echo(words, err=True)


def tell_of_steps(found: Releases, every: str | None) -> None:
    """Say so where steps differ by more than months do, because no tick is divided."""
    known = steps(found.config.clock, every, newest=found.last.tick)
    lengths = [step.last - step.first + 1 for step in known if step.whole]
    if lengths and max(lengths) > 1.15 * min(lengths):
        words = f"Steps have {min(lengths)} to {max(lengths)} ticks: a tick belongs to the step that it begins in."
        typer.echo(words, err=True)


def tell_of_cuts(found: Releases, column: str, *, steps: bool = True) -> None:
    """Say so where rows could not have a column, or a value of it, before a cut.

    Args:
        steps: whether what is shown are steps of time; or one table, whose ``since`` tells of columns.
    """
    schema, since = found.config.schema, known_since(found.config, column)
    labels = schema.columns[schema.names.index(column)].labels
    for tick in sorted({*since.tolist()} - {0}):
        start = found.config.clock.begins(tick)
        if tick == since.min():
            if not steps:
                continue
            words = f"{column} was not recorded before {start}: there are no steps that begin earlier."
        else:
            values = first([label for label, came in zip(labels, since, strict=True) if came == tick])
            then = "so null in steps that begin earlier" if steps else "whatever since says of the table"
            words = f"{column} = {values}: not known before {start}, {then}."
        typer.echo(words, err=True)


def tell_of_lengths(then: Spanning, now: Spanning) -> None:
    """Say so where two periods overlap, or differ in length."""
    if then.tick >= now.first:
        first = max(then.first, now.first)
        ticks = f"ticks {first} to {then.tick} count" if first < then.tick else f"tick {first} counts"
        typer.echo(f"The periods overlap: {ticks} in both.", err=True)
    old, new = (window.tick - window.first + 1 for window in (then, now))
    if old != new:
        words = f"then is {old} tick{'' if old == 1 else 's'} long, now is {new}: differences follow the lengths, too."
        typer.echo(words, err=True)


def tell_of_chance(cells: pl.DataFrame, clock: Clock, *, laplace: bool) -> None:
    """Say how many cells of a comparison changed beyond noise, how many by chance, and how many cannot be compared,
    with the dates near these at which they can: those that are measured. ``laplace``: the law of the noise.
    """
    beyond, known = int(cells["beyond_noise"].sum()), cells["z"].count()
    # Beyond three standard errors of Gaussian noise; or of Laplace noise, of one draw at the most.
    chance = (0.012 if laplace else 0.0027) * known
    if known:
        typer.echo(f"{beyond:,} of {known:,} measured cells beyond noise; {chance:.2g} expected by chance.", err=True)
    lost = cells.filter(pl.col("z").is_null())
    ends = ("since_then", "measured_at_then", "since", "measured_at")
    spans = lost.select(ends).drop_nulls() if "since" in cells.columns else pl.DataFrame()
    if unmeasured := len(lost) - len(spans):
        typer.echo(f"{unmeasured:,} cells are of tables that were not measured in all of both periods.", err=True)
    if spans.is_empty():
        return
    near = ""
    # What is proposed does not overlap: then ends where now begins.
    cut = pl.when(pl.col("since_then") < pl.col("since")).then(pl.col("since") - 1)
    spans = spans.with_columns(pl.min_horizontal("measured_at_then", cut))
    for ticks in spans.filter(pl.col("measured_at_then") < pl.col("measured_at")).head(1).rows():
        dates = [clock.begins(tick + place % 2) for place, tick in enumerate(ticks)]
        near = "With --then {} {} --now {} {} they can be compared. ".format(*dates)
    typer.echo(
        f"{len(spans):,} cells are of tables that count other ticks in one of the two: such are measured at refreshes. "
        f"{near}`table --between` shows their counts, and which ticks these are.",
        err=True,
    )


def give(
    found: pl.DataFrame,
    output: Path | None,
    form: str,
    *,
    csv: bool,
    stamped: bool,
    columns: Sequence[Column],
    clock: Clock | None = None,
    called: Mapping[str, str] | None = None,
) -> None:
    """Write an answer, or show it; then with dates beside ticks, by a clock, and columns as they are called there.

    Args:
        columns: whose values it has: what is shown says that bins at the ends hold what lies beyond.
    """
    if output is not None or csv:
        write(found, output, form, stamped=stamped)
        if output is not None:
            console().print(f"{len(found):,} line{'' if len(found) == 1 else 's'} in {output}", markup=False)
        return
    if stamped:
        typer.echo("NOT PRIVATE: made with simulated noise.", err=True)
    dates = [name for name, kind in found.schema.items() if kind == pl.Datetime]
    if all((found[name].dt.time() == time()).all() for name in dates):
        found = found.with_columns(pl.col(dates).dt.date())
    told = (("since", "from", 0), ("measured_at", "before", 1))
    for name, word, more in (*told, *((f"{name}_then", word, more) for name, word, more in told)):
        if clock is not None and name in found.columns:
            shown = {tick: f"{tick} ({word} {clock.begins(tick + more)})" for tick in found[name].drop_nulls().unique()}
            found = found.with_columns(pl.col(name).replace_strict(shown, return_dtype=pl.String))
    digits = {"measured": 1, "stderr": 1, "model_error": 1, "z": 1}
    found = found.with_columns(pl.col(name).round(n) for name, n in digits.items() if name in found.columns)
    if "share" in found.columns:  # rare values have one, too
        found = found.with_columns(pl.col("share").round_sig_figs(3))
    found = _with_open_ends(found, columns).rename(called or {}, strict=False)
    # As wide as it is: a number that goes on in the next line would be another number.
    look = {"tbl_rows": -1, "tbl_cols": -1, "tbl_width_chars": -1}
    look |= {"tbl_hide_dataframe_shape": True, "tbl_hide_column_data_types": True}
    with pl.Config(**look, tbl_formatting="ASCII_BORDERS_ONLY_CONDENSED", fmt_str_lengths=60):  # type: ignore[arg-type]
        typer.echo(str(found))


def _with_open_ends(frame: pl.DataFrame, columns: Sequence[Column]) -> pl.DataFrame:
    """Counts of which the bins at the ends of numbers say that they hold what lies beyond, too."""
    for column in columns:
        if isinstance(column, Number | Integer):
            labels = column.value_labels
            shown = dict(zip(labels, open_ended(labels, whole=column.whole), strict=True))
            own = {f"value_{k}": pl.col(f"column_{k}") == column.name for k in range(1, 9)}  # of all tables
            own |= {column.name: pl.lit(value=True)} | ({"value": pl.lit(value=True)} if len(columns) == 1 else {})
            for name in own.keys() & {*frame.columns}:
                readable = pl.col(name).replace(shown)
                frame = frame.with_columns(pl.when(own[name]).then(readable).otherwise(name).alias(name))
    return frame
