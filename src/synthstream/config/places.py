"""Columns of places: which grids are counted, with which columns they are crossed, what share of the budget they get.

All of it is decided by public numbers: the budget, the columns, and a guess of how many events there will be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from synthstream.config.keys import ColumnSection, Listed, Name, Strictly, Texts
from synthstream.constraints import ALL_OFFERED, Grids, Group
from synthstream.errors import ConfigError
from synthstream.privacy import Budget
from synthstream.schema.columns import Boolean, Column, distinct
from synthstream.schema.conditions import first, like
from synthstream.schema.districts import NAME, Districts, OfPlace
from synthstream.schema.places import FINEST, View
from synthstream.schema.schema import Schema
from synthstream.workload import FloatArray, Workload

# Noise of a table at the last refresh of a stream, in that of a single release of it.
_CONTINUAL = 1.6
# With delta = 0, noise of the finest grid that is planned for at epsilon = 1, and the power of 1 / epsilon in it.
# Calibrated: noise itself grows faster, but the finer a grid is, the more of it is taken out where nothing lies.
_PURE, _PURE_POWER = 42.5, 1 / 3
# Parts of the noise that are planned for: the finest grid alone, and all tables of grids with other columns together.
_ALONE, _CROSSED = 0.07, 0.25
# What all grids alone get of the part of tables of one column.
_SINGLES = 0.6
_POWER = 1 / 3
# Where tables are measured once an epoch grids get so much of that part at most: the root of their cells gives more to
# many fine ones, and each of a few coarse categories is told by its own table alone.
_SINGLES_IN_EPOCHS = 0.75
# They share it in proportion to this power of their cells, by how many coordinates there are: least noise, each cell's
# weighed with the way to the next one. A place is off by all of its grids together, not by the finest alone.
_POWERS_IN_EPOCHS = {1: 0.0, 2: 0.25}
# Larger tables with a column of the focus have so many times the share of others: half of their noise.
_FOCUS = 4.0
# A grid is fine enough when an even spread of the events would give each cell so many standard errors. One of two
# coordinates bears less, as events leave most of a square empty; with delta = 0 what crosses it would pay for it. One
# that is crossed is refined by others.
_LEAST_ALONE, _LEAST_OF_TWO, _LEAST_CROSSED = 0.8, 0.45, 0.35
# From one grid to the next, so many times each coordinate is halved: by how many there are.
_STEP = {1: 2, 2: 1}
# A flag is taken to hold for one event in so many: what crosses it is as noisy as with a column of so many values.
_FLAG = 8
# Grids that are crossed have so many bits at most, also two together; districts of two places have so many.
_MOST_CROSSED, _MOST_DISTRICTS = 8, 12


class PlaceSection(ColumnSection):
    """Keys of a place: see :class:`synthstream.schema.places.View`.

    Args:
        depth, views: how often each coordinate is halved, at the finest grid and at the others; left out: by
            :func:`views_of`.
        crossed: names of columns that are counted together with it, at grids of up to 256 cells; left out: by the same.
        events: a public guess of how many events the stream will have, for these rules.
        regions, region_key: a GeoJSON file of districts, or what would stand in it, and the property that names them.
    """

    type: Literal["place"]
    coordinates: Texts
    bounds: Listed[Annotated[tuple[float, float], Field(strict=False)]]
    depth: int | None = None
    views: Listed[Strictly[int]] | None = None
    crossed: Texts | None = Field(default=None, alias="with")
    events: int = Field(default=50_000, ge=1)
    regions: Name | None = None
    region_key: Name | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return self.coordinates


def views_of(
    section: PlaceSection,
    others: Sequence[Column],
    budget: Budget,
    events: int,
    *,
    places: Sequence[OfPlace],
    later: Sequence[str],
    base: Path,
) -> list[OfPlace]:
    """The columns of a place, coarsest first. Districts, if there are any, stand in for the coarsest grid.

    Where nothing is said, a grid is counted for each two bits, from four cells on, up to the finest at which an even
    spread of the expected events has ``_LEAST_ALONE`` or ``_LEAST_OF_TWO`` standard errors in a cell. A column is
    crossed with all grids at which each cell of both would have ``_LEAST_CROSSED`` standard errors. Another place is
    crossed where ``with`` names it, on grids of one depth that have 256 cells together at most, and by the districts of
    both, 4,096 pairs at most.

    Args:
        others: the other columns, in order.
        budget: for one event.
        events: how many each person may bring; 1 if events are protected.
        places: the columns of places that stand before it.
        later: names of places that stand below it.
        base: folder that the path of a file starts from.

    Raises:
        ConfigError, SchemaError: there is no such place.
    """
    _check(section)
    dimension = len(section.coordinates)
    sigma = _CONTINUAL * math.sqrt(1 / (2 * float(budget.rho))) * events
    noise = sigma / math.sqrt(_ALONE)
    if budget.pure:
        noise = max(noise, _PURE * (events / float(budget.epsilon)) ** _PURE_POWER)
    least = _LEAST_OF_TWO if dimension == 2 and not budget.pure else _LEAST_ALONE
    worth = int(math.log2(max(section.events / (least * noise), 1)))  # bits of the finest grid worth its noise
    finest, step = section.depth or min(max(worth // dimension, 1), FINEST // dimension), _STEP[dimension]
    named = [] if section.regions is None else [_districts(section, section.regions, finest, base)]
    finest = named[0].finest.depth if named else finest
    coarsest = step if section.regions is None else min(2 * step, finest)
    depths = list(range(coarsest, finest - step + 1, step)) if section.views is None else list(section.views)
    if depths != sorted(set(depths)) or (depths and not 0 < depths[0] <= depths[-1] <= finest):
        raise ConfigError(f"views: must be depths in order, from 1 to {finest}, the finest; found {depths}")
    depths = [*depths, *([] if finest in depths else [finest])]
    views = [_grid(section, depth, located=depth == finest) for depth in depths]
    bits = [*(math.log2(column.size) for column in named), *(dimension * depth for depth in depths)]
    columns: list[OfPlace] = [*named, *views]
    crossed = (
        _chosen(section.crossed, columns, others, places, later, bits)
        if section.crossed is not None
        else _worthwhile(section, others, bits, sigma)
    )
    return [replace(column, crossed=tuple(now)) for column, now in zip(columns, crossed, strict=True)]


def _check(section: PlaceSection) -> None:
    """Raise ``ConfigError`` unless keys go together."""
    dimension = len(section.coordinates)
    if section.region_key is not None and section.regions is None:
        raise ConfigError("region_key: has no effect without regions; name the GeoJSON file, or leave it out")
    if section.source is not None:
        raise ConfigError(
            'from: a place is read from its coordinates. Leave from out, and say coordinates = ["lat", "lon"]'
        )
    if dimension not in _STEP:
        raise ConfigError('coordinates: name two columns, as in ["lat", "lon"], or one')
    distinct("coordinates", section.coordinates)
    distinct("with", section.crossed or ())
    if section.depth is not None and not 0 < section.depth <= FINEST // dimension:
        most = f"must be from 1 to {FINEST // dimension}, which are {2**FINEST:,} cells"
        raise ConfigError(f"depth = {section.depth}: {most}")
    if len(section.bounds) != dimension:
        if len(section.bounds) == 2:
            raise ConfigError('coordinates: bounds has two, so name two columns, as in ["lat", "lon"]')
        raise ConfigError(
            f"bounds: {len(section.bounds)} for {dimension} coordinates. Give each its own, as in [[32, 37], [-122, 0]]"
        )


def _grid(section: PlaceSection, depth: int, *, located: bool) -> View:
    """A column of the place, crossed with nothing."""
    return View(
        name=f"{section.name}_{depth}",
        words=section.words,
        place=section.name,
        coordinates=section.coordinates,
        bounds=section.bounds,
        depth=depth,
        located=located,
    )


def _districts(section: PlaceSection, said: str, finest: int, base: Path) -> Districts:
    """The column of a place's districts, crossed with nothing.

    Where no depth is said, the finest grid is one whose cells and districts meet in so few pairs that each row may be
    offered all of them.
    """
    name, key = f"{section.name}_region", section.region_key or NAME
    found = Districts.read_file(said, key, base, name=name, finest=_grid(section, finest, located=True))
    while section.depth is None and found.finest.depth > 1 and len(found.pairs()) > ALL_OFFERED:
        found = replace(found, finest=_grid(section, found.finest.depth - 1, located=True))
    # Maps draw them from what the settings hold.
    return replace(found, words=replace(section.words, regions=found.text, region_key=NAME))


def _chosen(
    said: Sequence[str],
    columns: Sequence[OfPlace],
    others: Sequence[Column],
    places: Sequence[OfPlace],
    later: Sequence[str],
    bits: Sequence[float],
) -> list[list[str]]:
    """For each column of a place, those that ``with`` crosses it with."""
    names, whole = [column.name for column in others], {column.name: column.place for column in places}
    known = [*names, *dict.fromkeys(whole.values())]
    for name in said:
        if name in later:
            raise ConfigError(
                f"with: {name!r} stands below. A place is crossed with those before it: put that section first"
            )
        if name not in known:
            more = " A place is crossed with those before it." if len(known) > len(names) else ""
            some = f"Name some of {known}.{more}" if known else "There is none, so leave with out."
            raise ConfigError(f"with: {name!r} is not another column.{like(name, known)} {some}")
    theirs = [column for column in places if column.place in said]
    crossed = [
        [
            *(name for name in said if name in names and b <= _MOST_CROSSED),
            *(other.name for other in theirs if _meet(column, other, b)),
        ]
        for column, b in zip(columns, bits, strict=True)
    ]
    reached = {whole.get(name, name) for now in crossed for name in now}
    if idle := [name for name in said if name not in reached]:
        few = f"up to {2**_MOST_CROSSED} cells; with another place up to 16, of the same depth"
        raise ConfigError(
            f"with: {idle[0]!r} is counted together with no grid: grids for that have {few}. Say views that have one, "
            "or leave it out (with = [] names none)"
        )
    return crossed


def _meet(column: OfPlace, other: OfPlace, bits: float) -> bool:
    """Whether columns of two places are crossed; ``bits`` of the first."""
    if isinstance(other, Districts):
        together = bits + math.log2(other.size)
        return isinstance(column, Districts) and together <= _MOST_DISTRICTS
    alike = len(other.bounds) * other.depth == bits and 2 * bits <= _MOST_CROSSED
    return alike and isinstance(column, View)


def _worthwhile(
    section: PlaceSection, others: Sequence[Column], bits: Sequence[float], sigma: float
) -> list[list[str]]:
    """For each column of a place, those that the rule crosses it with; a boolean one has ``_FLAG`` values at least."""
    fine = [b for b in bits if b <= _MOST_CROSSED]
    found: list[list[str]] = [[] for _ in bits]
    # Coarse grids and few values first: each table that is added leaves less of the budget to all.
    for size, k, name in sorted(
        (2 ** bits[k] * max(column.size, _FLAG * isinstance(column, Boolean)), k, column.name)
        for k in range(len(fine))
        for column in others
    ):
        tables = 1 + sum(map(len, found))
        if section.events / size >= _LEAST_CROSSED * sigma * math.sqrt(tables / _CROSSED):
            found[k].append(name)
    return found


def words_of(schema: Schema) -> str:
    """Which grids are counted, and what they are crossed with, in sentences; empty without places."""
    said = []
    for place in schema.places:
        views = _grids_of(schema, place)
        cells, names = [f"{len(view.values):,}" for view in views], [view.name for view in views]
        called = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        where = f"{' and '.join(views[-1].coordinates)} {'are' if len(views[-1].coordinates) > 1 else 'is'}"
        said.append(f"{place}: {where} counted on grids of {_and(cells)} cells ({called}).")
        districts = [schema.districts[place]] if place in schema.districts else []
        with_these: dict[tuple[str, ...], list[str]] = {}
        own: list[OfPlace] = [*districts, *views]
        for one in own:
            with_these.setdefault(one.crossed, []).append(one.name)
        crossed = [f"{_and(them)} with {_and(others)}" for others, them in with_these.items() if others]
        said.append(f"Crossed are {'; '.join(crossed)}." if crossed else "No grid is crossed with a column.")
        said += map(_of_districts, districts)
    return " ".join(said)


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _of_districts(column: Districts) -> str:
    """How many districts there are, where they overlap, and how much they leave out. From the file alone."""
    gap, doubled = column.gaps_and_overlaps()
    number = column.title.rpartition(", ")[2]
    rest = f"{100 * gap:.3g} % of the box lies in none and counts as other" if gap > 1e-6 else "they fill the box"
    said = f"{column.name}: {number}; {rest}."
    if doubled:
        shown = first([f"{a!r} and {b!r}" for a, b in doubled], most=3)
        said += f" Some overlap ({shown}): what lies in two counts in the first of the file."
    if beyond := column.beyond():
        shown = first([f"{name!r} by {100 * share:.2g} %" for name, share in beyond.items()], most=3)
        said += f" {len(beyond):,} of them reach out of bounds ({shown}): events there count as other."
    return said


def nested(schema: Schema) -> list[Group]:
    """For each place, which cells of its grids go together: those that contain each other, and districts they meet."""
    found = []
    for place, views in schema.places.items():
        grids = _grids_of(schema, place)
        finest = grids[-1]
        codes = np.stack([finest.within(grid) for grid in grids], axis=1)
        levels = tuple(len(grid.bounds) * grid.depth for grid in grids)
        nests = [Grids(tuple(views), levels, len(finest.bounds))] if len(views) > 1 else []
        if (districts := schema.districts.get(place)) is not None:
            pairs, d = districts.pairs(), schema.names.index(districts.name)
            found.append(Group.of([d, *views], np.column_stack([pairs[:, 0], codes[pairs[:, 1]]]), nests=nests))
        elif nests:
            found.append(Group.of(views, codes, nests=nests))
    return found


def _grids_of(schema: Schema, place: str) -> list[View]:
    """The grids of a place, coarsest first."""
    return [column for column in schema.columns if isinstance(column, View) and column.place == place]


def counted(schema: Schema, marginal: Sequence[int]) -> bool:
    """Whether a table is counted where no list of tables is given: grids with the columns that they cross alone."""
    columns = [schema.columns[c] for c in marginal]
    return all(_goes(a, b) and _goes(b, a) for a, b in combinations(columns, 2))


def _goes(a: Column, b: Column) -> bool:
    if isinstance(a, OfPlace) and isinstance(b, OfPlace):
        return b.name in a.crossed or a.name in b.crossed
    return not isinstance(a, OfPlace) or b.name in a.crossed


def _whole(column: Column) -> str:
    """The name of a column; of one of a place, that of the place."""
    return column.place if isinstance(column, OfPlace) else column.name


def weights_of(
    schema: Schema,
    workload: Workload,
    focus: Sequence[str] = (),
    sizes: FloatArray | float = 1.0,
    *,
    alike: bool = False,
) -> tuple[float, ...] | None:
    """How much of the budget each table gets beside others of its order; ``None``: all the same.

    Grids get ``_SINGLES`` of what is there for tables of one column, and ``_CROSSED`` of that for larger ones. Larger
    tables that hold a column of the focus get ``_FOCUS`` times what others get.

    Args:
        focus: names of columns and places.
        sizes: how many times the share of others each gets for its cells, where it holds no grid.
        alike: whether tables of one column and one weight get the same; otherwise a part is divided among them as
            refreshes do, by a power of their cells.

    Raises:
        ConfigError: one is none, or no table of two columns or more holds it.
    """
    grids = np.array([isinstance(column, View) for column in schema.columns])
    if not grids.any() and not focus:
        return None
    sought = np.zeros(len(workload.marginals), dtype=np.bool_)
    for name in focus:
        own = {i for i, column in enumerate(schema.columns) if name in (column.name, _whole(column))}
        if not own:
            raise ConfigError(f"{name!r} is not a column.{like(name, [_whole(column) for column in schema.columns])}")
        holds = np.array([len(marginal) > 1 and not own.isdisjoint(marginal) for marginal in workload.marginals])
        if not holds.any():
            raise ConfigError(f"no table of two columns or more holds {name!r}, so there is nothing to measure better")
        sought |= holds
    weights = np.where(sought, _FOCUS, 1.0)
    held = np.array([grids[list(marginal)].any() for marginal in workload.marginals])
    weights = np.where(held, weights, weights * sizes)
    if not grids.any():
        return tuple(weights.tolist())
    # Among grids it is divided as an error of each weighs, with the way to the next cell.
    powers = (0.0 if alike else 0.6, _POWER)
    key, wanted = (np.where(workload.order == 1, workload.cells_to(power), 1.0) for power in powers)
    for order, part in ((1, _SINGLES), (2, _CROSSED)):
        theirs, ours = (workload.order == order) & held, (workload.order == order) & ~held
        if theirs.any() and ours.any():
            whole = (key * weights)[ours].sum() * part / (1 - part)
            share = (wanted * weights)[theirs]
            weights[theirs] = whole * share / share.sum() / key[theirs]
    return tuple(weights.tolist())


def weights_in_epochs(schema: Schema, workload: Workload) -> tuple[float, ...] | None:
    """The same of tables of one column, where tables are measured once an epoch: see ``_SINGLES_IN_EPOCHS``."""
    roots, grids = np.sqrt(workload.lengths), np.zeros(len(workload.lengths))
    for q, marginal in enumerate(workload.marginals):
        if len(marginal) == 1 and isinstance(view := schema.columns[marginal[0]], View):
            grids[q] = workload.cells_to(_POWERS_IN_EPOCHS[len(view.bounds)])[q]
    if not grids.any():
        return None
    ours, theirs = roots[(workload.order == 1) & (grids == 0)].sum(), roots[grids > 0].sum()
    whole = min(theirs, ours * _SINGLES_IN_EPOCHS / (1 - _SINGLES_IN_EPOCHS)) if ours else theirs
    return tuple(np.where(grids > 0, whole * grids / grids.sum() / roots, 1.0).tolist())
