"""The coupling test can fail: plausible bugs that tell of rows are all seen, and nothing else is."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from synthstream import Stream
from synthstream.counts import Counts
from synthstream.errors import SchemaError
from synthstream.ingest.counting import PrivateRows
from synthstream.ingest.intake import Intake
from synthstream.kernel.gate import Gate
from synthstream.release.release import Release, chain_head
from synthstream.release.tables import TableRelease
from synthstream.schema.clock import Clock
from synthstream.schema.schema import Schema
from synthstream.synthesizers.tables import Continual
from synthstream.workload import CodeArray, IntArray
from tests.rows.coupling import see
from tests.rows.streams import FILES, FRAMES, Pair, Way, frame_of_rows, random_pair

Patch = pytest.MonkeyPatch


def _counting(patch: Patch, tell: Callable[[int], object]) -> None:
    """Have something told about the number of rows, whenever some were counted."""
    honest = Intake._add

    def add(self: Intake, rows: PrivateRows, open_tick: int) -> None:
        honest(self, rows, open_tick)
        tell(len(rows.codes))

    patch.setattr(Intake, "_add", add)


def _when_opened(patch: Patch, forget: Callable[[], None]) -> None:
    """Have something forgotten whenever a stream is opened: both streams of a pair run in this process."""
    honest = Stream._open

    def opened(self: Stream, identity: Mapping[str, str]) -> None:
        forget()
        honest(self, identity)

    patch.setattr(Stream, "_open", opened)


def prints_a_count(patch: Patch) -> None:
    """Progress for the operator."""
    _counting(patch, lambda n: print(f"counted {n} rows"))


def prints_to_the_second_channel(patch: Patch) -> None:
    """The same, where errors go."""
    _counting(patch, lambda n: print("#" * n, file=sys.stderr))


def logs_a_count(patch: Patch) -> None:
    """The lowest level of all, which nobody turns on."""
    _counting(patch, lambda n: logging.getLogger("synthstream.stream.stream").debug("%d rows", n))


def tells_of_a_large_batch(patch: Patch) -> None:
    """One bit, seldom."""
    _counting(patch, lambda n: print("a large batch") if n > 6 else None)


def counts_in_the_manifest(patch: Patch) -> None:
    """A number of rows among the facts of a release."""
    seen = [0]
    _counting(patch, lambda n: seen.__setitem__(0, seen[0] + n))
    honest = Release.manifest
    _when_opened(patch, lambda: seen.__setitem__(0, 0))
    patch.setattr(Release, "manifest", lambda self: {**honest(self), "events": seen[0]})


def counts_in_the_chain(patch: Patch) -> None:
    """A row count under the hash of a release: whoever guesses it can check the guess."""
    honest, seen = chain_head, [0]
    _counting(patch, lambda n: seen.__setitem__(0, n))
    patch.setattr("synthstream.publish.building.chain_head", lambda head, **facts: honest(f"{head}{seen[0]}", **facts))


def publishes_as_many_rows_as_came(patch: Patch) -> None:
    """The size of a file is the number of events."""
    honest, seen = TableRelease.rows, [0]
    _counting(patch, lambda n: seen.__setitem__(0, n))
    patch.setattr(TableRelease, "rows", lambda self, n=None, *, seed=None: honest(self, seen[0], seed=seed))


def refuses_a_row(patch: Patch) -> None:
    """An error for a cell that is missing."""
    honest = Schema.encode

    def encode(self: Schema, frame: Any) -> CodeArray:
        codes = honest(self, frame)
        for i, column in enumerate(self.columns):
            if "missing" in column.own_cells and np.any(codes[:, i] == column.size - 1):
                raise SchemaError(f"column {column.name!r}: a cell is missing")
        return codes

    patch.setattr(Schema, "encode", encode)


def warns_of_a_time(patch: Patch) -> None:
    """A warning for a time that cannot be read."""
    honest = Clock.ticks_of

    def ticks_of(self: Clock, frame: Any) -> IntArray:
        found = honest(self, frame)
        if self.column is not None and np.any(found == -1):
            warnings.warn("some times could not be read", stacklevel=1)
        return found

    patch.setattr(Clock, "ticks_of", ticks_of)


def learns_the_domain(patch: Patch) -> None:
    """Cells that never had an event are left out of what is published."""
    seen: set[tuple[int, int]] = set()
    honest_encode, honest_tables = Schema.encode, TableRelease.tables

    def encode(self: Schema, frame: Any) -> CodeArray:
        codes = honest_encode(self, frame)
        seen.update((i, code) for row in codes.tolist() for i, code in enumerate(row))
        return codes

    def tables(self: TableRelease) -> pl.DataFrame:
        found: pl.DataFrame = honest_tables.func(self)  # type: ignore[attr-defined]
        return found.head(len(found) - sum(self.schema.sizes) + len(seen))

    _when_opened(patch, seen.clear)
    patch.setattr(Schema, "encode", encode)
    patch.setattr(TableRelease, "tables", property(tables))


def draws_for_events_alone(patch: Patch) -> None:
    """A draw more for some numbers of events."""
    honest = Continual.step

    def step(self: Continual, state: Any, counts: Counts, gate: Gate, last: Any, models: Any) -> Any:
        if np.abs(counts.numbers).sum() % 4 == 0:
            gate.laplace(np.zeros(1, dtype=np.int64), scale=1.0)
        return honest(self, state, counts, gate, last, models)

    patch.setattr(Continual, "step", step)


def widens_noise_with_events(patch: Patch) -> None:
    """A scale that follows the counts."""
    honest = Continual.step

    def step(self: Continual, state: Any, counts: Counts, gate: Gate, last: Any, models: Any) -> Any:
        gate.gaussian(np.zeros(1, dtype=np.int64), sigma=1.0 + int(np.abs(counts.numbers).sum()))
        return honest(self, state, counts, gate, last, models)

    patch.setattr(Continual, "step", step)


def publishes_beside_the_gate(patch: Patch) -> None:
    """A true count goes into what is measured."""
    honest = Continual.step

    def step(self: Continual, state: Any, counts: Counts, gate: Gate, last: Any, models: Any) -> Any:
        after, measured, more = honest(self, state, counts, gate, last, models)
        measured.values[0] = counts.numbers.sum()
        return after, measured, more

    patch.setattr(Continual, "step", step)


def leaves_with_another_code(patch: Patch) -> None:
    """An exit code that tells whether there was anything to do."""

    def tell(n: int) -> None:
        if n % 2:
            raise SystemExit(3)

    _counting(patch, tell)


LEAKS = [
    prints_a_count, prints_to_the_second_channel, logs_a_count, tells_of_a_large_batch, counts_in_the_manifest,
    counts_in_the_chain, publishes_as_many_rows_as_came, refuses_a_row, warns_of_a_time, learns_the_domain,
    draws_for_events_alone, widens_noise_with_events, publishes_beside_the_gate, leaves_with_another_code,
]  # fmt: skip


@pytest.mark.sparing(8, 8)
@pytest.mark.parametrize(
    "ways", [pytest.param(FRAMES, id="frames"), pytest.param(FILES, id="files", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_seen(
    leak: Callable[[Patch], None], ways: tuple[Way, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for seed in range(15):
        pair = random_pair("table", np.random.default_rng([5, seed]), way=ways[seed % len(ways)])
        with pytest.MonkeyPatch.context() as patch:
            leak(patch)
            leaky = see(tmp_path / "x", pair, seed, capfd)
        if leaky.differs():
            assert see(tmp_path / "x", pair, seed, capfd).differs() == []
            return
    pytest.fail("none of 15 pairs could be told apart")


def test_random_neighbours_are_neighbours() -> None:
    """They differ in one row, and often in a bad one."""
    different = 0
    for seed in range(200):
        pair = random_pair("table", np.random.default_rng(seed), way="arrow")
        sizes = [sum(map(len, batches)) for batches in (pair.one, pair.two)]
        assert abs(sizes[0] - sizes[1]) <= 1
        pairs = zip(pair.one, pair.two, strict=True)
        changed = [(a, b) for a, b in pairs if a != b]
        assert len(changed) <= 1
        for a, b in changed:
            short, long = sorted((a, b), key=len)
            if len(a) != len(b):
                assert any([*long[:i], *long[i + 1 :]] == short for i in range(len(long)))
            else:
                assert sum(x != y for x, y in zip(a, b, strict=True)) == 1
        different += bool(changed)
    assert different > 180


def test_both_streams_of_a_pair_count_what_they_are_given(tmp_path: Path) -> None:
    """Otherwise nothing could differ."""
    found = 0
    for seed in range(20):
        pair: Pair = random_pair("table", np.random.default_rng(seed), way="pandas")
        frames = [[frame_of_rows(rows, pair.columns, pair.way) for rows in side] for side in (pair.one, pair.two)]
        found += [len(frame) for frame in frames[0]] != [len(frame) for frame in frames[1]]
    assert found > 5
