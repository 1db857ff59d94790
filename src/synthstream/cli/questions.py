"""``synthstream table``, ``series`` and ``compare``: counts with their errors."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import Simulate, console
from synthstream.cli.reading import At, Between, Place, Where, all_of, chosen, format_of, window, write
from synthstream.cli.runtime import fail

if TYPE_CHECKING:
    import polars as pl

    from synthstream.publish.published import Releases
    from synthstream.release.areas import Bounds
    from synthstream.release.release import Release
    from synthstream.release.window import Spanning
    from synthstream.schema.clock import Clock
    from synthstream.schema.region import Domain

_Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="A .csv, .parquet or .jsonl file; left out: a table to read.")
]
_Box = Annotated[
    list[str] | None,
    typer.Option(metavar="'NAME FROM TO'", help="All events in a box: 'lat 33 34', once for each coordinate."),
]
_Polygon = Annotated[
    Path | None,
    typer.Option(metavar="FILE.geojson", help="All events in public polygons: of this GeoJSON file, in WGS 84."),
]
_Feature = Annotated[
    str | None,
    typer.Option(metavar="NAME|KEY=NAME", help="Of that file, the features that a property names so; left out: all."),
]
_OfPlace = Annotated[
    str | None,
    typer.Option("--place", metavar="NAME", help="Which place the polygons are of, if there are several."),
]
_HOW_SURE = "count is of the synthetic rows, without a known error. measured has one: trust it where the two are apart."
_UNMEASURED = (
    "measured: no table tells this. It can be told for whole values and bins of one column beside the place, if the "
    "stream crosses it with the place (see plan). count is of the synthetic rows, without a known error."
)
_OF_EPOCHS = (
    "measured: with delta = 0 each table counts one epoch alone, so that none tells of all events. Ask for whole "
    "epochs, which are added up: --between {start} and the end of one; of another date it says where epochs end."
)
_UNKNOWN = "measured: nothing that passed the gate at this tick tells this."
# Columns of a comparison, in a terminal.
_CALLED = {"then": "rows_then", "now": "rows_now", "difference": "rows_difference"}
_CALLED |= {"measured": "measured_difference", "stderr": "measured_stderr"}
_TOLD = (
    "rows_...: counts of the synthetic rows, without a known error. measured_...: what passed the gate, and its "
    "standard error; z and beyond_noise are of that."
)
_LINES = 30  # of a comparison, in a terminal
_Csv = Annotated[bool, typer.Option("--csv", help="CSV to standard output, for machines.")]


def table_command(
    place: Place,
    columns: Annotated[list[str] | None, typer.Argument(help="Columns of the table; none: all events.")] = None,
    where: Where = None,
    at: At = None,
    between: Between = None,
    model_error: Annotated[
        bool, typer.Option("--model-error", help="Also how far noise moves `count`, by 8 refits: some seconds.")
    ] = False,
    box: _Box = None,
    polygon: _Polygon = None,
    feature: _Feature = None,
    of_place: _OfPlace = None,
    csv: _Csv = False,
    output: _Output = None,
    simulate: Simulate = False,
) -> None:
    """Counts of all combinations of some columns, with their errors. Free: any number of times.

    `count` is that of the synthetic rows, `share` its part of all rows, whatever the condition. `measured` passed the
    gate, and `stderr` is the standard error of its noise: both are empty where no measured table tells.

    Example: synthstream table stream.toml zone hour --where "age >= 60"

    In a box of a place, or of points: synthstream table stream.toml --box "lat 33 34" --box "lon -118 -117"

    In a polygon: synthstream table stream.toml --polygon districts.geojson --feature Mission --where "age >= 60"

    From a web server: synthstream table https://data.example.org/evictions zone --between 2015-01-01 2016-01-01 --csv
    """
    from synthstream.publish.published import releases
    from synthstream.release.answers import why_unmeasured
    from synthstream.release.points import PointRelease
    from synthstream.release.release import TableRelease

    form, bounds = format_of(None, output, place=place), _bounds(box or [])
    if where and {"=", "==", "!=", "<>"} & {*(columns or [])}:
        raise SystemExit(fail("--where: put the whole condition in quotes, as in --where \"zone = 'A'\"."))
    published = releases(place, simulate=simulate)
    release, clock = chosen(published, at, between), published.config.clock
    _refuse_both(polygon, box, columns, feature or of_place)
    if polygon is not None:
        found = _inside(release, _read(release, polygon, feature, of_place), {}, all_of(where), clock)
    elif box or (isinstance(release, PointRelease) and not columns):
        if columns:
            raise SystemExit(
                fail("--box: counts all events in it; leave out columns, or ask for single values by --where.")
            )
        found = _inside(release, *bounds, all_of(where), clock)
    else:
        found = release.table(columns or [], where=all_of(where), model_error=model_error)
        if where and isinstance(release, TableRelease) and found.height and found["measured"].is_null().all():
            why = why_unmeasured(release.schema, release.workload, columns or [], all_of(where) or "")
            typer.echo(f"measured: {why}" if why else _UNKNOWN, err=True)
    typer.echo(f"{release.name}: {release.about}", err=True)
    _give(found, output, form, csv=csv, stamped=not release.secure, clock=clock)


def _refuse_both(polygon: Path | None, box: object, columns: object, said: str | None) -> None:
    """End here if polygons are named beside a box or columns, or are not named at all."""
    if polygon is None and said:
        raise SystemExit(fail("--feature and --place: name the polygons, too: --polygon districts.geojson."))
    if polygon is not None and (box or columns):
        raise SystemExit(fail("--polygon: counts all events in it; leave out --box and columns."))


def _read(release: Release, polygon: Path, feature: str | None, place: str | None) -> Domain:
    """Polygons of a file."""
    from synthstream.release.points import PointRelease
    from synthstream.release.release import TableRelease

    if isinstance(release, PointRelease) and place is None:
        return release.polygon(polygon, feature=feature)
    if isinstance(release, TableRelease):
        return release.polygon(polygon, feature=feature, place=place)
    raise SystemExit(fail("--place: a stream of points has one place; leave it out."))


def _inside(release: Release, lower: Bounds | Domain, upper: Bounds, where: str | None, clock: Clock) -> pl.DataFrame:
    """How many events lie in a box, or in polygons."""
    import polars as pl

    from synthstream.release.points import PointRelease
    from synthstream.release.release import TableRelease
    from synthstream.schema.clock import written

    _tell_of(release, lower, upper)
    if isinstance(release, TableRelease):
        found = release.mass(lower, upper, where=where)
        first, last = getattr(release, "first", 0), release.tick
        if found["measured"] is not None and (found["since"], found["measured_at"]) != (first, last):
            start, end = clock.boundary(found["since"]), clock.boundary(found["measured_at"] + 1)
            typer.echo(
                f"measured counts events from {written(start)} to before {written(end)}, ticks {found['since']} to "
                f"{found['measured_at']}: such tables are measured at refreshes, not at every tick.",
                err=True,
            )
        unknown = _UNMEASURED
        if not release.facts["claim"]["delta"] and getattr(release, "first", None) is None:
            unknown = _OF_EPOCHS.format(start=written(clock.boundary(0)))
        typer.echo(unknown if found["measured"] is None else _HOW_SURE, err=True)
        known: dict[str, pl.DataType | type[pl.DataType]] = {"measured": pl.Float64, "stderr": pl.Float64}
        return pl.DataFrame([found], schema_overrides=known | {"since": pl.Int64, "measured_at": pl.Int64})
    if where is not None or not isinstance(release, PointRelease):
        raise SystemExit(fail("--where: a stream of points has no columns beside its coordinates; leave it out."))
    measured, stderr = release.mass(lower, upper)
    return pl.DataFrame({"count": [round(measured)], "measured": [measured], "stderr": [stderr]})


def _tell_of(release: Release, lower: Bounds | Domain, upper: Bounds) -> None:
    """Tell what of an area lies outside of the bounds, and where the stream counts a polygon itself."""
    from synthstream.release.points import PointRelease
    from synthstream.release.release import TableRelease
    from synthstream.schema.polygons import BEYOND
    from synthstream.schema.region import Domain

    if isinstance(release, PointRelease | TableRelease):
        what, area = ("polygons", lower) if isinstance(lower, Domain) else ("box", release.box(lower, upper))
        if area.beyond > BEYOND:
            share = f"{float(f'{100 * area.beyond:.2g}'):g} % of the area of the {what}"
            typer.echo(f"{share} lies outside of {release.name}'s bounds: events there are not counted.", err=True)
        if isinstance(lower, Domain):
            _counted_itself(release, lower)
        elif free := [c.name for c in area.columns if c.name not in {*lower, *upper}] if lower or upper else []:
            typer.echo(f"{', '.join(free)}: no --box, so the box goes from end to end of it.", err=True)


def _counted_itself(release: Release, polygons: Domain) -> None:
    """Say so where the stream has a count of some polygons, which needs no sum over cells."""
    from synthstream.schema.conditions import quoted
    from synthstream.schema.districts import Districts

    for column in release.schema.columns:
        if isinstance(column, Districts) and (name := column.called(polygons.shape)) is not None:
            own = column.name if column.name.isidentifier() else quoted(column.name).replace('"', '\\"')
            told = name.replace("'", "''")
            words = f"The stream counts this district itself: --where \"{own} = '{told}'\" has the smaller error."
            typer.echo(words, err=True)


def _bounds(box: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Lower and upper bounds by coordinate."""
    lower, upper = dict[str, float](), dict[str, float]()
    for one in box:
        name, *ends = one.rsplit(maxsplit=2) or [""]
        if name in lower:
            raise SystemExit(fail(f"--box: gives {name} twice; give it once, as in --box '{name} 33 34'."))
        try:
            lower[name], upper[name] = map(float, ends)
        except ValueError:
            raise SystemExit(
                fail(f"--box {one!r}: say a coordinate and two numbers, as in --box 'lat 33 34'.")
            ) from None
    return lower, upper


