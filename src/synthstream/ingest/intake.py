"""How rows come in: encoded, counted by tick, committed, and never counted twice."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from synthstream.config.config import StreamConfig
from synthstream.config.sources import LogConfig
from synthstream.counts import Counts
from synthstream.environment import Env
from synthstream.errors import BatchConflict, CountsMismatch, FileDamaged, FilesLeftOut, HorizonExhausted, SchemaError
from synthstream.ingest.corrections import content_of, refuse_hidden_times
from synthstream.ingest.counting import (
    LATE,
    BatchCounting,
    Count,
    CountsByTick,
    PrivateRows,
    columns_of,
    encode,
    file_of,
    files_of,
    in_threads,
    refuse_other_columns,
)
from synthstream.ingest.cursors import CursorSource
from synthstream.ingest.filenames import RETIRED, FileNames, counted, item_of, settle_kind
from synthstream.ingest.files import FileSource, path_of
from synthstream.ingest.logs import opened
from synthstream.ingest.persons import Contributions
from synthstream.schema.coercion import Frame, bare, is_indexed, names_of, refuse_no_times, slices
from synthstream.state.sealing import framed
from synthstream.state.store import Store
from synthstream.workload import THREADS

T = TypeVar("T")
# A setting of the state: how far its log was counted, sealed.
CURSOR = "cursor"
# In place of the fingerprint of a batch that was counted before a cut: it was made of other columns.
BEFORE = "before a cut"
# Before the fingerprint of a request whose rows had their times: those of later ticks wait, and had not counted before.
DATED = "dated "
_FILES_AT_ONCE = 1000  # that are counted elsewhere
_UNSAVED_CELLS = 4_000_000  # 64 MB


class Elsewhere(NamedTuple):
    """What other machines do with files.

    Args:
        counts: exact counts of all rows in some files. Raises ``FilesLeftOut`` for those that cannot be counted.
        fingerprints: those of files, in their order; left out: made here.
    """

    counts: Callable[[Sequence[Path]], CountsByTick]
    fingerprints: Callable[[Sequence[Path]], Iterable[str]] | None = None


class _NewAgainError(Exception):
    """A file was written anew since the list of files was made: nothing of it counts now."""


_New = tuple[Path, str, str]  # a file that has not been counted, its item and fingerprint in the store


class Intake:
    """Counts rows, files and logs into the store. Memory: a chunk of rows for each thread, and the counts.

    Args:
        store: where exact counts wait for their tick.
        count: makes counts of encoded rows; if persons are protected, rows are stored until their tick closes, and
            counted then.
        cells: how many may be counted.
        first: first tick of the newest segment. If it is not 0, earlier rows may have counted in another segment: they
            are dropped, and so are rows without a time.
        env: what says when files appeared.
    """

    def __init__(self, config: StreamConfig, store: Store, count: Count, *, cells: int, first: int, env: Env) -> None:
        self._appeared = env.appeared
        self._config, self._store, self._count, self._first = config, store, count, first
        unit = config.privacy.unit
        self._people = Contributions(store, unit, cuts=len(config.cuts)) if unit.of_persons else None
        self._counting = None if unit.of_persons else BatchCounting(config, count=count, cells=cells)
        self._log: CursorSource | None = None
        self._unsaved: dict[int, Counts] = {}
        self.findings: dict[Path, str] = {}  # of the last look at the files, for the operator alone

    def update(self, rows: Frame | str | Path | PrivateRows, *, batch_id: str | None, open_tick: int) -> None:
        self._refuse_in_vain(batch_id, open_tick)
        chunks = self._chunks(rows)
        encoded = (chunk if isinstance(chunk, PrivateRows) else encode(self._config, chunk) for chunk in chunks)
        add = partial(self._add, open_tick=open_tick)
        if not self._once(_item("batch", batch_id), encoded, PrivateRows.content, add):
            raise _conflict(batch_id)

    def _chunks(self, rows: Frame | str | Path | PrivateRows, **reading: Any) -> Iterator[Frame]:
        """Rows of a file, or of a frame, in parts."""
        if not isinstance(rows, str | Path):
            if self._config.clock.column is not None:
                refuse_no_times(rows, self._config.clock.column)
            return slices(rows)
        path = path_of(rows)
        return file_of(self._config, path, **reading).read(path)

    def forget(self, rows: Frame | str | Path, request: str, *, open_tick: int) -> None:
        if self._config.clock.horizon is not None and open_tick >= self._config.clock.horizon:
            raise HorizonExhausted("All ticks have been released: none is open at which rows could be taken away.")
        item, timed = _item("forget", request), self._have_times(rows)
        chunks = self._chunks(rows, columns=columns_of(self._config, away=True, timed=timed))
        encoded = (encode(self._config, chunk, away=True, timed=timed) for chunk in chunks)
        add = partial(self._add, open_tick=open_tick)
        if not self._once(item, encoded, PrivateRows.content, add, mark=DATED if timed else ""):
            raise BatchConflict(
                f"request {request!r} came before with other rows, or with these in another order. Nothing was taken "
                "away now. Give no new id to rows that were taken away: they would be taken away again."
            )

    def _have_times(self, rows: Frame | str | Path) -> bool:
        """Whether the rows of a request have the clock's column: a name decides. Without it none has a readable time.

        Raises:
            SchemaError: they lack it where earlier rows may have counted elsewhere: only times tell which these are.
                Or they may have it under another name.
        """
        if (column := self._config.clock.column) is None:
            return True
        path = path_of(rows) if isinstance(rows, str | Path) else None
        names = names_of(rows) if path is None else file_of(self._config, path).names(path)
        if not names or any(bare(name) == bare(column) for name in names):
            return True  # what is no frame, or has nearly this name, is told where it is read
        if self._first > 0:
            raise SchemaError(
                f"column {column!r} is missing: since tick {self._first} rows are taken away by their own time, and "
                "those of earlier ticks stay. If this request came before that without times, give it none now: its "
                "rows might be taken away twice. Nothing was taken away."
            )
        refuse_hidden_times(self._config, names, indexed=is_indexed(rows))
        return False

    def ingest(
        self,
        *,
        open_tick: int,
        progress: Callable[[list[Path]], Iterable[Path]] = iter,
        elsewhere: Elsewhere | None = None,
        new_files: bool = False,
        before: datetime | None = None,
    ) -> int:
        source, log, config = files_of(self._config), self._config.log, self._config.source
        late = open_tick > self._first
        if log is not None:
            settle_kind(self._store, "log", log.name, late=late, new_files=new_files)
            self._follow(log, open_tick)
        self.findings, new = {}, 0
        if source is None or config is None:
            return 0
        settle_kind(self._store, "files", str(config.path), late=late, new_files=new_files)
        naming, there = FileNames(source=config, base=self._config.base), source.files()
        if before is not None:  # what came later decides about nothing yet
            known = counted(self._store)
            there = [path for path in there if naming.of(path) in known or self._appeared(path) <= before]
        named = naming.settle(self._store, there, new_files=new_files)
        if open_tick == 0 and not counted(self._store):
            refuse_other_columns(source, named)
        made = None if elsewhere is None else elsewhere.fingerprints
        files = self._not_counted(named, progress, made or partial(map, source.fingerprint))
        while group := list(islice(files, 1 if elsewhere is None else _FILES_AT_ONCE)):
            if elsewhere is None:
                new += self._counted_here(source, *group[0], open_tick, before)
            else:
                new += self._counted_elsewhere(group, elsewhere, open_tick)
        return new

    def _counted_here(
        self, source: FileSource, path: Path, item: str, content: str, open_tick: int, before: datetime | None
    ) -> int:
        """Count a file: all of it or nothing. What is in one file decides about no other, and about no release."""
        try:
            with self._committed():
                chunks = source.read(path)
                for rows in in_threads(partial(encode, self._config), chunks, threads=THREADS):
                    self._add(rows, open_tick)
                if before is not None and self._appeared(path) > before:
                    raise _NewAgainError
                self._store.put_ingested(item, content)
        except _NewAgainError:
            return 0
        except (FileDamaged, SchemaError) as error:
            self.findings[path] = str(error)
            return 0
        return 1

    def _counted_elsewhere(self, group: list[_New], elsewhere: Elsewhere, open_tick: int) -> int:
        """Have some files counted, and those of them that can be."""
        counts: CountsByTick | None = None
        while group and counts is None:
            try:
                counts = self._ours(elsewhere.counts([path for path, _, _ in group]))
            except FilesLeftOut as error:
                self.findings |= error.findings
                group, before = [one for one in group if one[0] not in error.findings], len(group)
                if len(group) == before:
                    raise
        if counts is not None:
            with self._committed():
                self._put(counts, open_tick)
                for _, item, content in group:
                    self._store.put_ingested(item, content)
        return len(group)

    def _not_counted(
        self,
        named: Mapping[Path, str],
        progress: Callable[[list[Path]], Iterable[Path]],
        fingerprints: Callable[[Sequence[Path]], Iterable[str]],
    ) -> Iterator[_New]:
        """Files that have not been counted. Notes those that were, and are not what they were."""
        contents = {path: self._store.ingested(item_of(name)) for path, name in named.items()}
        looked_at = [path for path in named if contents[path] != RETIRED]
        found = iter(fingerprints(looked_at))
        for path in progress(looked_at):
            item, known = item_of(named[path]), contents[path]
            content = content_of(next(found), self._store.secret)
            if known is None:
                yield path, item, content
            elif known != content:
                self.findings[path] = (
                    f"{path} is not what it was when it was counted. What was counted stays counted, and nothing of "
                    "it was counted now. Put the file back as it was, and new rows into a new file; or say "
                    "`synthstream source accept`, if it was corrected or redacted."
                )

    def _follow(self, log: LogConfig, open_tick: int) -> None:
        """Count what a log holds beyond the cursor. Counts and the cursor after them are committed together."""
        if self._log is None:
            self._log = opened(self._config, log)
        sealed = self._store.meta(CURSOR)
        after = None if sealed is None else self._store.unseal(bytes.fromhex(sealed), CURSOR)
        for frame, cursor in self._log.read(after):
            rows = encode(self._config, frame)
            with self._committed():
                self._add(rows, open_tick)
                self._store.put_meta(CURSOR, self._store.seal(cursor, CURSOR).hex())

    @property
    def waits(self) -> bool:
        """Whether rows of a log are left for later because somebody may still write before them."""
        return self._log is not None and self._log.waits

    def close(self) -> None:
        """Let go of the log's connections."""
        if self._log is not None:
            self._log.close()

    def pending(self, tick: int) -> Counts:
        """Exact counts that wait for a tick to close. Private."""
        if self._people is None:
            return self._store.pending(tick).plus(self._store.pending(LATE))
        return self._people.counts(tick, self._count)

    def drop_pending(self, tick: int) -> None:
        """Forget the exact counts of a tick that has been closed; only within the transaction that closes it."""
        if self._people is None:
            self._store.drop_pending(tick)
            self._store.drop_pending(LATE)
        else:
            self._people.close(tick)

    def _refuse_in_vain(self, batch_id: str | None, open_tick: int) -> None:
        """Refuse a new batch that would count in no release, not even in a successor's: it has no times of its own."""
        clock, item = self._config.clock, _item("batch", batch_id)
        over = clock.column is None and clock.horizon is not None and open_tick >= clock.horizon
        if over and (item is None or self._store.ingested(item) is None):
            raise HorizonExhausted(
                f"All {clock.horizon:,} ticks of this stream have been released: rows would count in no release. "
                "Nothing was counted."
            )

    def add(self, counts: CountsByTick, *, batch_id: str | None, open_tick: int) -> None:
        self._refuse_in_vain(batch_id, open_tick)
        item, count = _item("batch", batch_id), partial(self._put, open_tick=open_tick)
        if not self._once(item, [self._ours(counts)], lambda part: (part.to_bytes(),), count):
            raise _conflict(batch_id)

    def _once(
        self,
        item: str | None,
        parts: Iterable[T],
        told: Callable[[T], tuple[bytes, ...]],
        count: Callable[[T], None],
        *,
        mark: str = "",
    ) -> bool:
        """Count parts under a name: all of them, or none if it is known. Returns whether a known one had these parts.

        Args:
            item: the name in the store; without one, they count whatever came before.
            told: what tells a part from others, as bytes.
            count: adds a part to what waits.
            mark: what the store notes besides; it decides nothing here.
        """
        known = None if item is None else self._store.ingested(item)
        # Tells equal from different, and nothing to who lacks the key.
        mac = hmac.new(self._store.secret, digestmod=hashlib.sha256)
        if known is not None:
            for part in parts:
                mac.update(framed(*told(part)))
            return known.removeprefix(DATED) in (BEFORE, mac.hexdigest())
        with self._committed():
            for part in parts:
                if item is not None:
                    mac.update(framed(*told(part)))
                count(part)
            if item is not None:
                self._store.put_ingested(item, mark + mac.hexdigest())
        return True

    def batches(self, prefix: str) -> list[str]:
        return [item[len("batch ") :] for item in self._store.items(f"batch {prefix}")]

    def _ours(self, counts: CountsByTick) -> CountsByTick:
        """Counts that were made elsewhere. Raises ``CountsMismatch`` if they are not this stream's."""
        if self._counting is None:
            raise CountsMismatch("this stream protects persons, and takes rows only. Use Stream.update.")
        total = self._counting.nothing.merge(counts)
        if not total.sound:
            raise CountsMismatch("these are no counts of rows; take what Counting.count gave, merged.")
        return total

    def _add(self, rows: PrivateRows, open_tick: int) -> None:
        if self._people is not None:
            self._people.add(rows.where(rows.ticks >= self._first) if self._first else rows, open_tick)
        elif self._counting is not None:
            self._put(self._counting.of(rows), open_tick)

    def _put(self, part: CountsByTick, open_tick: int) -> None:
        for tick, counts in part.pending(first=self._first, open_tick=open_tick).items():
            known = self._unsaved.get(tick)
            self._unsaved[tick] = counts if known is None else known.plus(counts)
        if sum(counts.cells.size for counts in self._unsaved.values()) > _UNSAVED_CELLS:
            self._save()

    def _save(self) -> None:
        while self._unsaved:
            self._store.add_pending(*self._unsaved.popitem())

    @contextmanager
    def _committed(self) -> Iterator[None]:
        """All or nothing. Parts are summed here first: the store writes all counts of a tick anew each time."""
        with self._store.transaction("counts"):
            self._unsaved = {}
            yield
            self._save()


def _item(what: str, name: object) -> str | None:
    """What the store calls a batch or a request. Only a batch may have no id. Raises ``TypeError``, which repeats
    nothing, unless an id is text.
    """
    if not isinstance(name, str) and (name is not None or what != "batch"):
        raise TypeError(f"the id of a batch, or of a request, must be text, not {type(name).__name__}")
    return None if name is None else f"{what} {name}"


def _conflict(batch_id: str | None) -> BatchConflict:
    return BatchConflict(
        f"batch_id {batch_id!r} was counted before with other content; the same rows in another order are other "
        "content, too. Nothing was counted now. Send rows again in the order of the first time. Give no new id to rows "
        "that were counted: they would count twice."
    )
