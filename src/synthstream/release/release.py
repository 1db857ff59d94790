"""What has passed the gate, and what is published: the only types that leave the kernel."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.errors import SchemaError
from synthstream.measured import NOT_PRIVATE, Measured, Reading
from synthstream.release.comparing import compared
from synthstream.release.display import card
from synthstream.schema.cells import cells, grid
from synthstream.schema.clock import written
from synthstream.schema.conditions import condition, like
from synthstream.workload import FloatArray, IntArray, Workload

if TYPE_CHECKING:
    from synthstream.schema.schema import Schema


class Model(Protocol):
    """What was fitted to measurements."""

    @property
    def number(self) -> int:
        """Number of published rows."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that makes it, for the store."""

    def moved_from(self, before: Any) -> float:
        """Share of the rows of the model before, of the same kind, that are no longer there; 0 if there were none."""


class RowModel(Model, Protocol):
    """A model that is integer rows over the schema's columns."""

    @property
    def codes(self) -> NDArray[Any]:
        """Codes of the rows, shape ``(rows, columns)``."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Release(ABC):
    """What is published for one tick. A pure function of what was committed.

    In a notebook it shows itself as a card.

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
        files: reads one of the release's files by its name, where it is read from what was published; rows and tables
            are then what stands there.
        covariance: see :meth:`synthstream.publish.building.Builder.covariance`; ``None`` for a stream of points.
        carried: a release from before a cut over the columns of this one; ``None`` if there was no cut.
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
    files: Callable[[str], pl.DataFrame] | None = None
    covariance: Callable[[int, int], FloatArray] | None = None
    carried: Callable[[Release], Release] | None = None

    def __repr__(self) -> str:
        stamp = "" if self.secure else f", {NOT_PRIVATE}"
        return f"{type(self).__name__}({self.name!r}, {self.about}, {self.model.number:,} rows{stamp})"

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return card(self)

    @property
    def about(self) -> str:
        """Which events the rows stand for, in a few words."""
        return f"tick {self.tick}, events before {written(self.end)}"

    @property
    def tick(self) -> int:
        """0-based number of the tick."""
        return int(self.measured.tick)

    @property
    def head(self) -> str:
        """Head of the hash chain after this tick."""
        return str(self.facts["chain"]["head"])

    def rows(
        self, n: int | None = None, *, where: str | None = None, rng: np.random.Generator | None = None
    ) -> pl.DataFrame:
        """Synthetic rows.

        Args:
            n: how many; left out: all that are published, or all of them that satisfy ``where``. Up to that number
                they are drawn without repetition, beyond it with; of points, new ones are drawn as long as there is
                neither ``where`` nor a file to read. If there are none to draw from, the answer is empty.
            where: a condition on their columns: see :func:`synthstream.schema.conditions.condition`.
            rng: public randomness; left out: derived from the chain head, so that the rows are always the same.

        Raises:
            SchemaError: the condition cannot be read, or names a column that is not there.
            SinkError: the release is read from a file that is not what was published, or that was dropped.
            TypeError, ValueError: ``n`` is no whole number, or is negative.

        Example: ``release.rows(1000, where="age >= 60 AND zone = 'A'")``
        """
        if n is not None and not isinstance(n, int | np.integer):
            raise TypeError(f"rows: n must be a whole number of rows, not {n!r}; a condition goes to where=...")
        if n is not None and n < 0:
            raise ValueError(f"n must be at least 0, not {n}")
        rng = rng or self._rng()
        if where is None and self.files is None:
            return self._made(n, rng)
        rows = self._made(None, self._rng()) if self.files is None else self.files("rows.parquet")
        if where is not None:
            rows = rows.filter(condition(where, rows.schema))
        if n is None:
            return rows
        return rows[rng.choice(rows.height, size=n, replace=n > rows.height)] if n and rows.height else rows.clear()

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(seed_of(self.head, "rows"))

    @abstractmethod
    def _made(self, n: int | None, rng: np.random.Generator) -> pl.DataFrame:
        """Rows of the model; ``n`` of them, or as many as it has."""

    def compare(self, earlier: Release, columns: Sequence[str] | None = None) -> pl.DataFrame:  # noqa: ARG002
        """What has changed since an earlier release. Streams of points have no tables to compare."""
        raise SchemaError(
            "compare: a stream of points has no tables; ask both releases for mass(lower, upper) of the same box"
        )

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


