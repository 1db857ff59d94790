"""What the explorer page reads: scripts that hold published numbers, so that they can be loaded from a disk too.

Each release has one, ``cells.js``, that changes only if ranges of points have become finer since; ``facts.js``
describes the stream, and has the series of single columns. All of it is made of releases and of public facts about
their noise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from synthstream.publish.folder import SERIES
from synthstream.publish.history import History, Tick
from synthstream.release.series import steps_of_calendar
from synthstream.report.association import impossible, pairs
from synthstream.report.distributions import kind_of, labels_of
from synthstream.report.places import axes_of, facts_of, grid_of_nodes, in_series, masses_of, over
from synthstream.report.regions import names_in, regions_of
from synthstream.report.scales import ranges
from synthstream.schema.binned import Number, open_ended
from synthstream.schema.columns import Category, Column
from synthstream.schema.coordinates import Coordinate
from synthstream.workload import FloatArray, IntArray

# All events together, as if they were a column of one value.
_ALL = {"name": "All events", "labels": ["all"], "edges": [], "values": 1, "ordered": True, "kind": ""}
_FACTS, _CELLS = "synthstream.facts(", "synthstream.cells("


class Explored(NamedTuple):
    """A table that the explorer knows.

    Args:
        columns: positions.
        noise: tables with one number share all covariances; -1: no error is known.
        late: whether it is measured at some ticks alone, see :meth:`Explorer.moments`.
    """

    columns: tuple[int, ...]
    size: int
    noise: int
    late: bool = False


class Explorer:
    """Makes the explorer's scripts for one stream.

    Args:
        found: its releases.
    """

    def __init__(self, found: History) -> None:
        self._found, self._config = found, found.config
        self._columns, measures = found.config.schema.columns, found.config.measures
        # Whether measured counts are of all events up to a tick, so that the difference of two is that of a span; and
        # whether tables of one column are measured epoch by epoch, so that sums of epochs are of all events.
        self._running, self._epochs = measures in ("always", "refresh"), measures == "epochs"

    @cached_property
    def _covariance(self) -> Any:
        return self._found.releases.covariance(self._found.newest.tick)

    @cached_property
    def _noises(self) -> tuple[list[int], list[int]]:
        """Of each table, which noise it has; and of each noise, a table that has it."""
        if self._epochs:  # tables of one column have each their own
            small = [q for q, order in enumerate(self._found.workload.order) if order < 2]
            return [small.index(q) if q in small else -1 for q in range(len(self._found.workload.order))], small
        if not self._running:
            return [-1] * len(self._found.workload.marginals), []
        last = self._found.newest.tick
        ends = np.array([self._covariance(s, last) for s in (0, last // 2, last)])
        orders = self._found.workload.order
        keys = [(int(orders[q]), *ends[:, q].round(9).tolist()) for q in range(len(orders))]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return [numbers[key] for key in keys], [keys.index(key) for key in numbers]

    @cached_property
    def tables(self) -> list[Explored]:
        """In the order of their cells."""
        if self._config.workload is not None:
            listed = zip(self._config.workload.marginals, self._config.workload.lengths, self._noises[0], strict=True)
            late = {"refresh": 2, "epochs": 1}.get(self._config.measures)
            return [Explored(columns, int(size), noise, len(columns) == late) for columns, size, noise in listed]
        nodes = self._found.nodes(self._found.newest)
        sizes = [nodes[f"{column.name} from"].n_unique() for column in self._columns]
        axes = axes_of(self._columns, any_pair=True)
        pair = [] if axes is None else [(axes[1], axes[0])]
        return [Explored((i,), size, -1) for i, size in enumerate(sizes)] + [
            Explored(columns, sizes[columns[0]] * sizes[columns[1]], -1) for columns in pair
        ]

    # -- one release ---------------------------------------------------------------------------------------------

    def cells(self, tick: Tick) -> str:
        """The script of one release: counts in its rows, and what was measured, over all cells."""
        if self._config.workload is None:
            return _script(_CELLS, {"count": np.round(self._masses(tick)).astype(int).tolist()}, tick.tick)
        names = ["count", "measured", "stderr", "since"]
        late = ["measured_at"] if self._config.measures == "refresh" else []
        frame = self._found.sink.read(tick.tick, "tables.parquet", columns=[*names, *late])
        first = frame[self._config.workload.offsets[:-1].astype(np.uint32)]
        at = first["measured_at"] if late else pl.select(pl.repeat(tick.tick, first.height)).to_series()
        found: dict[str, Any] = {"count": frame["count"].to_list()}
        if frame["measured"].null_count() < frame.height:
            found["measured"] = _rounded(frame["measured"])
            found["stderr"] = first["stderr"].round(4).to_list()
            found["since"], found["at"] = first["since"].to_list(), at.to_list()
        if tick.tick in self._sums and "measured" in found:
            single = [len(table.columns) == 1 for table in self.tables]
            for place, value in zip(self._small[1:].tolist(), self._sums[tick.tick][0].tolist(), strict=True):
                found["measured"][place] = value
            found["since"] = [0 if one else since for one, since in zip(single, found["since"], strict=True)]
        if self._running or self._epochs:
            found |= self._shared(tick.tick)
        return _script(_CELLS, found, tick.tick)

    def _shared(self, tick: int) -> dict[str, Any]:
        """For each noise its covariances with what was measured up to each tick that can be chosen, until this one, and
        which these are, if not all; nothing of a tick that cannot be chosen.
        """
        ends = [s for s in range(tick + 1) if s in self._ends] if tick in self._ends else []
        rows = np.array([self._covariance(s, tick)[self._noises[1]] for s in ends])
        if self._epochs:  # which share no noise: two sums share that of the earlier one
            for s, row in zip(ends, rows, strict=True):
                row[1:] = self._of_epochs(max(end for end in self._sums if end <= s))
        shared = {"shared": [[float(f"{value:.7g}") for value in row] for row in rows.T.tolist()]} if ends else {}
        return shared if len(ends) in (0, tick + 1) else {"ends": ends, **shared}

    @cached_property
    def _ends(self) -> set[int]:
        """Ticks up to whose ends a span can reach, or the time before it. Readers choose dates: there is one tick that
        ends before each midnight, and one that goes on; tables have their :meth:`_moments`; and there are the newest.
        """
        newest = self._found.newest.tick
        at = np.array([_moment(self._config.clock.boundary(t))[:16] for t in range(newest + 2)], dtype="M8[m]")
        midnights = np.flatnonzero(np.diff((at - 1).astype("M8[D]")).astype(int))
        return {0, *midnights.tolist(), *(midnights - 1).tolist(), *self._moments, newest - 1, newest}

    def _of_epochs(self, last: int) -> FloatArray:
        """Variance of the sums up to a tick, for each table of one column."""
        begins = np.cumsum([0, *(table.size for table in self.tables if len(table.columns) == 1)])[:-1]
        found: FloatArray = self._sums[last][1][begins if last >= 0 else 0 * begins]
        return found

    @cached_property
    def _sums(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        """In epochs: by last tick, what all epochs so far counted in tables of one column, and the variance by cell.

        They follow each other, and share no noise. Nothing where measured counts are of all events.
        """
        found, begun = {-1: (np.zeros(1), np.zeros(1))}, dict[Any, int]()
        for tick in self._found.ticks if self._epochs else ():
            begun[self._config.clock.boundary(tick.tick).replace(tzinfo=None)] = tick.tick
            own = self._series(tick, "tick").filter(pl.col("column").is_not_null())
            before = None if own.is_empty() else found.get(begun.get(own["start"][0], -1) - 1)
            if before is not None:
                found[tick.tick] = before[0] + own["measured"].to_numpy(), before[1] + own["stderr"].to_numpy() ** 2
        return found

    def _series(self, tick: Tick, span: str) -> pl.DataFrame:
        return self._found.sink.read(tick.tick, SERIES).filter(pl.col("span") == span)

    def _masses(self, tick: Tick) -> FloatArray:
        """Counts of a stream of points, laid out as :attr:`tables` are: a release may have coarser ranges, or finer."""
        nodes, sizes = self._found.nodes(tick), [table.size for table in self.tables]
        found = [masses_of(nodes, column) for column in self._columns if isinstance(column, Coordinate)]
        found = [over(masses, size) for masses, size in zip(found, sizes, strict=False)]
        if (grid := grid_of_nodes(self._found, nodes)) is not None:
            up, across = self.tables[-1].columns
            found.append(over(over(grid.counts, sizes[up]).T, sizes[across]).T.reshape(-1))
        return np.concatenate(found)

    def _errors(self, tick: Tick) -> list[float | None] | None:
        """Of points: standard errors of the counts of single columns; ``None`` of tables."""
        if self._config.workload is not None:
            return None
        model, nodes = self._found.releases.at(tick.tick).model, self._found.nodes(tick).sort("node")
        found = []
        for column, table in zip(self._columns, self.tables, strict=False):
            starts, own = np.unique(nodes[f"{column.name} from"].to_numpy(), return_inverse=True)
            finer, coarser = max(starts.size // table.size, 1), max(table.size // starts.size, 1)
            found += [model.mass((own // finer == at // coarser) / coarser)[1] for at in range(table.size)]
        return _rounded(pl.Series(found).fill_nan(None).round(1))

    # -- the stream ----------------------------------------------------------------------------------------------

    def facts(self, before: str | None = None) -> str:
        """The script that describes the stream up to its newest release.

        Args:
            before: the same of an earlier release: what it holds of old ticks is not read again.
        """
        ticks = [tick.tick for tick in self._found.ticks]
        clock, axes = self._config.clock, axes_of(self._columns, any_pair=self._config.workload is None)
        heads = [str(tick.manifest["chain"]["head"]) for tick in self._found.ticks]
        known, known_errors, known_steps = _known(before, heads)
        if not self.lays_out_as(before):
            known_errors = {}
        single = [t for t in self.tables if len(t.columns) < 2]
        ticks_of = list(zip(heads, self._found.ticks, strict=True))
        told = np.repeat([in_series(self._columns, t.columns) for t in single], [t.size for t in single])
        shown = {head: line for head, line in known.items() if len(line) == told.sum()}  # as this version has it
        series = [shown.get(head) or list(compress(self._singles(tick), told)) for head, tick in ticks_of]
        errors = [known_errors.get(head) or self._errors(tick) for head, tick in ticks_of]
        return _script(
            _FACTS,
            {
                "name": self._config.publication.title or self._config.name,
                "warning": self._found.warning,
                "unit": self._config.privacy.unit.kind,
                "every": self._config.clock.every,
                "ticks": ticks,
                "heads": heads,
                "at": [_moment(clock.boundary(tick)) for tick in range(ticks[-1] + 2)],
                "columns": [*(self._column(i, column) for i, column in enumerate(self._columns)), _ALL],
                "tables": [[table.columns or (len(self._columns),), *table[1:]] for table in self.tables],
                "moments": self._moments,
                "pairs": self._pairs(),
                "never": impossible(self._found) if self._config.workload is not None else [],
                "laplace": self._found.newest.manifest["claim"].get("pure_epsilon") is not None,
                "map": None if axes is None else list(axes),
                "singles": series,
                "errors": errors if self._config.workload is None else [],
                "steps": self._steps(known_steps),
            },
        )

    def lays_out_as(self, before: str | None) -> bool:
        """Whether an earlier script of :meth:`facts` has the same tables, and so what was written beside it is right.

        Ranges of points are those of the newest release; as events come they become finer.
        """
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            return [table[1] for table in _read(before)["tables"]] == [table.size for table in self.tables]
        return False

    def _pairs(self) -> list[tuple[int, float | None, bool]]:
        """Of tables of two columns in the newest release: how likely independent columns look as dependent, and
        whether it could: see :func:`synthstream.report.association.pairs`.
        """
        if self._config.workload is None:
            return []
        found = pairs(self._found, self._found.cells(self._found.newest))
        place = self._config.workload.place.__getitem__
        return [(place(p.columns), p.chance and float(f"{p.chance:.2g}"), p.is_noise) for p in found]

    def _column(self, position: int, column: Column) -> dict[str, Any]:
        alike = [each.title for each in self._columns].count(column.title) > 1
        name = f"{column.title}: {column.name}" if alike else column.title
        found: dict[str, Any] = {"name": name, **facts_of(column)}
        if others := {column.name, getattr(column, "place", column.name)} - {found["name"]}:
            found["called"] = sorted(others)
        if isinstance(column, Coordinate):
            size = next(table.size for table in self.tables if table.columns == (position,))
            edges = np.linspace(column.min, column.max, size + 1).tolist()
            return found | {
                "labels": open_ended(ranges(edges)), "edges": edges, "values": size, "ordered": True, "kind": "numbers"
            }  # fmt: skip
        if "grid" in found:
            return found
        if (regions := regions_of(self._config, column)) is not None:
            labels = labels_of(column)
            names = names_in({code: labels[code] for code in regions.shapes}, regions)
            found |= {"regions": regions.shapes, "names": names}
        edges = list(map(float, column.edges)) if isinstance(column, Number) and column.even else []  # to scale
        return found | {
            "labels": labels_of(column), "edges": edges, "values": len(column.value_labels),
            "ordered": not isinstance(column, Category), "kind": kind_of(column),
        }  # fmt: skip

    @cached_property
    def _small(self) -> IntArray:
        """Positions of the cells of the total, and of tables of one column."""
        ends = np.cumsum([table.size for table in self.tables])
        small = [(end, table.size) for end, table in zip(ends, self.tables, strict=True) if len(table.columns) < 2]
        return np.concatenate([np.arange(end - size, end) for end, size in small])

    def _singles(self, tick: Tick) -> list[Any]:
        """Of the total and of each value of each column: what was measured up to a tick; else the count in the rows."""
        if self._config.workload is None:
            return [round(mass) for mass in self._masses(tick)[self._small].tolist()]
        lines = self._series(tick, "running") if self._running or self._epochs else pl.DataFrame()
        if self._epochs:
            sums = self._sums.get(tick.tick, (np.full(self._small.size - 1, np.nan), None))[0]
            return [*_rounded(lines["measured"][:1]), *_rounded(pl.Series(sums).fill_nan(None))]
        if lines.height == self._small.size:
            return _rounded(lines["measured"])
        frame = self._found.sink.read(tick.tick, "tables.parquet", columns=["count", "measured"])
        return _rounded(frame["measured" if self._running else "count"][self._small.tolist()])

    @cached_property
    def _moments(self) -> list[int]:
        """Ticks at which tables that are :attr:`Explored.late` were measured."""
        if self._config.measures != "refresh":
            return [end for end in self._sums if end >= 0]
        found, tick = list[int](), self._found.newest.tick
        larger = np.setdiff1d(np.arange(self._found.workload.cells), self._small)
        while larger.size and tick >= 0 and self._found.sink.place(tick).is_dir():
            at = self._found.sink.read(tick, "tables.parquet", columns=["measured_at"])["measured_at"][int(larger[0])]
            if at is None:
                break
            found.append(int(at))
            tick = int(at) - 1
        return found[::-1]

    def _steps(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """For each length of time its spans of ticks, and the variance of what lies in each, by noise."""
        if not (self._running or self._epochs):
            return {}
        last = self._found.newest.tick
        spans: dict[str, Sequence[tuple[Any, ...]]] = {
            "start": [(0, tick) for tick in range(last + 1)],
            "tick": [(tick, tick) for tick in range(last + 1)],
        }
        spans |= steps_of_calendar(self._config.clock, newest=last)
        if self._epochs:
            spans["epoch"] = [(first + 1, end) for first, end in pairwise(self._sums)]
        small = [place for place in self._noises[1] if self._found.workload.order[place] < 2]
        found: dict[str, Any] = {}
        for name, each in spans.items():
            old = {tuple(span): row for span, row in zip(*known.get(name, [[], []]), strict=True)}
            found[name] = [each, [old.get(tuple(span)) or self._variance(span, small) for span in each]]
        return found

    def _variance(self, span: Sequence[int], small: list[int]) -> list[float | None]:
        """Of what lies in a span, by noise; ``None`` where it is not known."""
        first, last, c = span[0], span[1], self._covariance
        found = np.asarray(c(last, last) + (c(first - 1, first - 1) - 2 * c(first - 1, last) if first else 0.0))[small]
        if self._epochs:
            known = {first - 1, last} <= self._sums.keys()
            found[1:] = self._of_epochs(last) - self._of_epochs(first - 1) if known else np.nan
        return [None if np.isnan(each) else each for each in found.round(4).tolist()]


def _read(script: str | None) -> Any:
    """What a script of facts holds. Raises ``ValueError`` if it cannot be read."""
    return json.loads((script or "").removeprefix(_FACTS).removesuffix(");\n"))


def _known(script: str | None, heads: Sequence[str]) -> tuple[dict[str, list[Any]], dict[str, Any], dict[str, Any]]:
    """What an earlier script holds of the same releases; nothing, if it is of others or cannot be read.

    Series by chain head, their errors where each value has its own, and the variances of spans.
    """
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        facts = _read(script)
        if facts["heads"] == list(heads[: len(facts["heads"])]):
            singles = dict(zip(facts["heads"], facts["singles"], strict=True))
            return singles, dict(zip(facts["heads"], facts["errors"], strict=False)), facts["steps"]
    return {}, {}, {}


def _rounded(values: pl.Series) -> list[float | int | None]:
    """Numbers with three decimals; whole ones without."""
    return [None if v is None else int(v) if v == int(v) else round(v, 3) for v in values.to_list()]


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d}" if (value.hour, value.minute) == (0, 0) else f"{value:%Y-%m-%dT%H:%M}Z"


def _script(call: str, value: dict[str, Any], *before: int) -> str:
    given = "".join(f"{number}, " for number in before)
    return f"{call}{given}{json.dumps(value, separators=(',', ':'), ensure_ascii=False, allow_nan=False)});\n"
