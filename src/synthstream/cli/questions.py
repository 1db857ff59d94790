"""``synthstream sample``, ``table``, ``series`` and ``compare``: rows, and counts with their errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import Simulate, console
from synthstream.cli.reading import At, Between, Place, Where, all_of, apart, chosen, format_of, pair, window, write
from synthstream.errors import ConfigError, NotReleased

if TYPE_CHECKING:
    import polars as pl

    from synthstream.config.config import StreamConfig
    from synthstream.publish.published import Releases
    from synthstream.release.release import Release

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
    str | None, typer.Option("--place", metavar="NAME", help="Which place the polygons are of, if there are several.")
]
_UNKNOWN = "measured: nothing that passed the gate tells this."
_NOTHING = (
    "--where: no value satisfies it, so there is no line. A date is written DATE '2026-01-31': numbers with - between "
    "them are subtracted."
)
# Columns of a comparison, in a terminal.
_CALLED = {"then": "rows_then", "now": "rows_now", "difference": "rows_difference"}
_CALLED |= {"measured": "measured_difference", "stderr": "measured_stderr"}
_CALLED |= {"since": "measured_since", "since_then": "measured_since_then"}
_TOLD = (
    "rows_...: counts of the synthetic rows, without a known error. measured_...: what passed the gate, and its "
    "standard error; z and beyond_noise are of that."
)
_WIDENED = "measured_since..., measured_at...: the ticks that are measured; refreshes may widen the dates asked for."
_LINES = 30  # of a comparison, in a terminal
_Csv = Annotated[bool, typer.Option("--csv", help="CSV to standard output, for machines.")]


def sample_command(
    place: Place,
    n: Annotated[
        int | None,
        typer.Option("-n", "--rows", min=0, help="How many; left out: all. More than there are: with repetition."),
    ] = None,
    where: Where = None,
    at: At = None,
    between: Between = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the draw; it has nothing to do with privacy.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .csv, .parquet or .jsonl file; left out: CSV to standard output."),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="csv|parquet|jsonl", help="Left out: as the file is called.")
    ] = None,
    simulate: Simulate = False,
) -> None:
    """Draw synthetic rows from a published release. Free: any number of times, at no privacy cost.

    Example: synthstream sample stream.toml -n 1000 --seed 7 -o rows.parquet

    Last month only: synthstream sample stream.toml --between 2015-12-01 2016-01-01

    Some rows only: synthstream sample stream.toml --at 2015-06-30 --where "age >= 60" --format jsonl
    """
    import numpy as np

    from synthstream.cli.answering import why_empty
    from synthstream.publish.published import releases

    form = format_of(format_, output, place=place)
    published = releases(place, simulate=simulate)
    release, condition = chosen(published, at, between), all_of(where, published)
    # All rows are always the same, in their own order; only a draw is fresh each time.
    rows = release.rows(n, where=condition, seed=None if n is None else np.random.default_rng(seed))
    if at is not None or between is not None:
        typer.echo(f"{release.name}: {release.about}", err=True)
    if rows.is_empty() and n != 0:
        typer.echo(why_empty(condition, release), err=True)
    write(rows, output, form, stamped=not release.secure)
    if output is not None:
        console().print(f"{len(rows):,} synthetic row{'' if len(rows) == 1 else 's'} in {output}", markup=False)


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
    from synthstream.cli.answering import give, inside, polygons_in, tell_of_counts, tell_of_cuts, tell_of_window
    from synthstream.publish.published import releases
    from synthstream.release.points import PointRelease

    form, bounds = format_of(None, output, place=place), _bounds(box or [])
    if where and {"=", "==", "!=", "<>"} & {*(columns or [])}:
        raise ConfigError("--where: put the whole condition in quotes, as in --where \"zone = 'A'\".")
    published = releases(place, simulate=simulate)
    release, clock = chosen(published, at, between), published.config.clock
    condition = all_of(where, published)
    columns = apart(columns, release.schema.names)
    _refuse_both(polygon, box, columns, feature or of_place)
    if polygon is not None:
        found = inside(release, polygons_in(release, polygon, feature, of_place), {}, condition, published.config)
    elif box or (isinstance(release, PointRelease) and not columns):
        if columns:
            raise ConfigError("--box: counts all events in it; leave out columns, or ask for single values by --where.")
        found = inside(release, *bounds, condition, published.config)
    else:
        found = release.table(columns, where=condition, model_error=model_error)
        _tell_of_gaps(release, found, columns, condition, published.config)
        tell_of_window(found, release, published.config)
    typer.echo(f"{release.name}: {release.about}", err=True)
    tell_of_counts(published.config, over_time=between is not None)
    for column in columns:
        tell_of_cuts(published, column, steps=False)
    give(found, output, form, csv=csv, stamped=not release.secure, columns=release.schema.columns, clock=clock)


def _tell_of_gaps(
    release: Release, found: pl.DataFrame, columns: list[str], where: str | None, config: StreamConfig
) -> None:
    """Say so where a condition leaves nothing, or where nothing that was measured tells of the table."""
    from synthstream.cli.answering import unmeasured
    from synthstream.release.answers import why_unmeasured
    from synthstream.release.tables import TableRelease

    if where and not found.height:
        typer.echo(_NOTHING, err=True)
    elif (where or columns) and isinstance(release, TableRelease) and found["measured"].is_null().all():
        why = why_unmeasured(release.schema, release.workload, columns, where)
        typer.echo(f"measured: {why}" if why else unmeasured(release, config, _UNKNOWN), err=True)


def _refuse_both(polygon: Path | None, box: object, columns: object, said: str | None) -> None:
    """End here if polygons are named beside a box or columns, or are not named at all."""
    if polygon is None and said:
        raise ConfigError("--feature and --place: name the polygons, too: --polygon districts.geojson.")
    if polygon is not None and (box or columns):
        raise ConfigError("--polygon: counts all events in it; leave out --box and columns.")


def _bounds(box: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Lower and upper bounds by coordinate."""
    lower, upper = dict[str, float](), dict[str, float]()
    for one in box:
        name, *ends = one.rsplit(maxsplit=2) or [""]
        if name in lower:
            raise ConfigError(f"--box: gives {name} twice; give it once, as in --box '{name} 33 34'.")
        try:
            lower[name], upper[name] = map(float, ends)
        except ValueError:
            raise ConfigError(f"--box {one!r}: say a coordinate and two numbers, as in --box 'lat 33 34'.") from None
    return lower, upper


