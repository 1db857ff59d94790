"""The section [synthesizer] of a configuration: which tables are counted, and how."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from synthstream.config.keys import Listed, Name, Section, Texts
from synthstream.config.places import counted
from synthstream.errors import ConfigError
from synthstream.kinds import COUNTERS, SYNTHESIZERS, FitKind, Queries, Score, Split
from synthstream.partition import DEEPEST, Partition
from synthstream.privacy import EVENT, Budget, Unit
from synthstream.schema.conditions import like
from synthstream.schema.districts import OfPlace
from synthstream.schema.schema import Schema
from synthstream.strategies.times import RefreshTimes
from synthstream.workload import Workload

# Beyond this many cells a tick would take minutes and gigabytes.
_LARGEST_WORKLOAD = 20_000_000

# A million cells, 8 MB for each vector over them.
_DEPTH = 20

# No state may have 1 GB. That of points has 8 bytes for each cell. That of the papers' method has 40 for each node of
# each level, 16 more for each doubling of the segments that ended in one, and in one dimension 8 for each cell.
_DEEPEST = {"points": 26, "hypercube": 21}

Measuring = Literal["auto", "always", "refresh", "epochs"]

# How much older a stream is at a refresh than at the one before, if nothing is said: the least of these with which the
# counts of all refreshes, 16 bytes each, are no more than so many (decision 88).
_REFRESH_GROWTHS, _MOST_REMEMBERED = (1.1, 1.2, 1.4), 24_000_000
# Synthetic rows at most, where nothing is said.
MOST_ROWS = 1_000_000
# Where all tables are measured at every tick, and there alone, the events of a person in several ticks cost less
# together than one by one. It is worth more than refreshes from so many times the events of one tick on (decision 59).
_MANY = 10

# Keys that had another name when the first chains began.
STORED = {"shares": "budget"}


def _one_of(names: Iterable[str]) -> AfterValidator:
    """Of names that may still become more."""

    def check(name: str) -> str:
        if name not in names:
            raise PydanticCustomError("literal_error", "{expected}", {"expected": ", ".join(map(repr, names))})
        return name

    return AfterValidator(check)


class SynthesizerConfig(Section):
    """Keys of [synthesizer]: what is measured and how.

    Args:
        kind: ``table`` and ``points``, ours; ``selective`` and ``stream-mwem``, main algorithm and baseline of paper 2;
            ``hypercube``, the algorithm of paper 1.
        order, near, marginals: which tables; see :func:`workload_of`.
        focus: columns whose tables with others have four times the share of other larger tables; not with
            ``measure = "epochs"``, which chooses.
        counter, shares: see ``kind`` and ``split`` of :class:`synthstream.kernel.tables.Marginals`.
        measure: ``always``, all tables at every tick; ``refresh``, see
            :class:`synthstream.kernel.tables.Refreshed`; ``epochs``, see :class:`synthstream.kernel.epochs.Epochs`.
        growth: see :class:`synthstream.kernel.epochs.Epochs`, and :class:`synthstream.kernel.tables.Refreshed`;
            for those :meth:`refresh_growth`.
        picks: tables to choose in an epoch, or at a tick; left out: for kind ``table`` as many as gain most, anew in
            each epoch, for the others what
            :func:`synthstream.synthesizers.bounds.picks_rule` says.
        events_per_tick: a public guess for that rule; of points with delta above 0, for which noise they have.
        population: synthetic rows at most, which stand for more events each where there are more; left out: a million.
        depth: splits of the box of a points stream, at most: memory is for ``2**depth`` cells.
        region: a GeoJSON file whose polygons hold all points; in settings for readers, what stands in it.
    """

    kind: Annotated[str, _one_of(SYNTHESIZERS)] = "table"
    order: int | None = Field(default=None, ge=1, le=8)
    near: int | None = Field(default=None, ge=1)
    marginals: Listed[Texts] | None = None
    focus: Texts | None = None
    counter: Annotated[str, _one_of(COUNTERS)] = "auto"
    shares: Split = "auto"
    measure: Measuring = "auto"
    growth: float = Field(default=1.5, ge=1.01, le=100)
    picks: int | None = Field(default=None, ge=1)
    population: int | None = Field(default=None, ge=1000)
    events_per_tick: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    fit: FitKind = "pgm"
    queries: Queries = "workloads"
    score: Score = "corrected"
    depth: int | None = Field(default=None, ge=1, le=DEEPEST)
    schedule: Literal["adaptive", "fixed"] = "adaptive"
    region: Name | None = None

    def refresh_growth(self, workload: Workload | None, horizon: int | None) -> float:
        """How much older a stream is at a refresh than at the one before; the more cells, the more, if not said."""
        return self._affordable(workload, horizon) or self._growths[-1]

    def _affordable(self, workload: Workload | None, horizon: int | None) -> float | None:
        """The least growth with which refreshes remember no more than they may; ``None`` if there is none."""
        cells = 0 if workload is None else workload.cells
        remembered = ((one, cells * RefreshTimes(one, horizon).remembered) for one in self._growths)
        return next((one for one, counts in remembered if counts <= _MOST_REMEMBERED), None)

    @property
    def _growths(self) -> tuple[float, ...]:
        """What growth may be: what is said, or the first of several that serves."""
        return (self.growth,) if "growth" in self.model_fields_set else _REFRESH_GROWTHS

    @property
    def listed(self) -> bool:
        """Whether ``marginals`` lists all tables that there are."""
        return self.marginals is not None and self.near is None

    @property
    def points(self) -> bool:
        """Whether columns are coordinates of points."""
        return SYNTHESIZERS[self.kind].points

    @property
    def of_paper(self) -> bool:
        """Whether it is a published method, here for comparison."""
        return SYNTHESIZERS[self.kind].paper

    def measures(
        self, budget: Budget, workload: Workload | None = None, unit: Unit = EVENT, horizon: int | None = None
    ) -> Literal["always", "refresh", "epochs"]:
        """Whether all tables are measured at every tick, larger ones when the stream has grown, or some once an epoch.

        Pure DP pays for each table in full, so few tables, measured rarely, tell more (docs/decisions/0006-epochs.md).

        Args:
            horizon: ticks; ``None`` for no end.
        """
        if self.measure != "auto":
            return self.measure
        if (self.counter, self.shares) != ("auto", "auto"):
            return "always"
        if budget.pure:
            return "epochs"
        if unit.events_in(horizon) >= _MANY * unit.in_a_tick:
            return "always"
        larger = workload is None or any(len(marginal) > 1 for marginal in workload.marginals)
        return "refresh" if larger and self._affordable(workload, horizon) is not None else "always"

    def public(self) -> dict[str, Any]:
        """All settings but tables and region, under the names that the chains of streams begin with."""
        # Chains began with what stands here: of a key that came later, nothing where it is not said.
        unsaid = {key for key in ("population", "focus") if getattr(self, key) is None}
        settings = self.model_dump(exclude={"order", "near", "marginals", "region", *unsaid})
        return {STORED.get(key, key): value for key, value in settings.items()}

    def check(self, budget: Budget) -> None:
        """Raise ``ConfigError`` if a key has no effect with the others, or one is missing."""
        given = {key for key in self.model_fields_set if getattr(self, key) != "auto"}
        for key in sorted(given - {"kind"} - set(SYNTHESIZERS[self.kind].keys)):
            belongs = " or ".join(f'"{kind}"' for kind, known in SYNTHESIZERS.items() if key in known.keys)
            raise ConfigError(f'{key}: has no effect with kind = "{self.kind}"; it belongs to kind = {belongs}')
        if self.kind == "table":
            measure = self.measures(budget)
            if measure == "refresh" and budget.pure:
                raise ConfigError(
                    'measure = "refresh" adds Gaussian noise, so it needs delta above 0, as in delta = 1e-9. With '
                    'delta = 0 use measure = "epochs", or leave measure out'
                )
            owner = {"picks": "epochs", "counter": "always", "shares": "always"}
            owner |= {"growth": "epochs"} if measure == "always" else {}
            owner |= {"focus": "always" if budget.pure else "refresh"} if measure == "epochs" else {}
            for key in sorted(key for key in given if owner.get(key, measure) != measure):
                when = {"always": "at every tick", "refresh": "at refreshes", "epochs": "once an epoch"}[measure]
                pure = ", or to delta above 0" if key == "focus" and budget.pure else ""
                raise ConfigError(
                    f"{key}: has no effect when tables are measured {when}; it belongs to measure = "
                    f'"{owner[key]}"{pure}. Leave it out here'
                )
        elif self.points:
            if budget.pure and self.events_per_tick is not None:
                raise ConfigError(
                    "events_per_tick: has no effect with delta = 0; of points it tells which noise is less"
                )
        elif "events_per_tick" in SYNTHESIZERS[self.kind].keys and self.picks is None and self.events_per_tick is None:
            raise ConfigError(
                "picks: say how many tables to select at a tick; or give events_per_tick, a public guess of how many "
                "events a tick brings, and let a rule decide. Never look it up in the private data"
            )


def partition_of(section: SynthesizerConfig, columns: int) -> Partition:
    """The partition of the box of a points stream.

    Raises:
        ConfigError: there are too many columns, or too few cells for them.
    """
    deepest = _DEEPEST.get(section.kind, DEEPEST)
    depth = section.depth or max(_DEPTH, min(columns, deepest))
    if depth > deepest:
        raise ConfigError(
            f'depth = {depth}: kind = "{section.kind}" serves at most {deepest}: 2^{deepest} cells take half a GB of '
            "the state, and more memory. 20 is fine enough for millions of events"
        )
    if columns > depth:
        raise ConfigError(
            f"{columns} columns need at least {columns} cuts, one along each; depth = {depth}, and at most {deepest} "
            f"are served (2^{deepest} cells). Name fewer columns"
            + (", or give a larger depth" if columns <= deepest else "")
        )
    return Partition(dimension=columns, depth=depth)


def workload_of(section: SynthesizerConfig, schema: Schema) -> Workload:
    """The tables that a section asks for: all up to an order, or those that are listed.

    With ``near`` the total, each column, pairs of columns that are at most so far apart in their order, all tables that
    places ask for, and those that are listed.

    Raises:
        ConfigError: a column does not exist, or the cells are too many.
    """
    if section.order is not None and (section.marginals is not None or section.near is not None):
        raise ConfigError(f"give either order or {'near' if section.marginals is None else 'marginals'}, not both")
    found: list[tuple[int, ...]] = [()]
    if not section.listed:
        every = Workload.all_up_to(min(section.order or 2, len(schema.names)), sizes=schema.sizes)
        found = [one for one in every.marginals if counted(schema, one) and is_near(one, section.near, schema)]
    for names in section.marginals or ():
        for name in names:
            if name not in schema.names:
                raise ConfigError(f"{name!r} is not a column.{like(name, schema.names)}")
            if names.count(name) > 1:
                raise ConfigError(f"a table names {name!r} twice. Leave one of them, or name another column")
        found.append(tuple(sorted({schema.names.index(name) for name in names})))
    if not any(found):
        raise ConfigError('list at least one table, as in [["ward", "age"]]')
    workload = Workload(sizes=schema.sizes, marginals=tuple(dict.fromkeys(found)))
    if workload.cells > _LARGEST_WORKLOAD:
        most, largest = max((math.prod(shape), m) for shape, m in zip(workload.shapes, workload.marginals, strict=True))
        raise ConfigError(
            f"{workload.cells:,} cells in {len(workload.marginals):,} tables are too many; at most "
            f"{_LARGEST_WORKLOAD:,} are served. The table of {' and '.join(repr(schema.names[c]) for c in largest)} "
            f"alone has {most:,}. Use fewer bins or values, or list [synthesizer] marginals"
        )
    return workload


def is_near(marginal: tuple[int, ...], most: int | None, schema: Schema) -> bool:
    """Whether columns are at most so far apart; those of places are counted with others as they say themselves."""
    apart = marginal[-1] - marginal[0] if len(marginal) > 1 else 0
    return most is None or apart <= most or any(isinstance(schema.columns[c], OfPlace) for c in marginal)
