"""Bugs of streams: what else can be seen, when it can be seen, and what is drawn twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import polars as pl

from synthstream import Stream
from synthstream.errors import SchemaError
from synthstream.ingest import counting
from synthstream.ingest.counting import PrivateRows
from synthstream.ingest.intake import Intake
from synthstream.kernel.gate import SystemGate
from synthstream.measured import Committed
from synthstream.release.release import Release
from synthstream.state import database
from synthstream.state.store import Store
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.audit.broken import Patch, seen_by


@seen_by("coupling")
def the_number_of_rows_in_the_manifest(patch: Patch) -> None:
    """The exact number of rows is published with each release."""
    came: list[int] = []
    add, manifest, opened = Intake._add, Release.manifest, Stream._open

    def counted(self: Intake, rows: PrivateRows, *more: Any) -> None:
        came.append(len(rows.codes))
        add(self, rows, *more)

    def fresh(self: Stream, *more: Any) -> None:
        came.clear()
        opened(self, *more)

    patch.setattr(Stream, "_open", fresh)
    patch.setattr(Intake, "_add", counted)
    patch.setattr(Release, "manifest", lambda self: {**manifest(self), "counted": sum(came)})


@seen_by("coupling")
def a_bad_row_is_an_error(patch: Patch) -> None:
    """A value outside of its list stops the run, and the message names it."""
    honest = counting.encode

    def broken(config: Any, frame: Any) -> PrivateRows:
        wards = set(pl.DataFrame(frame)["ward"].drop_nulls()) - {"A", "B", "C"}
        if wards:
            raise SchemaError(f"ward: {sorted(wards)[0][:20]!r} is not in the list")
        return honest(config, frame)

    patch.setattr("synthstream.ingest.intake.encode", broken)


@seen_by("coupling")
def a_warning_for_a_late_row(patch: Patch) -> None:
    """The operator is told of rows whose time cannot be right."""
    honest = Intake._add

    def broken(self: Intake, rows: PrivateRows, *more: Any) -> None:
        if (rows.ticks > 5).any():
            print("rows after the end", file=sys.stderr)
        honest(self, rows, *more)

    patch.setattr(Intake, "_add", broken)


@seen_by("clockwork")
def a_tick_closed_by_a_count(patch: Patch) -> None:
    """A tick is also due when a hundred rows wait for it."""
    honest = Stream.due

    def broken(self: Stream, **until: Any) -> int:
        return honest(self, **until) + int(self._store.pending(self.closed).numbers.sum() > 100)

    patch.setattr(Stream, "due", broken)


@seen_by("clockwork")
def an_empty_tick_is_left_out(patch: Patch) -> None:
    """Nothing came, so nothing is released: that nothing came is told exactly."""

    def broken(self: Stream, **until: Any) -> Iterator[Release]:
        self.ingest()
        for _ in range(self.due(**until)):
            if self._store.pending(self.closed).cells.size == 0:
                return
            yield self.release(**until)

    patch.setattr(Stream, "run", broken)


@seen_by("clockwork")
def a_late_row_opens_its_tick_again(patch: Patch) -> None:
    """A row of a tick that is closed gets this tick a second release."""
    honest = Stream.update

    def broken(self: Stream, rows: Any, **batch: Any) -> None:
        honest(self, rows, **batch)
        for tick in {int(t) for t in counting.encode(self.config, rows).ticks if 0 <= t < self.closed}:
            gate = self._gates(tick)
            counts = self._store.pending(self.closed)
            _, again, _ = self._synthesizer.step(self.mechanism.init(), counts, gate, self._model, {})
            place = self.config.base / "releases" / f"{tick:06d}" / "corrected.json"
            place.write_text(json.dumps(again.values.tolist()))

    patch.setattr(Stream, "update", broken)


@seen_by("redraws")
def published_before_it_is_committed(patch: Patch) -> None:
    """Noisy counts can be seen before they are committed; the process may end before it knows that it drew them."""
    honest = Store.append_measurement

    def broken(self: Store, committed: Committed) -> None:
        honest(self, committed)
        preview = self.folder.parent / "releases" / f"preview-{committed.tick}.json"
        preview.parent.mkdir(exist_ok=True)
        preview.write_text(json.dumps(committed.released.tolist()))

    patch.setattr(Store, "append_measurement", broken)


@seen_by("redraws")
def committed_with_the_publication(patch: Patch) -> None:
    """The measurement is kept in memory until its release is out: a process that ends between the two draws again."""
    waiting: dict[int, Any] = {}
    append, measurement, last, put = Store.append_measurement, Store.measurement, Store.last, Store.put_population
    counter, drop = Store.put_counter, Store.drop_pending

    def flush(self: Store, tick: int, arrays: Any) -> None:
        late = waiting.pop(id(self), None)
        if late is not None:
            committed, state = late
            append(self, committed)
            counter(self, state)
            drop(self, committed.tick)
        put(self, tick, arrays)

    def held(self: Store) -> Any:
        late = waiting.get(id(self))
        return None if late is None else late[0]

    def keep(self: Store, state: Any) -> None:
        if id(self) in waiting:
            waiting[id(self)] = (waiting[id(self)][0], state)
        else:
            counter(self, state)

    patch.setattr(Store, "append_measurement", lambda self, c: waiting.__setitem__(id(self), (c, {})))
    patch.setattr(Store, "put_counter", keep)
    patch.setattr(Store, "drop_pending", lambda self, tick: None)
    patch.setattr(Store, "last", lambda self: held(self) or last(self))
    patch.setattr(
        Store,
        "measurement",
        lambda self, tick: held(self) if held(self) and held(self).tick == tick else measurement(self, tick),
    )
    patch.setattr(Store, "put_population", flush)


@seen_by("redraws")
def done_only_when_published(patch: Patch) -> None:
    """A tick that is committed but not yet published counts as open after a crash, and is drawn again."""
    honest = Stream._open

    def reopened(self: Stream, *more: Any) -> None:
        found, last = self._store.population(), self._store.last()
        if last is not None and (found is None or found[0] < last.tick):
            with self._store.transaction("again"):
                self._store.db.execute("DROP TRIGGER measurement_delete")
                self._store.db.execute("DELETE FROM measurement WHERE tick = ?", (last.tick,))
                if (state := self._store.counter()) is not None:
                    self._store.put_counter({**state.exact, "t": state.exact["t"] - 1})
        honest(self, *more)

    patch.setattr(Stream, "_open", reopened)


@seen_by("interrupted ticks")
def an_interrupted_tick_begins_anew(patch: Patch) -> None:
    """Answers that were drawn before the process ended are forgotten, and drawn again."""

    def put(self: Store, tick: int, call: int, question: str, drawn: Any) -> None:
        blob = drawn.astype("<i8").tobytes()
        self._rows.put("answer", tick, call, question, self.seal(blob, f"answer {tick} {call}"))

    patch.setattr(Store, "answer", lambda self, tick, call: None)
    patch.setattr(Store, "put_answer", put)


@seen_by("durability")
def commits_that_the_disk_may_forget(patch: Patch) -> None:
    """synchronous = NORMAL: the last commits are lost when the power is, and their ticks are drawn again."""
    pragmas = [pragma.replace("synchronous = FULL", "synchronous = NORMAL") for pragma in database._DURABLE]
    patch.setattr(database, "_DURABLE", tuple(pragmas))


@seen_by("freshness")
def real_streams_with_a_seed(patch: Patch) -> None:
    """The system's gate takes its bytes from a generator that begins alike in every process."""

    patch.setattr(SystemGate, "answer", lambda self, question: SeededGate("clock").answer(question))
