"""The report that may be published: made of releases and configuration alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from synthstream.config.config import StreamConfig
from synthstream.forecast.noticing import noticed
from synthstream.forecast.several import in_periods, of_several
from synthstream.forecast.warnings import limited
from synthstream.publish.history import Cells, History, Steps, Tick, evenly, history_of
from synthstream.publish.model import codes_of
from synthstream.publish.readme import cited, left_out, less, within
from synthstream.release.points import PointRelease
from synthstream.release.rows import weight_name
from synthstream.report.association import MOST_COLUMNS, Pair, pairs
from synthstream.report.charts import Series, Table, heat_map, line_chart
from synthstream.report.distributions import card, latest, over_time, running
from synthstream.report.page import period, render, until
from synthstream.report.places import grid_of_nodes, grid_of_tables, grids_of_places, map_of, point_cards
from synthstream.report.promise import promise_of
from synthstream.report.recent import recent
from synthstream.report.regions import map_of_regions, regions_of
from synthstream.report.scales import RANGE, REACH, dates, linear, number, ranged, size_of
from synthstream.report.theorems import STATEMENTS

# Pairs that are listed below the heat map.
_STRONGEST = 15
_CHANGES = 400
# A total of fewer of its standard errors says little.
_FEW = 3
_UNKNOWN = Cells(**dict.fromkeys(("count", "measured", "stderr", "since"), np.full(1, np.nan)))
# Of each file whether it is for people, and what it is: those for people stand first.
FILES = {
    "history.csv": (True, "For a spreadsheet: counts of every tick, month, quarter and year, with standard errors"),
    "tables.csv": (True, "For a spreadsheet: counts from the start on, with standard errors"),
    "rows.csv": (True, "For a spreadsheet: synthetic rows"),
    "README.md": (True, "Which file answers what"),
    "series.csv": (False, "Counts of the newest tick, as CSV"),
    "rows.parquet": (False, "Synthetic rows"),
    "tables.parquet": (False, "Counts with their standard errors"),
    "series.parquet": (False, "Counts of the newest tick, with their standard errors"),
    "history.parquet": (False, "Counts of every tick, month, quarter and year, with their standard errors"),
    "measured.parquet": (False, "Noisy counts as they were measured, for machines"),
    "datapackage.json": (False, "What each column means, for machines"),
    "manifest.json": (False, "The promise, and hashes of all files"),
    "releases.json": (False, "All releases: when, where, and their hashes"),
}


def public_page(
    config: StreamConfig,
    output: Path,
    *,
    progress: Steps,
    found: History | None = None,
    listed: Sequence[dict[str, Any]] | None = None,
    explorer: str = "",
) -> str:
    """The public report of a stream, as HTML.

    Args:
        config: with a [sink] that holds releases.
        output: where the page will lie; links to the newest release start there.
        found: its releases, if they are known.
        listed: files of the newest release, where they lie elsewhere: see :func:`links`.
        explorer: where the explorer is; empty if there is none.

    Raises:
        ConfigError: there is no [sink], or the releases were made with other settings.
        SinkError: there is no release, or a file is not what was published.
    """
    found = found or history_of(config, progress=progress)
    parts = _of_points(found, progress) if config.workload is None else _of_tables(found, progress)
    ticks, newest = found.ticks, found.newest
    name = config.publication.title or config.name
    claim, unit = newest.manifest["claim"], replace(config.privacy.unit, signed=config.op is not None)
    return render(
        "report.html",
        title=f"{name}: synthetic data",
        name=name,
        start=config.clock.boundary(0),
        config=config,
        explorer=explorer,
        stamp=stamp_of(found),
        drawn=None if config.sink is None or config.sink.rows == "total" else config.sink.rows,
        ticks=ticks,
        newest=newest,
        unit=unit,
        limited=limited(unit),
        less=less(config),
        within=within(unit),
        claim=claim,
        promise=promise_of(claim),
        ledger=ledger(found),
        cuts=[config.clock.boundary(cut["tick"]) for cut in found.config.cuts],
        cautions=noticed(found.config),
        theorems=[(name, STATEMENTS.get(name, "")) for name in claim["theorems"]],
        limits=limits_of(config, impossible=_impossible(found)),
        cited=cited(config, newest.manifest),
        downloads=downloads(found, output) if listed is None else listed,
        reach=number(REACH),
        most_columns=MOST_COLUMNS,
        unchecked=[tick.tick for tick in ticks if tick.manifest.get("unchecked")],
        gaps=newest.tick + 1 - len(ticks),
        without_rows=sum(not tick.has_rows for tick in ticks),
        changes=_changes(ticks),
        **parts,
    )


def limits_of(config: StreamConfig, *, impossible: int | None = None) -> Markup:
    """What is not protected and what is not exact: short headings, and a sentence or two for each, in HTML.

    Args:
        impossible: number of published rows that violate public constraints; ``None`` if that is not known.
    """
    unit, workload = config.privacy.unit, config.workload
    text = render(
        "limits.html",
        config=config,
        unit=unit,
        left_out=left_out(unit),
        several=in_periods(config) if unit.of_persons else of_several(config, "rows"),
        order=0 if workload is None else max((len(m) for m in workload.marginals), default=0),
        allowed=config.constraints.words(config.schema),
        impossible=impossible,
    )
    return Markup(text)  # noqa: S704 - escaped by the template


def stamp_of(found: History) -> str:
    """What a page of simulated releases says at its head; empty of others."""
    return f"{found.warning}, protects nobody; do not publish" if found.warning else ""


def _of_tables(found: History, progress: Steps) -> dict[str, Any]:
    """What differs for a stream of tables."""
    ticks = found.sampled()
    history = [(ticks[i], found.cells(ticks[i])) for i in progress(list(range(len(ticks))), "reading releases")]
    newest = history[-1][1]
    grids = {c for views in found.config.schema.places.values() for c in views}  # which have maps
    columns = progress([c for c in range(len(found.config.schema.columns)) if c not in grids], "drawing columns")
    cards = [card(found, i, history) for i in columns]
    listed = pairs(found, newest)
    several = len(listed) > 1 or len(found.config.schema.columns) == 2
    grid, of_places = grid_of_tables(found, newest), grids_of_places(found, newest)
    maps = [] if grid is None else [map_of(grid, found.newest)]
    maps += [map_of(one, found.newest, what=what) for what, one in of_places]
    maps[1:1] = _of_regions(found, newest)  # the first is of all events
    totals = [_UNKNOWN] * len(history)
    if () in found.workload.marginals:
        here = found.workload.slice_of(())
        totals = [running(cells, here) for _, cells in history]
    return {
        "total": _total(totals[-1]),
        "few": _few(_total(totals[-1])),
        "growth": _growth(ticks, totals),
        "recent": recent(found),
        "cards": [c for c in cards if c is not None],
        "association": _association(found, listed) if several else None,
        "noise_known": any(pair.chance is not None for pair in listed),
        "maps": maps,
        "degrees": True,
        "error_bars": bool(np.isfinite(newest.stderr).any()),
        "any_range": False,
    }


def _of_regions(found: History, newest: Cells) -> Iterator[Markup]:
    """Maps of columns whose values are regions, where a table of the column alone is published."""
    for position, column in enumerate(found.config.schema.columns):
        regions = regions_of(found.config, column) if (position,) in found.workload.marginals else None
        if regions is not None:
            now, note = latest(found, (position,), newest)
            what = f"{column.title}: all events, {period(found.config.clock.boundary(0), found.newest.end)}"
            yield map_of_regions(regions, column, now, what=what, note=note)


def _impossible(found: History) -> int | None:
    """Number of rows of the newest release that violate public constraints; ``None`` if there are none, or no rows."""
    config, newest = found.config, found.newest
    if not config.constraints.groups or not newest.has_rows:
        return None
    rows, name = found.sink.read(newest.tick, "rows.parquet"), weight_name(config.schema)
    codes = codes_of(config.schema, rows)
    broken = np.any([group.places(codes) < 0 for group in config.constraints.groups], axis=0)
    return int(rows[name].to_numpy()[broken].sum() if name in rows.columns else broken.sum())


def _of_points(found: History, progress: Steps) -> dict[str, Any]:
    """What differs for a stream of points."""
    newest = found.releases.at(found.newest.tick)
    told = newest.mass({}) if isinstance(newest, PointRelease) else {}
    whole = (told["measured"], told["stderr"]) if told.get("stderr") is not None else None
    grid = grid_of_nodes(found, found.nodes(found.newest), newest.model)
    return {
        "total": None,
        "few": _few(whole),
        "growth": _growth(found.sampled(), [_UNKNOWN] * len(found.sampled())),
        "recent": None,
        "cards": point_cards(found, progress=progress),
        "association": None,
        "noise_known": False,
        "maps": [] if grid is None else [map_of(grid, found.newest)],
        "degrees": grid is not None and grid.degrees,
        "error_bars": False,
        "any_range": whole is not None,
        "areas": grid is not None and grid.errors is not None,
    }


def _total(total: Cells) -> tuple[float, float] | None:
    """The total as it passed the gate, and its standard error; ``None`` where that is not published."""
    found = float(total.measured[0]), float(total.stderr[0])
    return found if np.isfinite(found).all() else None


def _few(total: tuple[float, float] | None) -> str:
    """The number of events, if noise could be the better part of it; else empty."""
    return ranged(*total) if total is not None and total[0] < _FEW * total[1] < math.inf else ""


def _growth(ticks: Sequence[Tick], totals: Sequence[Cells]) -> Markup:
    line = replace(over_time(list(zip(ticks, totals, strict=True)), 0, "synthetic rows"), y=[t.rows for t in ticks])
    high = line.high or ()
    measured = [
        "–" if end is None else ranged(float(total.measured[0]), float(total.stderr[0]))
        for end, total in zip(high, totals, strict=True)
    ]
    top = max([t.rows for t in ticks] + [h for h in high if h is not None])
    known = any(h is not None for h in high)
    columns = slice(4 if known else 3)
    rows = [[until(t.end), str(t.tick), number(t.rows), m][columns] for t, m in zip(ticks, measured, strict=True)]
    return line_chart(
        [line],
        title="All events, running total",
        description=f"From {number(ticks[0].rows)} to {number(ticks[-1].rows)} events in {len(ticks)} of the releases.",
        x=dates(ticks[0].end, ticks[-1].end),
        y=linear(0, max(top, 1.0)),
        y_label="events",
        table=Table(headings=["Events up to", "Tick", "Synthetic rows", RANGE][columns], rows=rows),
        note=f"Band: what was measured, ± {number(REACH)} standard errors." if known and len(ticks) > 1 else "",
    )


def _changes(ticks: Sequence[Tick]) -> Markup | None:
    shown = [tick for tick in evenly(ticks, _CHANGES) if tick.changed is not None]
    if len(shown) < 2:
        return None
    values = [100 * float(t.changed or 0.0) for t in shown]
    return line_chart(
        [Series(name="changed rows", x=[t.end.timestamp() for t in shown], y=values)],
        title="Rows that were replaced, release by release",
        description=f"Between {number(min(values))} % and {number(max(values))} % of the rows of the release before.",
        x=dates(shown[0].end, shown[-1].end),
        y=linear(0, max(*values, 1.0), marks=4),
        y_label="% of the rows of the release before",
        note="Synthetic rows of the release before without an equal row in the next one: rows are changed to fit the "
        "newer counts. No real event was changed.",
    )


def _association(found: History, listed: Sequence[Pair]) -> Markup | None:
    columns = found.config.schema.columns
    finer = {c for views in found.config.schema.places.values() for c in views[1:]}  # which say no more than the first
    place = {c: i for i, c in enumerate([c for c in range(len(columns)) if c not in finer][:MOST_COLUMNS])}
    names = [columns[c].title for c in place]
    listed = [pair for pair in listed if {*pair.columns} <= place.keys()]
    if not listed:
        return None
    known = any(pair.chance is not None for pair in listed)
    drawn, clear = dict[tuple[int, int], tuple[float | None, bool]](), list[tuple[float, str, str]]()
    for pair in listed:
        (i, j), strength, chance = (place[c] for c in pair.columns), pair.strength, pair.chance
        drawn[i, j] = strength, known and pair.is_noise
        if strength is not None and not (known and pair.is_noise):
            likely = "–" if chance is None else f"{chance:.1g}" if chance >= 0.001 else "below 0.001"
            clear.append((strength, f"{names[i]} and {names[j]}", likely))
    clear.sort(key=lambda one: -one[0])
    rows = [[what, f"{strength:.2f}", likely] for strength, what, likely in clear[:_STRONGEST]]
    said = f"{len(clear)} of {len(listed)} pairs have a colour." if known else f"{len(listed)} pairs."
    said += f" The strongest: {rows[0][0]}, {rows[0][1]}." if rows else ""
    headings = ["Strongest pairs", "Strength, from 0 to 1", "Chance of as much if independent"]
    return heat_map(
        names,
        drawn,
        title="Which columns go together",
        description=said,
        high=min(max(math.ceil(10 * max((one[0] for one in clear), default=0.0)) / 10, 0.1), 1.0),  # the next tenth
        scale="How strongly two columns go together in the synthetic rows, from 0 (not at all) to 1 (one follows from "
        "the other): Cramér's V",
        table=Table(headings=headings, rows=rows) if rows else None,
        note=said,
    )


def ledger(found: History) -> list[tuple[Tick, dict[str, Any]]]:
    """The charges that releases state, each with the first that states it. There is one: the budget is charged once.

    A claim that names one theorem more, since its state was lost, is no other charge.
    """
    listed: list[tuple[Tick, dict[str, Any]]] = []
    for tick in found.ticks:
        stated = tick.manifest.get("claim", {})
        claim = {key: value for key, value in stated.items() if key not in ("theorems", "trusts")}
        if not listed or listed[-1][1] != claim:
            listed.append((tick, claim))
    return listed


def downloads(found: History, output: Path) -> list[dict[str, Any]]:
    """Files of the newest release that are there, with links relative to the folder of the page.

    What lies elsewhere has no link: it would break when the page moves, and show names of local folders.
    """
    place, folder = found.sink.place(found.newest.tick).resolve(), output.absolute().parent.resolve()
    start = quote(place.relative_to(folder).as_posix()) if place.is_relative_to(folder) else None
    sizes = {name: (place / name).stat().st_size for name in FILES if (place / name).exists()}
    return links(sizes, None if start is None else f"{start}/")


def links(sizes: Mapping[str, int], start: str | None = "") -> list[dict[str, Any]]:
    """What the page says of files by their sizes; ``start``: before their names in links, ``None`` for no links."""
    return [
        {
            "name": name,
            "href": "" if start is None else f"{start}{name}",
            "what": what,
            "size": size_of(sizes[name]),
            "first": first,
        }
        for name, (first, what) in FILES.items()
        if name in sizes
    ]