def series_command(
    place: Place,
    columns: Annotated[
        list[str] | None,
        typer.Argument(metavar="COLUMN", help="Whose values to count apart; left out: all events."),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="4w|1mo|1q|1y", help="Length of a step; left out: a tick.")
    ] = None,
    box: _Box = None,
    polygon: _Polygon = None,
    feature: _Feature = None,
    of_place: _OfPlace = None,
    csv: _Csv = False,
    output: _Output = None,
    simulate: Simulate = False,
) -> None:
    """What was counted in each tick, or longer step, with its error. Free: any number of times.

    A step has the error of its own difference. Do not add up the errors of ticks, which share noise.

    Example: synthstream series stream.toml "Supervisor District" --every 4w -o districts.csv

    Of points, or of a place: synthstream series stream.toml --box "lat 33 34" --box "lon -118 -117" --every 1mo

    In a polygon: synthstream series stream.toml --polygon districts.geojson --feature Mission --every 1mo
    """
    from synthstream.publish.published import releases

    form, (lower, upper) = format_of(None, output, place=place), _bounds(box or [])
    column = columns[0] if columns else None
    if len(columns or []) > 1:
        raise SystemExit(fail("series: takes one column; for several at once: synthstream table, with --between."))
    found = releases(place, simulate=simulate)
    _refuse_both(polygon, box, column, feature or of_place)
    area = lower if polygon is None else _read(found.last, polygon, feature, of_place)
    if polygon is not None or box:
        _tell_of(found.last, area, upper)
    series = found.series(column, every=every, lower=area, upper=upper)
    _tell_of_steps(found, every)
    if column is not None:
        _tell_of_cuts(found, column)
    _give(series, output, form, csv=csv, stamped=not found.last.secure)


