"""The stream: encode -> count -> step -> commit -> publish. Thin on purpose."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from synthstream.assembly import claim_facts, genesis, simulated, sink_of, synthesizer_of
from synthstream.config import StreamConfig, load
from synthstream.counting import Rows, columns_of, counted, encode
from synthstream.errors import BatchConflict, SourceError, StateCorrupt, StateError, TickNotOver
from synthstream.io.sources import FileSource
from synthstream.io.store import Committed, Store
from synthstream.journal import JournalGate
from synthstream.kernel.counters.base import refuse_beyond
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.kernel.ledger import Ledger
from synthstream.opening import compare_with_sink, refuse_lost_state, refuse_other_settings
from synthstream.reading import Frame
from synthstream.release import Model, Reading, Release, chain_head, seed_of
from synthstream.synthesizer import Models
from synthstream.testing.gates import SeededGate

_CHUNK_ROWS = 250_000


def open(path: str | Path, *, simulate: int | None = None) -> Stream:  # noqa: A001 - the public name is synthstream.open
    """Open the stream that a configuration file describes; resume it where it stopped.

    Args:
        path: a ``stream.toml``.
        simulate: a seed. Noise is then reproducible and protects nobody: state and releases go to folders of their
            own (``...-simulated``), and everything that is published says so.

    Raises:
        ConfigError: the file is not a valid configuration.
        StateError: the state folder cannot be used (see :mod:`synthstream.errors`).
    """
    config = load(Path(path))
    if simulate is None:
        return Stream(config)
    return Stream(simulated(config), gates=lambda tick: SeededGate(f"{simulate}/{tick}"), seed=simulate)


def _system_gate(tick: int) -> Gate:
    return SystemGate()


def _machine_clock() -> datetime:
    return datetime.now(UTC)


class Stream:
    """A private event stream and its releases. One process at a time may hold it open.

    Args:
        config: what to protect, count and publish.
        gates: the source of noise for each tick; anything but the system's stamps every release as not private.
        seed: of simulated gates, if they have one: a state goes on only with its own.
        now: the machine's clock.

    Raises:
        StateLocked, StateMismatch, StateRolledBack, StateCorrupt, StateError: the state cannot be used.
        BudgetExceeded: the budget does not cover the stream.
    """

    def __init__(
        self,
        config: StreamConfig,
        *,
        gates: Callable[[int], Gate] = _system_gate,
        seed: int | None = None,
        now: Callable[[], datetime] = _machine_clock,
    ) -> None:
        self.config = config
        self._synthesizer = synthesizer_of(config)
        self.mechanism: Any = self._synthesizer.mechanism
        self._claim = claim_facts(self.mechanism.claim(), config.privacy.budget)
        self._gates, self._now, self._seed = gates, now, seed
        self.closed: int
        self.new = 0  # releases published since it was opened
        self._head: str
        self._secure = gates(0).secure
        self._sink = sink_of(config)
        refuse_lost_state(config, self._sink)
        self._store = Store(config.state)
        try:
            self._open()
        except BaseException:
            self._store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the state folder."""
        self._store.close()

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        identity = {
            "config": self.config.public_json(),
            "secure": str(self._secure),
            "seed": str(self._seed),
            "mechanism": self.mechanism.fingerprint(),
        }
        if self._store.meta("config") is None:
            ledger = Ledger(budget=self.config.privacy.budget).charge(self.mechanism.claim())
            with self._store.transaction():
                for key, value in identity.items():
                    self._store.put_meta(key, value)
                for _ in ledger.claims:
                    self._store.append_ledger(self._claim)
                self._store.put_counter(self.mechanism.init())
        else:
            refuse_other_settings(self.config, self._store, identity)
            if self._store.ledger() != [self._claim]:
                raise StateCorrupt(f"{self.config.state}: its ledger does not match the claim of this configuration.")
        self._where_it_stands()
        self._counter = self._store.counter()
        compare_with_sink(self._store, self._sink)
        self._model, self._published = self._rebuilt()
        self._publish_committed()
        self._finish_half_drawn()

    # -- counting -----------------------------------------------------------------------------------------------

    def update(self, rows: Frame | str | Path, *, batch_id: str | None = None) -> None:
        """Count rows into the open tick, or the later tick of their own time. Committed on return.

        Args:
            rows: a polars, pandas or pyarrow frame, or the path of a Parquet or CSV file.
            batch_id: the same id and content again is a no-op. Without an id, rows count each time they come.

        Raises:
            SchemaError: a column is missing.
            BatchConflict: the id came before with other content; nothing was counted.
        """
        self._finish_half_drawn()
        if isinstance(rows, str | Path):
            path, columns = Path(rows).absolute(), columns_of(self.config)
            source = FileSource(kind="csv" if path.suffix == ".csv" else "parquet", path=path, columns=columns)
            chunks: Iterator[Frame] = source.read(path, chunk_rows=_CHUNK_ROWS)
        else:
            chunks = iter([rows])
        encoded = [encode(self.config, chunk) for chunk in chunks]
        if batch_id is None:
            with self._store.transaction():
                self._add(iter(encoded))
            return
        mac = self._mac(*(part for rows_of_chunk in encoded for part in rows_of_chunk.content()))
        item = f"batch {batch_id}"
        known = self._store.ingested(item)
        if known is None:
            with self._store.transaction():
                self._add(iter(encoded))
                self._store.put_ingested(item, mac)
        elif known != mac:
            raise BatchConflict(
                f"batch_id {batch_id!r} was counted before with other content. Nothing was counted now; give new rows "
                "a new id."
            )

    def ingest(self) -> int:
        """Count every file of the configured source that was not counted before. Committed file by file.

        The same content under another name counts once, and nothing tells: it depends on every row of both files.

        Returns:
            Number of files with a name that was new.

        Raises:
            SourceError: a file is missing, unreadable, or not what it was when it was counted.
            SchemaError: a column is missing.
        """
        config = self.config.source
        if config is None:
            return 0
        self._finish_half_drawn()
        new = 0
        source = FileSource(kind=config.kind, path=config.path, columns=columns_of(self.config))
        for path in source.files():
            item = f"file {_relative(path, self.config.base)}"
            mac = self._mac(source.fingerprint(path).encode())
            known = self._store.ingested(item)
            if known is None:
                with self._store.transaction():
                    if self._store.ingested(f"content {mac}") is None:  # not counted under another name
                        chunks = source.read(path, chunk_rows=_CHUNK_ROWS)
                        self._add(encode(self.config, chunk) for chunk in chunks)
                        self._store.put_ingested(f"content {mac}", mac)
                    self._store.put_ingested(item, mac)
                new += 1
            elif known != mac:
                raise SourceError(
                    f"{path} is not what it was when it was counted. Rows that were counted cannot be taken back; put "
                    "the file back as it was, and new rows into a new file."
                )
        return new

    def _add(self, encoded: Iterator[Rows]) -> None:
        for rows in encoded:
            for tick, counts in counted(rows, count=self._synthesizer.count, open_tick=self.closed):
                self._store.add_pending(tick, counts)

    def _mac(self, *parts: bytes) -> str:
        """Keyed fingerprint of private content: tells equal from different, and nothing else to who lacks the key."""
        secret = bytes.fromhex(self._store.meta("secret") or "")
        mac = hmac.new(secret, digestmod=hashlib.sha256)
        for part in parts:
            mac.update(len(part).to_bytes(8, "big") + part)
        return mac.hexdigest()

    # -- releasing ----------------------------------------------------------------------------------------------

    def due(self, *, until: datetime | None = None) -> int:
        """Number of ticks that ended before ``until`` (or the configured ``until``, or now) and are still open.

        Raises:
            TickNotOver: ``until`` lies in the future of the machine's clock. A configured ``until`` may.
        """
        now = self._now()
        if until is not None and not isinstance(until, datetime):
            raise TypeError(f"until: must be a datetime, not {type(until).__name__}; without a time zone it is UTC")
        until = until.replace(tzinfo=UTC) if until is not None and until.tzinfo is None else until
        if until is not None and until > now:
            raise TickNotOver(f"until = {until.isoformat()} lies in the future; a tick is closed when it is over.")
        moment = until or min(self.config.clock.latest(now), now)
        return max(0, self.config.clock.ended_before(moment) - self.closed)

    def release(self, *, until: datetime | None = None) -> Release:
        """Close the open tick: committed, then published.

        Raises:
            TickNotOver: the public clock has not reached the end of the open tick.
            HorizonExhausted: all ticks have been released.
        """
        refuse_beyond(self.config.clock.horizon, self.closed)
        if self.due(until=until) == 0:
            raise TickNotOver(
                f"Tick {self.closed} ends at {self.config.clock.boundary(self.closed + 1).isoformat()}. A tick is "
                "closed by the clock alone; wait, or say until=."
            )
        self._publish_committed()  # one may be left over from a sink that failed
        self._commit(self._gates(self.closed))
        self._publish_committed()
        return self._newest()

    def run(self, *, until: datetime | None = None) -> Iterator[Release]:
        """Count new files of the source, then close every tick that is due, one by one."""
        self.ingest()
        for _ in range(self.due(until=until)):
            yield self.release(until=until)

    def _finish_half_drawn(self) -> None:
        """Close a tick of which some answers were drawn and the rest was not: its counts must not change any more."""
        if self._store.half_drawn(self.closed):
            self._commit(self._gates(self.closed))
            self._publish_committed()

    def _commit(self, gate: Gate) -> None:
        """Draw, and write down what was drawn, in one transaction, before anyone can see it."""
        tick = self.closed
        if gate.secure != self._secure:
            raise StateError("The source of noise changed between ticks; what was opened as real stays real.")
        state = self._counter if self._counter is not None else self._store.counter()
        self._counter = None  # dead until the commit has happened
        if state is None or int(state["t"]) != tick:
            raise StateCorrupt(
                f"{self.config.state} has lost the state of its counters, or holds that of another tick. No noise was "
                "drawn. Restore the folder whole."
            )
        try:
            if self._synthesizer.journaled:
                gate = JournalGate(gate, self._store, tick)
            counts = self._store.pending(tick)
            models = self._models(tick - 1)
            after, measured, models = self._synthesizer.step(state, counts, gate, self._model, models)
            with self._store.transaction():
                head = chain_head(self._head, measured=measured, claim=self._claim, schema=self.config.schema.hash)
                self._store.append_measurement(Committed(tick, self.mechanism.pack(measured), head))
                self._store.put_counter(after)
                self._store.drop_pending(tick)
                if models:
                    self._store.put_models(tick, dict(models))
                self._store.drop_answers(tick)
            self._counter, self._head, self.closed = after, head, tick + 1
        except BaseException:
            self._where_it_stands()  # the commit may have happened all the same
            raise

    def _where_it_stands(self) -> None:
        """Number of closed ticks and chain head, from what was committed."""
        last = self._store.last()
        self.closed = 0 if last is None else last.tick + 1
        self._head = genesis(self.config) if last is None else last.head

    def _publish_committed(self) -> None:
        """Publish every committed tick that has not been, in order: each starts from the rows of the one before."""
        for tick in range(0 if self._published is None else self._published.tick + 1, self.closed):
            self._publish(tick)

    def _publish(self, tick: int) -> None:
        measured, head = self._measured(tick)
        seed, models = seed_of(head, "fit"), self._models(tick)
        model = self._synthesizer.fit(tick, lambda t: self._measured(t)[0], self._model, models, seed=seed)
        changed = None if self._model is None else model.moved_from(self._model)
        release = replace(self._release(measured, model, head), changed=changed)
        self._sink.publish(release)
        with self._store.transaction():
            self._store.put_population(tick, model.arrays())
        self._model, self._published = model, release
        self.new += 1

    def _models(self, tick: int) -> Models:
        """What was fitted while a tick was drawn; nothing if draws do not wait for fits."""
        found = self._store.models()
        return {} if found is None or found[0] != tick else found[1]

    def _measured(self, tick: int) -> tuple[Reading, str]:
        committed = self._store.measurement(tick)
        if committed is None:
            raise LookupError(f"tick {tick} has not been measured")
        return self.mechanism.unpack(tick, committed.released), committed.head

    def _release(self, measured: Reading, model: Model, head: str) -> Release:
        tick, clock = measured.tick, self.config.clock
        before = self._store.measurement(tick - 1) if tick else None
        previous = genesis(self.config) if before is None else before.head
        return self._synthesizer.release(
            name=self.config.name,
            schema=self.config.schema,
            measured=measured,
            model=model,
            start=clock.boundary(tick),
            end=clock.boundary(tick + 1),
            facts={"claim": self._claim, "chain": {"previous": previous, "head": head}},
            secure=self._secure,
        )

    def _rebuilt(self) -> tuple[Model | None, Release | None]:
        """The newest published rows and their release, from what was committed."""
        found = self._store.population()
        if found is None:
            return None, None
        tick, arrays = found
        measured, head = self._measured(tick)
        model = self._synthesizer.model(arrays)
        return model, self._release(measured, model, head)

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def last(self) -> Release | None:
        """The newest published release."""
        return self._published

    def rows(self, n: int | None = None, *, rng: np.random.Generator | None = None) -> pl.DataFrame:
        """Synthetic rows of the newest release. See :meth:`Release.rows`."""
        return self._newest().rows(n, rng=rng)

    def table(self, columns: list[str]) -> pl.DataFrame:
        """A table of the newest release. See :meth:`Release.table`."""
        return self._newest().table(columns)

    def _newest(self) -> Release:
        if self._published is None:
            raise LookupError("nothing has been released yet; call release() when the first tick is over")
        return self._published

    def status(self) -> dict[str, Any]:
        """What was spent and how far the stream is. Public facts only."""
        return {
            "name": self.config.name,
            "released": self.closed,
            "horizon": self.config.clock.horizon,
            "last_end": None if self.closed == 0 else self.config.clock.boundary(self.closed).isoformat(),
            "head": self._head,
            "spent": self._store.ledger(),
            "secure": self._secure,
        }


def _relative(path: Path, base: Path) -> str:
    real, root = path.resolve(), base.resolve()
    return str(real.relative_to(root)) if real.is_relative_to(root) else str(real)
