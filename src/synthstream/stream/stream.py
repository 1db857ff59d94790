"""The stream: encode -> count -> step -> commit -> publish. Thin on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Self

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig, load
from synthstream.counts import Sums
from synthstream.environment import REAL, Env
from synthstream.errors import MirrorError, NotReleased, StateCorrupt, StateError, TickNotOver, discreet
from synthstream.ingest.corrections import Corrections
from synthstream.ingest.counting import CountsByTick, PrivateRows
from synthstream.ingest.intake import Elsewhere, Intake
from synthstream.kernel.counters.base import refuse_beyond
from synthstream.kernel.gate import Gate, is_secure
from synthstream.measured import stamped
from synthstream.publish.copies import Copies
from synthstream.publish.folder import ParquetSink
from synthstream.publish.outlets import simulated, sink_of
from synthstream.publish.windows import window
from synthstream.release.display import card_of_stream
from synthstream.release.release import Release
from synthstream.release.rows import Model
from synthstream.release.window import Moment, PointWindow, Window, moment_of
from synthstream.schema.clock import due
from synthstream.schema.coercion import Frame
from synthstream.state.folder import failed
from synthstream.state.journal import JournalGate
from synthstream.state.turns import Turns, alone, refused
from synthstream.stream import opening
from synthstream.stream.following import Asked, follow, run
from synthstream.synthesizers.contract import Models


def open(  # noqa: A001 - public
    path: str | Path, *, simulate: int | None = None, unchecked: bool = False, begin: bool = True
) -> Stream:
    """Open the stream that a ``stream.toml`` describes; resume it where it stopped. All else is as in :class:`Stream`.

    Example:
        >>> with synthstream.open("stream.toml") as stream:
        ...     [release.tick for release in stream.run()]
        [0, 1, 2, 3]
    """
    return Stream(path, simulate=simulate, unchecked=unchecked, begin=begin)


class Stream:
    """A private event stream and its releases. One process at a time may hold it open; threads of it take turns.

    Args:
        config: what to protect, count and publish; or the path of a ``stream.toml`` that says it.
        simulate: a seed. Noise is then reproducible and protects nobody: state and releases go to folders of their
            own (``...-simulated``), which only their owner can open, nothing is copied to mirrors, and everything that
            is published says NOT PRIVATE.
        gates: the source of noise for each tick; anything but the system's stamps every release as not private.
        seed: of simulated gates, if they have one: a state goes on only with its own.
        env: the world outside; tests choose another one.
        unchecked: go on although a mirror cannot be asked what it holds; manifests say so.
        begin: False for a stream that runs: in another working directory, or with another ``state``, it is refused
            (``StateError``) rather than begun for the second time, on the same events.

    Raises:
        StateLocked, StateMismatch, StateRolledBack, StateCorrupt, StateError: the state cannot be used.
        MirrorError: a mirror cannot be asked what it holds, or holds nothing any more.
        BudgetExceeded: the budget does not cover the stream. ``ConfigError``: the file is no valid configuration.

    Example:
        >>> with synthstream.Stream("stream.toml") as stream:
        ...     stream.update("trips.parquet", batch_id="january")
        ...     stream.release().rows(1000).columns
        ['zone', 'minutes']
    """

    def __init__(
        self,
        config: StreamConfig | str | Path,
        *,
        simulate: int | None = None,
        gates: Callable[[int], Gate] = opening.system_gate,
        seed: int | None = None,
        env: Env = REAL,
        unchecked: bool = False,
        begin: bool = True,
    ) -> None:
        config = load(config)
        if simulate is not None:
            config, gates, seed = simulated(config), opening.seeded_gates(simulate), simulate
        self.opened, self.closed, self.new = env.now(), 0, 0  # new: releases published since then
        self.config, self._lock = (config := opening.begun(config)), Turns()
        self._gates, self._env, self._seed = gates, env, seed
        self._secure = is_secure(gates(0))
        identity = opening.identity_of(config, secure=self._secure, seed=seed)  # raises before anything is made
        self._sink, self._copies = sink_of(config, env), Copies(config, env, unchecked=unchecked)
        opening.refuse_lost_state(config, self._sink, self._copies, seed=seed)
        if not begin:
            opening.refuse_to_begin(config)
        with discreet():
            self._store = opening.store_of(config, env, simulate=simulate)
            try:
                self._open(identity)
            except BaseException:
                self._store.close()
                raise

    __copy__ = __deepcopy__ = __reduce__ = refused

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock.here:
            self.close()

    @alone
    def close(self) -> None:
        """Let go of the state folder, and of the source. Then :func:`synthstream.releases` has releases to compare."""
        try:
            self._intake.close()
        finally:
            self._store.close()

    def _open(self, identity: Mapping[str, str]) -> None:
        if self._store.meta("config") is None:
            opening.refuse_another_run(self.config, self._store, identity, begun=False)
            self._sink.clear()
            opening.begin(self.config, self._store, identity)
        else:
            opening.refuse_other_settings(self.config, self._store, identity)
        self._builder = opening.builder_from(self.config, self._store, secure=self._secure)
        self._synthesizer = made = self._builder.newest
        self.mechanism: Any = self._synthesizer.mechanism
        first, env = self._builder.start, self._env
        self._intake = Intake(self.config, self._store, made.count, cells=made.cells, first=first, env=env)
        self._where_it_stands()
        opening.refuse_unsound(self.config, self._store, self._builder, self.closed)
        self._counter = self._store.counter()
        opening.compare_with_sink(self.config, self._store, self._sink)
        self._copies.open(self._store.head, opening.marks_of(self._store))
        self._model, self._published = self._rebuilt()
        self._publish_committed()
        self._open_tick()  # if it was half drawn, the next one

    @alone
    def update(self, rows: Frame | str | Path | PrivateRows, *, batch_id: str | None = None) -> None:
        """Count rows into the open tick, or a later one of their own time, even a successor's. Committed on return.

        Args:
            rows: a polars, pandas or pyarrow frame of declared types (of CSV: all text); a path; or rows in numbers.
            batch_id: name each batch, so that the same rows, in the same order, count once if they come again. Without,
                they count again. An id that was counted before a cut never counts again, whatever comes under it.

        Raises:
            SchemaError: a column is missing, or the clock's is of numbers. ``BatchConflict``: the id came with others.
            HorizonExhausted: no tick is left, and rows have no times of their own, so a successor cannot count them.
        """
        self._intake.update(rows, batch_id=batch_id, open_tick=self._open_tick())

    @alone
    def add(self, counts: CountsByTick, *, batch_id: str | None = None) -> None:
        """As :meth:`update`, for rows counted elsewhere by :class:`synthstream.Counting`. Committed on return.

        Raises:
            CountsMismatch: they are counts of a stream with other settings, or this stream protects persons.
        """
        self._intake.add(counts, batch_id=batch_id, open_tick=self._open_tick())

    @property
    def corrections(self) -> Corrections:
        """What is known of the source's files, and how to set right what was counted."""
        return Corrections(self.config, self._store, self._intake.forget, lock=self._lock, open_tick=self._open_tick)

    @alone
    def batches(self, prefix: str = "") -> list[str]:
        """Ids of the batches that were counted, sorted: those that begin so."""
        return self._intake.batches(prefix)

    @alone
    def ingest(
        self,
        *,
        progress: Callable[[list[Path]], Iterable[Path]] = iter,
        elsewhere: Elsewhere | None = None,
        new_files: bool = False,
        before: datetime | None = None,
    ) -> int:
        """Count every file of the configured source that was not counted before. Committed file by file.

        A file is known by its path as configured. One that is damaged, lacks a column or was changed after it was
        counted is left out, and noted in :attr:`findings`. Of a log everything is counted up to where it ends now.

        Args:
            progress: wraps the loop over all files of the source, as a progress bar does.
            elsewhere: what other machines do; files are then committed in groups.
            new_files: files that seem to be moved, or a source of another kind, hold new events. It covers what is
                new, and what is gone, now; what is moved there later is asked about again.
            before: files that appeared later, by the clock of their file system, are left for the next look.

        Returns:
            Number of files that were counted now; 0 for a log.

        Raises:
            SourceError, SchemaError: files or a log cannot be reached, or seem to be moved; a log is another.
        """
        return self._intake.ingest(
            open_tick=self._open_tick(), progress=progress, elsewhere=elsewhere, new_files=new_files, before=before
        )

    @alone
    def due(self, *, until: Moment | None = None, at: datetime | None = None) -> int:
        """Number of open ticks that may be closed ``at`` a moment, now. Raises ``TickNotOver`` if ``until`` is later.

        They ended before ``until`` (or the configured one), and ``wait`` ago at the least.
        """
        return max(0, due(self.config.clock, until=self._moment(until), now=at or self._env.now()) - self.closed)

    def _moment(self, until: Moment | None) -> datetime | None:
        return None if until is None else moment_of(until, self.config.clock)

    @alone
    def release(self, *, until: Moment | None = None) -> Release:
        """Close the open tick: committed, then published.

        Args:
            until: close none that ends later: a date or time, also as text in ISO 8601, on the clock's own wall.

        Raises:
            TickNotOver: the public clock has not reached the end of the open tick. ``HorizonExhausted``: none is left.
            MirrorError: a mirror failed, after the tick was closed and published.
            StateRolledBack: a mirror holds a release that this state did not make.
        """
        refuse_beyond(self.config.clock.horizon, self.closed)
        if self.due(until=until) == 0:
            raise TickNotOver(self.config.clock.why_open(self.closed, until=self._moment(until)))
        self._publish_committed()  # one may be left over from a sink that failed
        self._commit(self._gates(self.closed))
        self._publish_committed()
        self.publish_copies()
        return self._newest()

    def run(self, *, until: Moment | None = None) -> Iterator[Release]:
        """Count new files, then close every tick that is due, then tell of findings: as it is iterated, in a loop."""
        return Asked(run(self, until=until))

    @property
    def findings(self) -> dict[Path, str]:
        """Files that :meth:`ingest` left out when it last looked, and why. Never publish it."""
        return self._intake.findings

    @alone
    def publish_copies(self) -> int:
        """Copy what is published to the mirrors of the configuration (``[[mirror]]``), as far as they lack it.

        Closing a tick does it too. After a mirror has failed, this goes on where it stopped. Returns how many it made.

        Raises:
            MirrorError: a mirror cannot be used. What is published stays published.
            StateRolledBack: a mirror holds a release of another state. Nothing more is drawn.
        """
        return self._copies.publish(self._sink) if isinstance(self._sink, ParquetSink) else 0

    def follow(
        self,
        *,
        until: Moment | None = None,
        poll: float = 5.0,
        rest: Callable[[float], object] = sleep,
        failed: Callable[[MirrorError], None] | None = None,
        since: datetime | None = None,
    ) -> Iterator[Release]:
        """Count what comes, and close each tick when it is over. See :func:`synthstream.stream.following.follow`."""
        end = self._moment(until)
        return Asked(follow(self, now=self._env.now, until=end, poll=poll, rest=rest, failed=failed, since=since))

    def _open_tick(self) -> int:
        """The tick that counts go to. One of which some answers were drawn is closed: its counts must not change."""
        if self._store.half_drawn(self.closed):
            self._commit(self._gates(self.closed))
            self._publish_committed()
        return self.closed

    def _commit(self, gate: Gate) -> None:
        """Draw, and write down what was drawn, in one transaction, before anyone can see it."""
        tick, unchecked = self.closed, self._copies.ask(self._store.head)
        if is_secure(gate) != self._secure:
            raise StateError("The source of noise changed between ticks; what was opened as real stays real.")
        state, self._counter = self._counter or self._store.counter(), None  # dead until the commit has happened
        if state is None or int(state.exact["t"]) != tick - self._builder.start:
            lost = "has lost the state of its counters, or holds that of another tick. No noise was drawn"
            raise StateCorrupt(f"{self.config.state} {lost}. Restore the folder whole.")
        counts, models = self._intake.pending(tick), self._models(tick - 1) or {}
        try:
            journal = JournalGate(gate, self._store, tick)
            step = partial(self._synthesizer.step, state.exact, counts, journal, self._model, models)
            after, measured, models = self._env.do("draw", step)
            with self._store.transaction("measurement"):
                self._store.append_measurement(self._builder.drawn(measured, unchecked=unchecked))
                self._store.put_counter(after)
                self._intake.drop_pending(tick)
                if models:
                    self._store.put_models(tick, dict(models))
                self._store.forget("answer", tick)
            self._counter, self.closed = Sums(after), tick + 1
            self._store.wipe()
        except BaseException as error:
            self._where_it_stands()  # the commit may have happened all the same
            if isinstance(error, OSError):
                raise failed(self.config.state, error) from error
            raise

    def _where_it_stands(self) -> None:
        """Number of closed ticks, from what was committed."""
        self.closed = 0 if (last := self._store.last()) is None else last.tick + 1

    def _publish_committed(self) -> None:
        """Publish every committed tick that has not been, in order: each starts from the rows of the one before."""
        models: Models = {}
        for tick in range(0 if self._published is None else self._published.tick + 1, self.closed):
            found = self._models(tick)
            models = self._builder.replay(tick, models) if found is None else found
            self._publish(tick, models)

    def _publish(self, tick: int, models: Models) -> None:
        model, release = self._builder.build(tick, self._model, models)
        manifest = self._sink.publish(release, key=self._store.secret)
        with self._store.transaction("publication"):
            self._store.put_population(tick, model.arrays())
            self._store.put_published(tick, manifest)
        self._model, self._published, self.new = model, replace(release), self.new + 1  # without its frames

    def _models(self, tick: int) -> Models | None:
        """What was fitted while a tick was drawn, if it is still there."""
        at, models = self._store.models() or (None, None)
        return models if at == tick else None

    def _rebuilt(self) -> tuple[Model | None, Release | None]:
        """The newest published rows and their release, from what was committed."""
        if (found := self._store.population()) is None:
            return None, None
        model = self._builder.synthesizer(found[0]).model(found[1])
        return model, self._builder.release(found[0], model)

    @property
    def last(self) -> Release | None:
        """The newest published release."""
        return self._published

    def rows(
        self, n: int | None = None, *, where: str | None = None, seed: np.random.Generator | int | None = None
    ) -> pl.DataFrame:
        """Synthetic rows of the newest release. See :meth:`Release.rows`."""
        return self._newest().rows(n, where=where, seed=seed)

    def between(self, start: Moment | int, end: Moment | int) -> Window | PointWindow:
        """See :meth:`Releases.between`."""
        return window(self.config, self._builder, start, end, newest=self._newest().tick)

    def table(self, columns: list[str] | str) -> pl.DataFrame:
        """A table of the newest release. See :meth:`Release.table`."""
        return self._newest().table(columns)

    def _newest(self) -> Release:
        if self._published is None:
            raise NotReleased("Nothing has been released yet; call release() when the first tick is over.")
        return self._published

    @alone
    def status(self) -> dict[str, Any]:
        """What was spent, how far it is, and which mirrors did not answer: may be public."""
        last = self._published
        return {
            "name": self.config.name,
            "released": 0 if last is None else last.tick + 1,
            "horizon": self.config.clock.horizon,
            "last_end": None if last is None else last.end.isoformat(),
            "head": self.config.genesis if last is None else last.head,
            "spent": [stamped(claim, secure=self._secure) for claim in self._store.ledger()],
            "secure": self._secure,
            "unchecked": list(self._copies.unchecked),
        }

    @property
    def waits(self) -> bool:
        """Whether rows of a log wait for somebody who writes: for the custodian alone."""
        return self._intake.waits

    def __repr__(self) -> str:
        return f"Stream({self.config.name!r}, in {self.config.state})"

    def _repr_html_(self) -> str:
        return card_of_stream(self.config.name, self.status)