def _tell_of_steps(found: Releases, every: str | None) -> None:
    """Say so where steps differ by more than months do, because no tick is divided."""
    from synthstream.release.series import steps

    known = steps(found.config.clock, every, newest=found.last.tick)
    lengths = [step.last - step.first + 1 for step in known if step.whole]
    if lengths and max(lengths) > 1.15 * min(lengths):
        words = f"Steps have {min(lengths)} to {max(lengths)} ticks: a tick belongs to the step that it begins in."
        typer.echo(words, err=True)


def _tell_of_cuts(found: Releases, column: str) -> None:
    """Say so where rows could not have a column, or a value of it, before a cut."""
    from synthstream.schema.clock import written
    from synthstream.schema.mapping import listed
    from synthstream.synthesizers.succession import known_since

    schema, since = found.config.schema, known_since(found.config, column)
    labels = schema.columns[schema.names.index(column)].labels
    for tick in sorted({*since.tolist()} - {0}):
        start = written(found.config.clock.boundary(tick))
        if tick == since.min():
            words = f"{column} was not recorded before {start}: there are no steps that begin earlier."
        else:
            values = listed([label for label, first in zip(labels, since, strict=True) if first == tick])
            words = f"{column} = {values}: not known before {start}, so null in steps that begin earlier."
        typer.echo(words, err=True)


