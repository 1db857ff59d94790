"""What has passed the gate, and what is published: the only types that leave the kernel."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np
import polars as pl

from synthstream.errors import NotReleased, SchemaError
from synthstream.measured import NOT_PRIVATE, Reading
from synthstream.release.answers import satisfied
from synthstream.release.comparing import began_as
from synthstream.release.display import framed, shown
from synthstream.release.rows import RowModel, drawn, randomness, weight_name
from synthstream.schema.clock import written
from synthstream.schema.schema import Schema
from synthstream.workload import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
        files: reads one of the release's files by its name, where it is read from what was published; rows and tables
            are then what stands there.
        covariance: see :meth:`synthstream.publish.building.Builder.covariance`; ``None`` for a stream of points.
        carried: a release from before a cut over the columns of this one; ``None`` if there was no cut.
        counted: makes :attr:`series`; ``None`` for a stream of points, and for a window.
        since: masses of the events after an earlier tick, of a stream of points; ``None`` where they are not known.
        replicates: rows fitted again, as often as it is told: see
            :meth:`synthstream.synthesizers.contract.Synthesizer.replicates`; ``None`` for a window.
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
    counted: Callable[[], pl.DataFrame] | None = None
    since: Callable[[int], Any] | None = None
    replicates: Callable[[int], list[RowModel]] | None = None

    def __copy__(self, *_: object) -> Self:
        return self

    __deepcopy__ = __copy__  # it never changes

    def __getstate__(self) -> dict[str, Any]:
        """For another process: without what asks other ticks, which leads back to where the release was made."""
        return {name: _not_here if callable(value) and name != "files" else value for name, value in vars(self).items()}

    def __repr__(self) -> str:
        stamp = "" if self.secure else f", {NOT_PRIVATE}"
        return f"{type(self).__name__}({self.name!r}, {self.about}, {self.model.number:,} rows{stamp})"

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        body = shown(self.rows, self.model.number, self.schema)
        return framed(self.name, self.about, str(self.facts["claim"]["words"]), body=body, secure=self.secure)

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
        self, n: int | None = None, *, where: str | None = None, seed: np.random.Generator | int | None = None
    ) -> pl.DataFrame:
        """Synthetic rows.

        Args:
            n: how many; left out: all that are published, or all of them that satisfy ``where``. Up to that number
                they are drawn without repetition, beyond it with, and with a warning if there is a condition; of
                points, new ones are drawn as long as there is neither ``where`` nor a file to read. If there are none
                to draw from, the answer is empty.
            where: a condition on their columns: see :func:`synthstream.schema.conditions.condition`.
            seed: of public randomness, or a generator; left out: the rows are always the same.

        Raises:
            SchemaError: the condition cannot be read, or compares a column with what it cannot hold, or is of none.
            SinkError: the release is read from a file that is not what was published, or that was dropped.
            TypeError, ValueError: ``n`` or ``seed`` is no whole number, or is negative.

        Example: ``release.rows(1000, where="age >= 60 AND zone = 'A'")``
        """
        if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer)):
            raise TypeError(f"rows: n must be a whole number of rows, not {n!r}; a condition goes to where=...")
        if n is not None and n < 0:
            raise ValueError(f"n must be at least 0, not {n}")
        rng = None if seed is None else randomness(seed)
        if where is None and self.files is None and self.model_weights is None:
            return self._made(n, rng)
        rows, weights = self.listed
        if where is not None:
            inside = satisfied(rows, where, self.schema)
            rows, weights = rows.filter(inside), None if weights is None else weights[inside]
        if weights is not None:
            rows = rows[np.repeat(np.arange(rows.height), weights)]
        return rows if n is None else drawn(rows, n, rng or self._rng(), where=where)

    @property
    def model_weights(self) -> IntArray | None:
        """For how many events each row of the model stands; ``None``: each for one."""
        return None

    @cached_property
    def listed(self) -> tuple[pl.DataFrame, IntArray | None]:
        """All rows, and for how many events each of them stands; ``None``: each for one."""
        if self.files is None:
            return self._made(None, None), self.model_weights
        rows, name = self.files("rows.parquet"), weight_name(self.schema)
        if name not in rows.columns:
            return rows, None
        return rows.drop(name), rows[name].to_numpy()

    @property
    def published(self) -> pl.DataFrame:
        """All rows as they are published: with their weights where they stand for several events each."""
        rows, weights = self.listed
        return rows if weights is None else rows.with_columns(pl.Series(weight_name(self.schema), weights))

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(seed_of(self.head, "rows"))

    @abstractmethod
    def _made(self, n: int | None, rng: np.random.Generator | None) -> pl.DataFrame:
        """Rows of the model; ``n`` of them, or as many as it has."""

    @abstractmethod
    def compare(self, earlier: Release, columns: Sequence[str] | str | None = None) -> pl.DataFrame:
        """What has changed since an earlier release of the stream."""

    def _comparable(self, then: Release) -> Release:
        """The earlier release, over the columns of this one."""
        if not isinstance(then, Release):
            raise TypeError(f"compare: takes an earlier release, as of releases.at(...), not {type(then).__name__}")
        if type(then) is not type(self):
            mine, its = type(self).__name__, type(then).__name__
            raise SchemaError(f"compare: a {mine} is compared with another one of its stream, not with a {its}")
        ours, theirs = (len(release.facts.get("cuts", ())) for release in (self, then))
        later = self.name == then.name and ours < theirs
        one = later or (self.name == then.name and began_as(self.facts, then.facts, schema=then.schema.hash))
        earlier = self.carried(then) if one and ours > theirs and self.carried is not None else then
        if not one or not (later or self.schema.hash == earlier.schema.hash):
            what = f"compare: {self.name!r} and {then.name!r} are not releases of one stream"
            if one and ours > theirs:
                cut = self.facts["cuts"][theirs]["tick"]
                what = f"compare: settings of {self.name!r} changed at tick {cut}. Compare windows on one side of it"
            raise SchemaError(what)
        if later or then.tick >= self.tick:
            order = f"tick {then.tick} is not earlier than tick {self.tick}"
            raise SchemaError(f"compare: {order}; ask the later one, as in later.compare(earlier)")
        return earlier

    @abstractmethod
    def table(
        self, columns: Sequence[str] | str, *, where: str | None = None, model_error: bool = False
    ) -> pl.DataFrame:
        """Counts over all combinations of some columns."""

    @property
    @abstractmethod
    def tables(self) -> pl.DataFrame:
        """All counts that are published beside the rows."""

    @cached_property
    def series(self) -> pl.DataFrame:
        """The total and all tables of one column, as they were counted in its tick, and up to its end.

        ``tick``; ``start`` and ``end`` of what is counted, on the stream's own wall clock; ``column`` and ``value``,
        null for the total; ``measured`` and ``stderr``, null if not known; ``span``: ``"tick"`` for what was *counted
        in* the tick, with what came late, or ``"running"``. With delta = 0 tables of one column are measured once an
        epoch: such a line begins with the epoch, or its part, and ticks within it have none.

        Raises ``SchemaError`` for streams of points and windows, which have none.
        """
        if self.counted is None:
            raise SchemaError("series: streams of points have no tables, and a window is no tick")
        return self.counted() if self.files is None else self.files("series.parquet")

    def _dates(self) -> dict[str, pl.Expr]:
        """Columns of the tables: the span of the tick, on the stream's own wall clock."""
        moments = {"start": self.start, "end": self.end}
        return {name: pl.lit(at.replace(tzinfo=None), dtype=pl.Datetime("us")) for name, at in moments.items()}

    def manifest(self) -> dict[str, Any]:
        """The release described for machines; the sink adds the files' hashes."""
        return {
            **({} if self.secure else {"warning": NOT_PRIVATE}),
            "format": 1,
            "name": self.name,
            "tick": self.tick,
            "start": self.start.isoformat(),
            "end": self.end.isoformat(),
            "rows": self.model.number,
            **({} if self.model_weights is None else {"population": len(self.model_weights)}),
            "changed_rows": None if self.changed is None else round(self.changed, 4),
            "schema": self.schema.hash,
            **self.facts,
        }


def _not_here(*_: object, **__: object) -> NoReturn:
    raise NotReleased(
        "This release came from another process, with its rows and tables alone. Ask the one there about other ticks; "
        'or read it here: synthstream.releases("stream.toml")'
    )


def chain_head(
    previous: str, *, measured: Reading, claim: Mapping[str, Any], schema: str, circumstances: Mapping[str, Any]
) -> str:
    """Hash that binds a tick's measurement to all before it: SHA-256, hexadecimal, over its arguments alone."""
    told = {"claim": dict(claim), "schema": schema, **circumstances}
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
    return int.from_bytes(hashlib.sha256(f"{purpose} {head}".encode()).digest()[:8], "big") >> 1