def series_command(
    place: Place,
    columns: Annotated[
        list[str] | None, typer.Argument(metavar="COLUMN", help="Whose values to count apart; left out: all events.")
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
    from synthstream.cli.answering import give, polygons_in, tell_of, tell_of_counts, tell_of_cuts, tell_of_steps
    from synthstream.publish.published import releases

    form, (lower, upper) = format_of(None, output, place=place), _bounds(box or [])
    found = releases(place, simulate=simulate)
    names = apart(columns, found.last.schema.names)
    column = names[0] if names else None
    if column is not None and "=" in column and column not in found.last.schema.names:
        raise ConfigError(f"series: {column!r}: name the column alone; each of its values has lines of its own.")
    if len(names) > 1:
        raise ConfigError("series: takes one column; for several at once: synthstream table, with --between.")
    _refuse_both(polygon, box, column, feature or of_place)
    area = lower if polygon is None else polygons_in(found.last, polygon, feature, of_place)
    if polygon is not None or box:
        tell_of(found.last, area, upper, series=place)
    series = found.series(column, every=every, lower=area, upper=upper)
    tell_of_steps(found, every)
    tell_of_counts(found.config, over_time=True)
    if column is not None:
        tell_of_cuts(found, column)
    kinds = [kind for kind in found.last.schema.columns if kind.name == column]
    give(series, output, form, csv=csv, stamped=not found.last.secure, columns=kinds)


def compare_command(
    place: Place,
    columns: Annotated[
        list[str] | None, typer.Argument(help="Columns of the table to compare; none: every published table.")
    ] = None,
    now: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", callback=pair, help="The later dates, widened to whole ticks."),
    ] = None,
    then: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", callback=pair, help="The earlier dates, widened to whole ticks."),
    ] = None,
    csv: _Csv = False,
    output: _Output = None,
    simulate: Simulate = False,
) -> None:
    """What changed from some dates to later ones, cell by cell, beyond the noise or not. Free: any number of times.

    `rows_then` and `rows_now` count the synthetic rows. `measured_difference` is that of what passed the gate, `z` is
    how many of its standard errors that is, and `beyond_noise` says whether z is beyond 3. What stands out most comes
    first. In files these columns are `then`, `now` and `measured`. Tables of two columns are measured at refreshes:
    columns that begin with `since` and `measured_at` say which ticks are compared.

    Example: synthstream compare stream.toml zone --then 2026-01-01 2026-02-01 --now 2026-02-01 2026-03-01
    """
    from synthstream.cli.answering import give, tell_of_chance, tell_of_counts, tell_of_lengths
    from synthstream.publish.published import releases

    form = format_of(None, output, place=place)
    found = releases(place, simulate=simulate)
    if now is None or then is None:
        raise ConfigError(_halves(found))
    later, earlier = window(found, "--now", now), window(found, "--then", then)
    if earlier.tick >= later.tick:
        raise ConfigError("--then: must end before --now does.")
    cells = later.compare(earlier, apart(columns, later.schema.names) or None)
    typer.echo(f"{later.name}: {earlier.about}, beside {later.about}", err=True)
    tell_of_lengths(earlier, later)
    tell_of_counts(found.config, over_time=True)
    # Noise may be Laplace's with delta above 0, too: then the promise is pure all the same.
    tell_of_chance(cells, found.config.clock, laplace=later.facts["claim"]["pure_epsilon"] is not None)
    if not csv and output is None:
        if len(cells) > _LINES:
            typer.echo(f"The first {_LINES} of {len(cells):,} cells; all of them: --csv, or -o changes.csv.", err=True)
            cells = cells.head(_LINES)
        asked = {"since_then": earlier.first, "measured_at_then": earlier.tick, "since": later.first}
        asked |= {"measured_at": later.tick}
        known = [name for name in asked if name in cells.columns]
        widened = any((cells[name] != asked[name]).any() for name in known)
        cells = cells if widened else cells.drop(known)  # the dates above say as much
        typer.echo(f"{_TOLD}\n{_WIDENED}" if widened else _TOLD, err=True)
    kinds, clock = later.schema.columns, found.config.clock
    give(cells, output, form, csv=csv, stamped=not later.secure, columns=kinds, clock=clock, called=_CALLED)


def _halves(found: Releases) -> str:
    """Which dates may be compared, in words, if there are two."""
    clock, end, name = found.config.clock, found.last.tick + 1, found.config.name
    if end == 1:
        return f"compare: {name} has one release, and nothing later to compare it with."
    first, middle, last = (clock.begins(tick).replace(" ", "T") for tick in (0, end // 2, end))
    if found.config.measures == "epochs":
        try:
            for dates in ((first, middle), (middle, last)):
                found.between(*dates)
        except NotReleased as error:  # which names the dates that may be asked for
            words = str(error).removeprefix("between: ")
            return f"--then and --now: give both. {words[0].upper()}{words[1:]}"
    example = f"--then {first} {middle} --now {middle} {last}"
    return f"--then and --now: give both, as in {example}, the two halves of {name}."