def compare_command(
    place: Place,
    columns: Annotated[
        list[str] | None, typer.Argument(help="Columns of the table to compare; none: every published table.")
    ] = None,
    now: Annotated[
        tuple[str, str] | None, typer.Option(metavar="FROM TO", help="The later dates, widened to whole ticks.")
    ] = None,
    then: Annotated[
        tuple[str, str] | None, typer.Option(metavar="FROM TO", help="The earlier dates, widened to whole ticks.")
    ] = None,
    csv: _Csv = False,
    output: _Output = None,
    simulate: Simulate = False,
) -> None:
    """What changed from some dates to later ones, cell by cell, beyond the noise or not. Free: any number of times.

    `then` and `now` count the synthetic rows. `measured` is the difference of what passed the gate, `z` is how many of
    its standard errors that is, and `beyond_noise` says whether z is beyond 3. What stands out most comes first.

    Example: synthstream compare stream.toml zone --then 2026-01-01 2026-02-01 --now 2026-02-01 2026-03-01
    """
    from synthstream.publish.published import releases

    form = format_of(None, output, place=place)
    found = releases(place, simulate=simulate)
    if now is None or then is None:
        clock, end = found.config.clock, found.last.tick + 1
        first, middle, last = (clock.boundary(tick).isoformat()[:10] for tick in (0, end // 2, end))
        example = f"--then {first} {middle} --now {middle} {last}"
        raise SystemExit(fail(f"--then and --now: give both, as in {example}, the two halves of {found.config.name}."))
    later, earlier = window(found, "--now", now), window(found, "--then", then)
    if earlier.tick >= later.tick:
        raise SystemExit(fail("--then: must end before --now does."))
    cells = later.compare(earlier, columns or None)
    typer.echo(f"{later.name}: {earlier.about}, beside {later.about}", err=True)
    _tell_of_lengths(earlier, later)
    beyond, known = int(cells["beyond_noise"].sum()), cells["z"].count()
    # Beyond three standard errors of Gaussian noise; where delta = 0, of one draw of Laplace noise at the most.
    chance = (0.0027 if later.facts["claim"]["delta"] else 0.012) * known
    typer.echo(f"{beyond:,} of {known:,} measured cells beyond noise; {chance:.2g} expected by chance.", err=True)
    if known < len(cells):
        typer.echo(
            f"{len(cells) - known:,} cells are of tables that count other ticks in one of the two: such are measured "
            "at refreshes. `table --between` shows their counts, and which ticks these are.",
            err=True,
        )
    if not csv and output is None and len(cells) > _LINES:
        typer.echo(f"The first {_LINES} of {len(cells):,} cells; all of them: --csv, or -o changes.csv.", err=True)
        cells = cells.head(_LINES)
    if not csv and output is None:
        typer.echo(_TOLD, err=True)
    _give(cells, output, form, csv=csv, stamped=not later.secure, called=_CALLED)


def _tell_of_lengths(then: Spanning, now: Spanning) -> None:
    """Say so where two periods overlap, or differ in length."""
    if then.tick >= now.first:
        first = max(then.first, now.first)
        typer.echo(f"The periods overlap: ticks {first} to {then.tick} count in both.", err=True)
    old, new = (window.tick - window.first + 1 for window in (then, now))
    if old != new:
        words = f"then is {old} tick{'' if old == 1 else 's'} long, now is {new}: differences follow the lengths, too."
        typer.echo(words, err=True)


def _give(
    found: pl.DataFrame,
    output: Path | None,
    form: str,
    *,
    csv: bool,
    stamped: bool,
    clock: Clock | None = None,
    called: Mapping[str, str] | None = None,
) -> None:
    """Write an answer, or show it; then with dates beside ticks, by a clock, and columns as they are called there."""
    import polars as pl

    from synthstream.schema.clock import written

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
    for name, word, more in (("since", "from", 0), ("measured_at", "before", 1)):
        if clock is not None and name in found.columns:
            ticks = {tick: clock.boundary(tick + more) for tick in found[name].drop_nulls().unique()}
            shown = {tick: f"{tick} ({word} {written(end)})" for tick, end in ticks.items()}
            found = found.with_columns(pl.col(name).replace_strict(shown, return_dtype=pl.String))
    digits = {"share": 3, "measured": 1, "stderr": 1, "model_error": 1, "z": 1}
    found = found.with_columns(pl.col(name).round(n) for name, n in digits.items() if name in found.columns)
    found = found.rename(called or {})
    # As wide as it is: a number that goes on in the next line would be another number.
    look = {"tbl_rows": -1, "tbl_cols": -1, "tbl_width_chars": -1}
    look |= {"tbl_hide_dataframe_shape": True, "tbl_hide_column_data_types": True}
    with pl.Config(**look, tbl_formatting="ASCII_BORDERS_ONLY_CONDENSED", fmt_str_lengths=60):  # type: ignore[arg-type]
        typer.echo(str(found))
