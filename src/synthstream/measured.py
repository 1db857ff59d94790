"""What passed the gate, and nothing else: noisy counts of tables, numbers of nodes of a tree. All of it is public."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from synthstream.workload import FloatArray, IntArray, Workload

# Stamped on everything that a test gate has touched.
NOT_PRIVATE = "NOT PRIVATE: made with simulated noise"


def stamped(claim: Mapping[str, Any], *, secure: bool) -> dict[str, Any]:
    """A claim as anybody is told it: where noise was simulated, the words say that it does not hold."""
    return dict(claim) if secure else {**claim, "words": f"{NOT_PRIVATE}. With real noise: {claim['words']}"}


class Reading(Protocol):
    """What passed the gate at one tick, of any kind."""

    @property
    def tick(self) -> int:
        """0-based."""

    def facts(self) -> dict[str, Any]:
        """What was measured, without the values, for the hash chain."""

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        """All values, and all variances, for the hash chain."""

    def events(self) -> tuple[float, float] | None:
        """How many events there are up to this tick, and the standard error; ``None`` if that was not measured."""


class Committed(NamedTuple):
    """One row of the public history: a tick, its released integers and the chain head after it.

    ``unchecked`` names the mirrors that did not answer what they hold just before the tick was drawn, ``wait`` how long
    after its end it was closed, if that was configured.
    """

    tick: int
    released: IntArray
    head: str
    unchecked: tuple[str, ...] = ()
    wait: str | None = None

    @property
    def circumstances(self) -> dict[str, Any]:
        """What chain and manifest tell of how it was drawn, where there is something to tell. Empty, as a rule."""
        return {key: value for key, value in {"unchecked": list(self.unchecked), "wait": self.wait}.items() if value}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Measured:
    """Noisy counts of the marginals that were measured at one tick, with their known error. Public.

    Args:
        tick: 0-based number of the tick whose end this describes.
        workload: which marginals, and how ``values`` is laid out.
        values: noisy counts, float64, shape ``(cells,)``; may be negative, need not be consistent.
        variance: noise variance of each cell of each marginal, shape ``(marginals,)``, from public facts alone; NaN
            where it is not known. Noise is independent between cells.
        since: first tick whose events each marginal counts, int64, shape ``(marginals,)``; left out: 0 for all, which
            makes them running counts. They cover ticks ``since..tick``.
        order: in which single cells of tables were selected, as positions among the candidates; ``None`` if what was
            measured is whole tables.
        measured_at: tick at whose end each marginal was measured, int64, shape ``(marginals,)``: it counts the events
            of ticks ``since..measured_at``. ``None``: all at ``tick``, which is so of what passes the gate at one tick.
        rows: noisy number of rows up to this tick, of either sign, where it was counted.
        refreshed: ticks at which larger tables were measured, up to this one, int64, where releases decide some of
            them; ``None`` elsewhere, and where segments or cuts were joined.
        by_cell: variance of each cell, shape ``(cells,)``, where cells of one table differ: values were merged at a
            cut. ``variance`` is then no less than that of any cell.
    """

    tick: int
    workload: Workload
    values: FloatArray
    variance: FloatArray
    since: IntArray = None  # type: ignore[assignment]  # filled in below, once the number of marginals is known
    order: IntArray | None = None
    measured_at: IntArray | None = None
    rows: float | None = None
    by_cell: FloatArray | None = None
    refreshed: IntArray | None = None

    def __post_init__(self) -> None:
        if self.since is None:
            object.__setattr__(self, "since", np.zeros(len(self.workload.marginals), dtype=np.int64))

    def __repr__(self) -> str:
        return f"Measured(tick={self.tick}, {len(self.workload.marginals):,} tables, {self.values.size:,} cells)"

    def facts(self) -> dict[str, Any]:
        order = {} if self.order is None else {"order": self.order.tolist()}
        return {"tick": self.tick, "tables": [self.workload.marginals, self.since.tolist()], **order}

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        return self.values if self.rows is None else np.append(self.values, self.rows), self.variance

    @property
    def until(self) -> IntArray:
        """Tick at whose end each marginal was measured, whether all are of one or not, shape ``(marginals,)``."""
        return np.broadcast_to(self.tick if self.measured_at is None else self.measured_at, self.since.shape)

    def cell_variance(self) -> FloatArray:
        """Variance of each cell, shape ``(cells,)``."""
        return np.repeat(self.variance, self.workload.lengths) if self.by_cell is None else self.by_cell

    def events(self) -> tuple[float, float] | None:
        if () not in self.workload.place or self.since[self.workload.place[()]]:
            return None
        values, stderr = self.marginal(())
        return float(values), stderr

    def marginal(self, columns: Sequence[int]) -> tuple[FloatArray, float]:
        """Noisy counts of one marginal in the shape of its columns, and the standard error of each cell."""
        q = self.workload.marginals.index(tuple(columns))
        return self.workload.table(self.values, q), float(np.sqrt(self.variance[q]))


# In the place of a level: what was read is not a difference in nodes, but the number of all events.
NUMBER = -1
# It stands so in the store, where levels whose nodes have a variance each are below 0.
_STORED = 2**20


@dataclass(frozen=True, kw_only=True)
class Block:
    """Left minus right in nodes of one level, over the events of an epoch so far.

    Args:
        level: of the nodes; the root's is 0. ``NUMBER``: in their place stands the number of these events.
        values: noisy differences, float64, shape ``(n,)``.
        variance: of the noise of each, from public facts: one for all, or one for each node, shape ``(n,)``.
        nodes: those that were measured, int64, increasing, shape ``(n,)``; ``None``: all of the level, in order.
    """

    level: int
    values: FloatArray
    variance: float | FloatArray
    nodes: IntArray | None = None

    def everywhere(self, other: float) -> FloatArray:
        """The noisy differences of all nodes, shape ``(2**level,)``; ``other`` in one that was not measured."""
        return self._spread(self.values, other)

    def variances(self) -> FloatArray:
        """Of all nodes, shape ``(2**level,)``, infinite in one that was not measured; ``(1,)`` if it is one for all."""
        return self._spread(np.atleast_1d(self.variance).astype(np.float64), np.inf)

    def _spread(self, values: FloatArray, other: float) -> FloatArray:
        if self.nodes is None:
            return values
        found = np.full(2**self.level, other)
        found[self.nodes] = values
        return found


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TreeMeasured:
    """What was measured at one tick. Public.

    Args:
        tick: 0-based.
        begun: estimated number of events before the epoch began.
        total: estimated number of events up to this tick.
        variance: of the noise of ``total``; 0 if the number of events is public.
        blocks: the levels that were measured at this tick; all of them count the events of the open epoch so far. At
            the end of an epoch their number may be among them.
        closing: whether the epoch ends with this tick.
        needs: ticks before this one, in order, whose blocks an estimate needs: those at which epochs ended, and in the
            open epoch the newest of each level.
    """

    tick: int
    begun: float
    total: float
    variance: float
    blocks: tuple[Block, ...]
    closing: bool
    needs: tuple[int, ...]

    def __repr__(self) -> str:
        return f"TreeMeasured(tick={self.tick}, total={self.total:,.0f}, levels={[b.level for b in self.blocks]})"

    def facts(self) -> dict[str, Any]:
        return {
            "tick": self.tick,
            "levels": [b.level for b in self.blocks],
            "closing": self.closing,
            "needs": self.needs,
        }

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        values = np.concatenate([[self.begun, self.total], *(b.everywhere(0.0) for b in self.blocks)])
        return values, np.concatenate([[self.variance], *(b.variances() for b in self.blocks)])

    def events(self) -> tuple[float, float]:
        return self.total, float(np.sqrt(self.variance))

    def readings(self) -> dict[int, tuple[FloatArray, FloatArray]]:
        """By level: left minus right in its nodes, and its standard error; NaN in nodes that were not measured."""
        known = {b.level: b.variances() for b in self.blocks if b.level != NUMBER}
        return {
            b.level: (b.everywhere(np.nan), np.sqrt(np.where(np.isinf(known[b.level]), np.nan, known[b.level])))
            for b in self.blocks
            if b.level != NUMBER
        }

    def pack(self) -> IntArray:
        """All of it as int64, shape ``(n,)``, without loss."""
        head = np.array([self.closing, len(self.needs), len(self.blocks), *self.needs], dtype=np.int64)
        parts = [head, _bits(np.array([self.begun, self.total, self.variance]))]
        for block in self.blocks:
            level = ~block.level if block.nodes is not None else _STORED if block.level == NUMBER else block.level
            parts += [np.array([level]), _bits(block.variances()), _bits(block.everywhere(0.0))]
        return np.concatenate(parts)

    @classmethod
    def unpack(cls, tick: int, released: IntArray) -> TreeMeasured:
        """The measurement that :meth:`pack` was called on."""
        closing, needs, blocks = (int(n) for n in released[:3])
        place = 3 + needs
        begun, total, variance = _floats(released[place : place + 3]).tolist()
        place += 3
        found = []
        for _ in range(blocks):
            level, alone = int(released[place]), released[place] >= 0
            level = NUMBER if level == _STORED else level if alone else ~level  # below 0: each node has its variance
            size = 1 if level == NUMBER else 2**level
            begin, end = place + 1, place + 1 + (1 if alone else size)
            known, values = _floats(released[begin:end]), _floats(released[end : end + size])
            if alone:
                found.append(Block(level=level, values=values, variance=float(known[0])))
            else:
                nodes = np.flatnonzero(np.isfinite(known))
                found.append(Block(level=level, values=values[nodes], variance=known[nodes], nodes=nodes))
            place = end + size
        return cls(
            tick=tick,
            begun=begun,
            total=total,
            variance=variance,
            blocks=tuple(found),
            closing=bool(closing),
            needs=tuple(int(n) for n in released[3 : 3 + needs]),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TurnstileMeasured:
    """What was measured at one tick of a stream whose rows may take events away. Public.

    Args:
        tick: 0-based.
        came: of the events that were added.
        gone: of those that were taken away.
    """

    tick: int
    came: TreeMeasured
    gone: TreeMeasured

    @property
    def total(self) -> float:
        """Estimated number of events that are there; below 0 by noise, or if more was taken away than came."""
        return self.came.total - self.gone.total

    @property
    def variance(self) -> float:
        """Of the noise of ``total``."""
        return self.came.variance + self.gone.variance

    @property
    def closing(self) -> bool:
        """Whether an epoch of either side ends with this tick."""
        return self.came.closing or self.gone.closing

    @property
    def needs(self) -> tuple[int, ...]:
        """Ticks before this one, in order, whose blocks an estimate of either side needs."""
        return tuple(sorted({*self.came.needs, *self.gone.needs}))

    def __repr__(self) -> str:
        return f"TurnstileMeasured(tick={self.tick}, came={self.came!r}, gone={self.gone!r})"

    def facts(self) -> dict[str, Any]:
        return {"tick": self.tick, "came": self.came.facts(), "gone": self.gone.facts()}

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        """All values, and all variances, for the hash chain: of what came, then of what was taken away."""
        sides = [side.numbers() for side in (self.came, self.gone)]
        return np.concatenate([values for values, _ in sides]), np.concatenate([variance for _, variance in sides])

    def events(self) -> tuple[float, float]:
        return self.total, float(np.sqrt(self.variance))

    def pack(self) -> IntArray:
        """All of it as int64, shape ``(n,)``, without loss."""
        came, gone = self.came.pack(), self.gone.pack()
        return np.concatenate([[came.size], came, gone])

    @classmethod
    def unpack(cls, tick: int, released: IntArray) -> TurnstileMeasured:
        """The measurement that :meth:`pack` was called on."""
        border = 1 + int(released[0])
        came, gone = (TreeMeasured.unpack(tick, part) for part in (released[1:border], released[border:]))
        return cls(tick=tick, came=came, gone=gone)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NodeCounts:
    """Noisy counts of all nodes that exist, by the paper's own mechanism. Public.

    Args:
        tick: 0-based.
        time: number of points so far; public, and exact.
        levels: int64, shape ``(2**(j + 1),)`` at position j: the nodes of level j + 1 in order. The root is ``time``.
    """

    tick: int
    time: int
    levels: tuple[IntArray, ...]

    def __repr__(self) -> str:
        return f"NodeCounts(tick={self.tick}, time={self.time:,}, {len(self.levels)} levels)"

    def facts(self) -> dict[str, Any]:
        return {"tick": self.tick, "levels": len(self.levels)}

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        """All values, and no variance: it is not known."""
        return np.concatenate([[self.time], *self.levels]).astype(np.float64), np.zeros(0)

    def events(self) -> tuple[float, float]:
        return float(self.time), 0.0

    def readings(self) -> dict[int, tuple[FloatArray, float]]:
        """By level: noisy counts of its nodes; NaN for a standard error."""
        return {j: (values.astype(np.float64), np.nan) for j, values in enumerate(self.levels, 1)}

    def pack(self) -> IntArray:
        """All of it as int64, shape ``(n,)``."""
        return np.concatenate([[self.time], *self.levels]).astype(np.int64)

    @classmethod
    def unpack(cls, tick: int, released: IntArray) -> NodeCounts:
        """The counts that :meth:`pack` was called on."""
        levels = (released.size + 1).bit_length() - 2
        counts = np.split(released[1:], 2 ** np.arange(2, levels + 1) - 2) if levels else []
        return cls(tick=tick, time=int(released[0]), levels=tuple(counts))


def _bits(values: FloatArray) -> IntArray:
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64)


def _floats(bits: IntArray) -> FloatArray:
    return np.ascontiguousarray(bits, dtype=np.int64).view(np.float64)


# Stands for a cell that was not measured, although its table is listed.
_NOT_MEASURED = np.iinfo(np.int64).min


def pack_tables(workload: Workload, measured: Measured, *, resolution: float = 1.0) -> IntArray:
    """Some tables of a workload as integers, for the store, int64.

    Their number, their positions in the workload, and the values in units of ``resolution``.
    """
    positions = [workload.place[marginal] for marginal in measured.workload.marginals]
    missing = np.isnan(measured.values)
    values = np.rint(np.where(missing, 0.0, measured.values) / resolution).astype(np.int64)
    values[missing] = _NOT_MEASURED
    return np.concatenate([[len(positions)], positions, values]).astype(np.int64)


def unpack_tables(released: IntArray, *, resolution: float = 1.0) -> tuple[list[int], FloatArray]:
    """Positions of the tables, and their values, float64."""
    number = int(released[0])
    values = released[number + 1 :]
    return released[1 : number + 1].tolist(), np.where(values == _NOT_MEASURED, np.nan, values * resolution)


def fingerprint_of(facts: list[Any]) -> str:
    """Hash of numbers and texts that a running stream may not change: SHA-256, hexadecimal."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