@dataclass(frozen=True, kw_only=True, repr=False)
class TableRelease(Release):
    """A release of a stream of tables.

    Args:
        workload: the tables that every release of this stream holds.
        measured: the noisy counts of this tick.
        model: the rows fitted to them.
    """

    workload: Workload
    measured: Measured
    model: RowModel

    # Whether its tables count all events up to its tick; those of a window count what lies in it.
    running: ClassVar[bool] = True

    def _made(self, n: int | None, rng: np.random.Generator) -> pl.DataFrame:
        codes = self.model.codes
        if n is not None:
            codes = codes[rng.choice(len(codes), size=n, replace=n > len(codes))] if n and len(codes) else codes[:0]
        return self.schema.decode(codes.astype(np.int32), rng)

    def table(self, columns: Sequence[str]) -> pl.DataFrame:
        """Counts over all combinations of some columns.

        Returns:
            One row per cell: the columns, as they were named; ``count`` in the published rows and ``share`` of them
            (null if there are none); ``measured`` and ``stderr``, what passed the gate and its standard error; and
            ``since``, the first tick that ``measured`` counts. The last three are null if this combination of columns
            was not measured at this tick. Where larger tables are measured now and then, ``measured_at`` is the last
            tick that ``measured`` counts.

        Raises:
            SchemaError: a column does not exist or is named twice.

        Example: ``release.table(["zone", "hour"]).sort("count", descending=True)``
        """
        workload = self.marginal_of(columns)
        count = self._count(workload)
        share = (count / max(int(count.sum()), 1)).set(pl.Series([int(count.sum()) == 0]), None)
        counts = {"count": count, "share": share, **self._answers(workload)}
        return (
            grid(self.schema, workload.marginals[0]).select(*columns).with_columns(**counts)
            if columns
            else pl.DataFrame(counts)
        )

    def marginal_of(self, columns: Sequence[str]) -> Workload:
        """The table of some columns, alone. Raises ``SchemaError`` if one does not exist or is named twice."""
        names = self.schema.names
        unknown = [name for name in columns if name not in names]
        if isinstance(columns, str) or unknown or len(set(columns)) != len(columns):
            near = "" if isinstance(columns, str) else "".join(like(name, names) for name in unknown[:1])
            raise SchemaError(
                f"table: found {columns!r}.{near} columns must be a list of distinct ones among {list(names)}"
            )
        positions = tuple(sorted(names.index(name) for name in columns))
        return Workload(sizes=self.schema.sizes, marginals=(positions,))

    def _count(self, workload: Workload) -> pl.Series:
        """Counts of a workload of one table; as published, where it was."""
        if self.files is not None and workload.marginals[0] in self.workload.marginals:
            place = self.workload.slice_of(workload.marginals[0])
            return self.tables["count"][place]
        return pl.Series(workload.count(self.model.codes.astype(np.int32)))

    def compare(self, earlier: Release, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """What has changed since an earlier release of the stream.

        Args:
            earlier: a release of the same stream, or a window of it if this is a window.
            columns: of the table to compare; left out: all tables that are published.

        Returns:
            One row per cell: its columns (of all tables: as in :attr:`tables`); ``then`` and ``now``, counts in the
            published rows, and their ``difference``; ``measured``, the difference of what passed the gate, its
            ``stderr`` and ``z``, one divided by the other; ``beyond_noise``, whether z is beyond 3 either way. The last
            four are null where it was not measured both times as a running count. Largest z first.

            Noise that both releases share is in neither's way: ``stderr`` comes from the covariance of the counters.

        Raises:
            SchemaError: they are not of one stream, or not in this order, or a column does not exist.

        Example: ``release.compare(releases.at("2015-01-01"), ["zone"])``
        """
        return compared(self, self._comparable(earlier), columns)

    def _comparable(self, then: Release) -> TableRelease:
        if not isinstance(then, Release):
            raise TypeError(f"compare: takes an earlier release, not {type(then).__name__}")
        if not isinstance(then, TableRelease) or type(then) is not type(self):
            raise SchemaError(
                f"compare: a {type(self).__name__} is compared with another one of its stream, not with a "
                f"{type(then).__name__}"
            )
        cut = len(then.facts.get("cuts", ()))
        if self.name == then.name and len(self.facts.get("cuts", ())) < cut:
            raise self._not_earlier(then)
        one = self.name == then.name and self._began_as(then, cut)
        if one and len(self.facts.get("cuts", ())) > cut and self.carried is not None:
            then = self.carried(then)
        if not one or not isinstance(then, TableRelease) or self.schema.hash != then.schema.hash:
            raise SchemaError(f"compare: {self.name!r} and {then.name!r} are not releases of one stream")
        if then.tick >= self.tick:
            raise self._not_earlier(then)
        return then

    def _not_earlier(self, then: Release) -> SchemaError:
        return SchemaError(
            f"compare: tick {then.tick} is not earlier than tick {self.tick}; ask the later one, as in "
            "later.compare(earlier)"
        )

    def _began_as(self, then: Release, cuts: int) -> bool:
        """Whether a release of as many cuts, and of an earlier tick, may be of this stream, as far as claims tell."""
        ours, theirs = list(self.facts.get("cuts", ())), _promise(then.facts)
        if len(ours) == cuts:
            return ours == list(then.facts.get("cuts", ())) and _promise(self.facts) == theirs
        parts = self.facts["claim"]["parts"][: cuts + 1]
        mine = parts if cuts else [{"epsilon": parts[0]["epsilon"], "delta": parts[0]["delta"]}]
        told = theirs["parts"] if cuts else [{"epsilon": theirs["epsilon"], "delta": theirs["delta"]}]
        return bool(ours[cuts]["schema"] == then.schema.hash and mine == told)

    @cached_property
    def tables(self) -> pl.DataFrame:
        """All tables of the stream's workload in one frame, a row per cell: see :func:`cells` and :meth:`table`."""
        if self.files is not None:
            return self.files("tables.parquet")
        count = self.workload.count(self.model.codes.astype(np.int32))
        return cells(self.schema, self.workload).with_columns(count=pl.Series(count), **self._answers(self.workload))

    def _answers(self, workload: Workload) -> dict[str, pl.Series]:
        """``measured``, ``stderr``, ``since`` over the cells of a workload; null where nothing is known.

        ``measured_at`` too, where not all is measured at one tick.
        """
        known = {marginal: q for q, marginal in enumerate(self.measured.workload.marginals)}
        found = [known.get(marginal, -1) for marginal in workload.marginals]
        values, stderr, since, at = np.full((4, workload.cells), np.nan)
        measured_at, variance = self.measured.measured_at, self.measured.cell_variance()
        for place, q in zip(workload.offsets, found, strict=False):
            if q >= 0:
                source = self.measured.workload.slice_of(self.measured.workload.marginals[q])
                here = slice(int(place), int(place) + source.stop - source.start)
                values[here] = self.measured.values[source]
                stderr[here] = np.sqrt(variance[source])
                since[here] = self.measured.since[q]
                at[here] = np.nan if measured_at is None else measured_at[q]
        ticks = {"since": since} | ({} if measured_at is None else {"measured_at": at})
        filled = {
            name: pl.Series(array).fill_nan(None) for name, array in {"measured": values, "stderr": stderr}.items()
        }
        return filled | {name: pl.Series(array).fill_nan(None).cast(pl.Int64) for name, array in ticks.items()}


def _promise(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the claim. A later segment of the same stream rests on one theorem more."""
    return {key: value for key, value in facts["claim"].items() if key not in ("words", "theorems", "trusts")}


def chain_head(
    previous: str, *, measured: Reading, claim: Mapping[str, Any], schema: str, unchecked: Sequence[str] = ()
) -> str:
    """Hash that binds a tick's measurement to all before it: SHA-256, hexadecimal, over its arguments alone."""
    told = {"claim": dict(claim), "schema": schema, **({"unchecked": list(unchecked)} if unchecked else {})}
    facts = json.dumps({**measured.facts(), **told}, sort_keys=True)
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
