"""What has passed the gate, and what is published: the only types that leave the kernel."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.errors import SchemaError
from synthstream.workload import IntArray, Workload

if TYPE_CHECKING:
    from synthstream.schema import Schema

FloatArray = NDArray[np.float64]

# Stamped on everything that a test gate has touched.
NOT_PRIVATE = "NOT PRIVATE: made with simulated noise"


@dataclass(frozen=True, kw_only=True)
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
    """

    tick: int
    workload: Workload
    values: FloatArray
    variance: FloatArray
    since: IntArray = None  # type: ignore[assignment]  # filled in below, once the number of marginals is known
    order: IntArray | None = None

    def __post_init__(self) -> None:
        if self.since is None:
            object.__setattr__(self, "since", np.zeros(len(self.workload.marginals), dtype=np.int64))

    def facts(self) -> dict[str, Any]:
        """See :meth:`Reading.facts`."""
        order = {} if self.order is None else {"order": self.order.tolist()}
        return {"tick": self.tick, "tables": [self.workload.marginals, self.since.tolist()], **order}

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        """See :meth:`Reading.numbers`."""
        return self.values, self.variance

    def marginal(self, columns: Sequence[int]) -> tuple[FloatArray, float]:
        """Noisy counts of one marginal in the shape of its columns, and the standard error of each cell."""
        q = self.workload.marginals.index(tuple(columns))
        values = self.values[self.workload.offsets[q] : self.workload.offsets[q + 1]]
        return values.reshape(self.workload.shapes[q]), float(np.sqrt(self.variance[q]))


class Reading(Protocol):
    """What passed the gate at one tick, of any kind."""

    @property
    def tick(self) -> int:
        """0-based."""

    def facts(self) -> dict[str, Any]:
        """What was measured, without the values, for the hash chain."""

    def numbers(self) -> tuple[FloatArray, FloatArray]:
        """All values, and all variances, for the hash chain."""


class Model(Protocol):
    """What was fitted to measurements."""

    @property
    def number(self) -> int:
        """Number of published rows."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that makes it, for the store."""

    def moved_from(self, before: Any) -> float:
        """Share of the rows of the model before, of the same kind, that are no longer there; 0 if there were none."""


class Rows(Model, Protocol):
    """A model that is integer rows over the schema's columns."""

    @property
    def codes(self) -> NDArray[Any]:
        """Codes of the rows, shape ``(rows, columns)``."""


@dataclass(frozen=True, kw_only=True)
class Release(ABC):
    """What is published for one tick. A pure function of what was committed.

    Args:
        name: of the stream.
        schema: the columns.
        measured: what passed the gate at this tick: a :class:`Reading`.
        model: what was fitted to it, and to what was measured before: a :class:`Model`.
        start, end: the tick's span; the rows stand for all events up to ``end``.
        facts: claim and chain, as they stand in the manifest.
        secure: whether the noise came from the operating system.
        released: what was measured as the mechanism packs it, int64: enough to build this release again, and to go on
            from it if the private state is lost.
        changed: share of the rows of the release before without an equal row in this one; ``None`` for the first.
    """

    name: str
    schema: Schema
    measured: Any
    model: Any
    start: datetime
    end: datetime
    facts: Mapping[str, Any]
    secure: bool
    released: IntArray
    changed: float | None = None

    @property
    def tick(self) -> int:
        """0-based number of the tick."""
        return int(self.measured.tick)

    @property
    def head(self) -> str:
        """Head of the hash chain after this tick."""
        return str(self.facts["chain"]["head"])

    @abstractmethod
    def rows(self, n: int | None = None, *, rng: np.random.Generator | None = None) -> pl.DataFrame:
        """Synthetic rows; ``n`` of them, or all that are published. ``rng``: public randomness; left out: always the
        same.
        """

    @abstractmethod
    def table(self, columns: Sequence[str]) -> pl.DataFrame:
        """Counts over all combinations of some columns."""

    @property
    @abstractmethod
    def tables(self) -> pl.DataFrame:
        """All counts that are published beside the rows."""

    def manifest(self) -> dict[str, Any]:
        """The release described for machines; the sink adds the files' hashes."""
        facts = dict(self.facts)
        stamp: dict[str, Any] = {}
        if not self.secure:
            stamp = {"warning": NOT_PRIVATE}
            facts["claim"] = {**facts["claim"], "words": f"{NOT_PRIVATE}. With real noise: {facts['claim']['words']}"}
        return {
            **stamp,
            "format": 1,
            "name": self.name,
            "tick": self.tick,
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "rows": self.model.number,
            "changed_rows": None if self.changed is None else round(self.changed, 4),
            "schema": self.schema.hash,
            **facts,
        }


@dataclass(frozen=True, kw_only=True)
class TableRelease(Release):
    """A release of a stream of tables.

    Args:
        workload: the tables that every release of this stream holds.
        measured: the noisy counts of this tick.
        model: the rows fitted to them.
    """

    workload: Workload
    measured: Measured
    model: Rows

    def rows(self, n: int | None = None, *, rng: np.random.Generator | None = None) -> pl.DataFrame:
        """Synthetic rows.

        Args:
            n: how many; left out: the published rows, as many as the noisy total. Up to that number they are drawn
                without repetition, beyond it with. A release without rows gives none.
            rng: public randomness for the draw and for values within bins; left out: derived from the chain head,
                so that the published rows are always the same.
        """
        rng = rng or np.random.default_rng(seed_of(self.head, "rows"))
        codes = self.model.codes
        if n is not None:
            if n < 0:
                raise ValueError(f"n must be at least 0, not {n}")
            codes = codes[rng.choice(len(codes), size=n, replace=n > len(codes))] if n and len(codes) else codes[:0]
        return self.schema.decode(codes.astype(np.int32), rng)

    def table(self, columns: Sequence[str]) -> pl.DataFrame:
        """Counts over all combinations of some columns.

        Returns:
            One row per cell: the columns, ``count`` in the published rows, ``measured`` and ``stderr`` as they passed
            the gate, and ``since``, the first tick that ``measured`` counts (null if this combination of columns was
            not measured at this tick).

        Raises:
            SchemaError: a column does not exist or is named twice.
        """
        names = self.schema.names
        unknown = [name for name in columns if name not in names]
        if unknown or len(set(columns)) != len(columns):
            raise SchemaError(f"table: columns must be distinct and among {list(names)}; found {list(columns)}")
        positions = sorted(names.index(name) for name in columns)
        workload = Workload(sizes=self.schema.sizes, marginals=(tuple(positions),))
        labels = [self.schema.labels[p] for p in positions]
        grid = np.indices(workload.shapes[0]).reshape(len(positions), -1) if positions else None
        frame = pl.DataFrame(
            {names[p]: np.array(label)[grid[i]] for i, (p, label) in enumerate(zip(positions, labels, strict=True))}
            if grid is not None
            else {}
        )
        counts = {"count": pl.Series(workload.count(self.model.codes.astype(np.int32))), **self._answers(workload)}
        return frame.select(*columns).with_columns(**counts) if columns else pl.DataFrame(counts)

    @cached_property
    def tables(self) -> pl.DataFrame:
        """All tables of the stream's workload in one frame, a row per cell: see :func:`cells` and :meth:`table`."""
        count = self.workload.count(self.model.codes.astype(np.int32))
        return cells(self.schema, self.workload).with_columns(count=pl.Series(count), **self._answers(self.workload))

    def _answers(self, workload: Workload) -> dict[str, pl.Series]:
        """``measured``, ``stderr``, ``since`` over the cells of a workload; null where this tick measured nothing."""
        known = {marginal: q for q, marginal in enumerate(self.measured.workload.marginals)}
        found = [known.get(marginal, -1) for marginal in workload.marginals]
        values, stderr, since = np.full((3, workload.cells), np.nan)
        for place, q in zip(workload.offsets, found, strict=False):
            if q >= 0:
                source = self.measured.workload.slice_of(self.measured.workload.marginals[q])
                here = slice(int(place), int(place) + source.stop - source.start)
                values[here] = self.measured.values[source]
                stderr[here] = np.sqrt(self.measured.variance[q])
                since[here] = self.measured.since[q]
        series = {"measured": values, "stderr": stderr, "since": since}
        filled = {name: pl.Series(array).fill_nan(None) for name, array in series.items()}
        return filled | {"since": filled["since"].cast(pl.Int64)}


@lru_cache(maxsize=8)
def cells(schema: Schema, workload: Workload) -> pl.DataFrame:
    """One row per cell of the workload: the names and labels of its columns, null where it has fewer columns.

    Columns: ``column_1, value_1, column_2, value_2, ...`` up to the largest number of columns in a marginal.
    """
    order = max(len(marginal) for marginal in workload.marginals)
    parts: list[pl.DataFrame] = []
    for marginal, shape in zip(workload.marginals, workload.shapes, strict=True):
        length = int(np.prod(shape, dtype=np.int64))
        codes = np.indices(shape).reshape(len(shape), length)
        data: dict[str, pl.Series] = {}
        for k in range(order):
            if k < len(marginal):
                c = marginal[k]
                column = pl.Series([schema.names[c]]).new_from_index(0, length)
                value = pl.Series(schema.labels[c], dtype=pl.String).gather(codes[k])
            else:
                column = value = pl.Series([None], dtype=pl.String).new_from_index(0, length)
            data |= {f"column_{k + 1}": column, f"value_{k + 1}": value}
        parts.append(pl.DataFrame(data))
    return pl.concat(parts)


def chain_head(previous: str, *, measured: Reading, claim: Mapping[str, Any], schema: str) -> str:
    """Hash that binds a tick's measurement to all before it: SHA-256, hexadecimal.

    It covers tick, what was measured, values and variances, claim, schema and the previous head, and nothing else.
    """
    facts = json.dumps({**measured.facts(), "claim": dict(claim), "schema": schema}, sort_keys=True)
    values, variance = measured.numbers()
    digest = hashlib.sha256()
    for part in (
        previous.encode(),
        facts.encode(),
        np.ascontiguousarray(values, dtype="<f8").tobytes(),
        np.ascontiguousarray(variance, dtype="<f8").tobytes(),
    ):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def seed_of(head: str, purpose: str) -> int:
    """A public seed for post-processing, 63 bits, from a chain head."""
    digest = hashlib.sha256(f"{purpose} {head}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


__all__ = [
    "NOT_PRIVATE",
    "FloatArray",
    "IntArray",
    "Measured",
    "Model",
    "Reading",
    "Release",
    "TableRelease",
    "cells",
    "chain_head",
    "seed_of",
]
