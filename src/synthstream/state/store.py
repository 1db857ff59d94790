"""The durable state of a stream: one SQLite file in a folder of its own, one writer.

One transaction holds cursor, counter state, noisy measurement and hash-chain head. The tables ``pending``,
``counter`` and ``answer`` hold exact counts, or noise from which they follow: they are as secret as the rows, and are
encrypted if there is a key. So are ``person`` and ``waiting``, which hold rows of persons until their tick closes
(``ingest/persons.py``): of these the rows alone are encrypted, not their number, and persons have a keyed sum of
their own. Every blob is sealed for its place, and a keyed sum of all other rows is kept, so that none can be lost,
added, exchanged or brought back unnoticed.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from synthstream.counts import Counts, Sums
from synthstream.environment import REAL, Env, sync_parent
from synthstream.errors import StateError, StateMismatch
from synthstream.measured import Committed
from synthstream.state import database
from synthstream.state.blobs import Arrays, packed, packed_ints, unpacked, unpacked_ints
from synthstream.state.database import Closed, Database
from synthstream.state.folder import STORE, Lock, failed, locked, make_private, refuse_exposed
from synthstream.state.sealing import Cipher, Plain, Seal, damaged
from synthstream.state.sums import RowSums
from synthstream.workload import IntArray

FORMAT = 4
T = TypeVar("T")

# Tables with keys of their own have no index beside themselves: a damaged one would hide rows that are there. Hence
# WITHOUT ROWID. Of rows that wait, a hidden one counts nowhere.
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE digest (id INTEGER PRIMARY KEY CHECK (id = 0), sum BLOB NOT NULL) STRICT;
CREATE TABLE ledger (id INTEGER PRIMARY KEY, claim TEXT NOT NULL) STRICT;
CREATE TABLE ingested (item TEXT PRIMARY KEY, mac TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE pending (tick INTEGER PRIMARY KEY, counts BLOB NOT NULL) STRICT;
CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 0), state BLOB NOT NULL) STRICT;
CREATE TABLE measurement (tick INTEGER PRIMARY KEY, released BLOB NOT NULL, head TEXT NOT NULL) STRICT;
CREATE TABLE population (id INTEGER PRIMARY KEY CHECK (id = 0), tick INTEGER NOT NULL, codes BLOB NOT NULL) STRICT;
CREATE TABLE answer (
    tick INTEGER, call INTEGER, question TEXT NOT NULL, drawn BLOB NOT NULL, PRIMARY KEY (tick, call)
) STRICT, WITHOUT ROWID;
CREATE TABLE person (
    who BLOB, window INTEGER, used INTEGER NOT NULL, PRIMARY KEY (window, who)
) STRICT, WITHOUT ROWID;
CREATE TABLE waiting (
    who BLOB, tick INTEGER, rank BLOB, row BLOB NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (who, tick, rank)
) STRICT, WITHOUT ROWID;
CREATE INDEX waiting_tick ON waiting (tick);
CREATE TABLE models (id INTEGER PRIMARY KEY CHECK (id = 0), tick INTEGER NOT NULL, arrays BLOB NOT NULL) STRICT;
CREATE TABLE segment (start INTEGER PRIMARY KEY, model BLOB NOT NULL) STRICT;
CREATE TABLE published (tick INTEGER PRIMARY KEY, manifest TEXT NOT NULL) STRICT;
CREATE TRIGGER ledger_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER ledger_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER measurement_update BEFORE UPDATE ON measurement BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER measurement_delete BEFORE DELETE ON measurement BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""


class Store:
    """The state folder, opened by one process at a time. ``db`` is its file, for tables that other modules look after.

    Args:
        folder: created with mode 0700 if it does not exist.
        read_only: look at what is public, without the lock and the key, while another process may be writing.
        copies: take a backup that was put back, too.
        key: 32 bytes that what is private is encrypted with.

    Raises:
        StateLocked: another process has it open.
        StateError: it can be reached by others, is a link, lies on a network file system, or cannot be written.
        StateMismatch: it has another key, or none, or needs one.
        StateRolledBack: it is a backup that was put back.
        StateCorrupt: it is not a Synthstream state, is of another format, or is damaged.
    """

    def __init__(
        self, folder: Path, *, read_only: bool = False, copies: bool = False, key: bytes | None = None, env: Env = REAL
    ) -> None:
        self.folder, self._env = folder, env
        self._lock: Lock | None = None
        if not read_only:
            self._do("make state folder", partial(make_private, folder))
            self._do("sync state's name", partial(sync_parent, folder))
        refuse_exposed(folder)
        if not read_only:
            self._lock = self._do("lock state", partial(locked, folder))
        try:
            path, fill, copies = folder / STORE, partial(self._fill, key), copies or read_only
            self.db = database.opened(path, _SCHEMA, FORMAT, read_only=read_only, copies=copies, do=self._do, fill=fill)
            self._public: Seal = Plain(self.meta("id") or "")
            if not read_only:
                self._unseal(key)
        except OSError as error:
            self._let_go()
            raise failed(folder, error) from error
        except BaseException:
            self._let_go()
            raise

    def _do(self, name: str, effect: Callable[[], T]) -> T:
        try:
            return self._env.do(name, effect)
        except OSError as error:
            raise failed(self.folder, error) from error

    def new_facts(self) -> tuple[bytes, dict[str, str]]:
        """Of a new store: what keys hashes from now on, of persons, of files, of batches; and settings beside it."""
        return secrets.token_bytes(32), {}

    def _fill(self, key: bytes | None, db: Database) -> None:
        """What a new store says of itself."""
        self.db, store, (self.secret, facts) = db, secrets.token_hex(16), self.new_facts()
        self._private: Seal = Plain(store) if key is None else Cipher(key, store)
        self._rows = RowSums(db, self._private, self.secret)
        facts |= {"id": store, "encryption": self._private.name}
        facts |= {"key check": self._private.check if isinstance(self._private, Cipher) else ""}
        for name, value in (facts | {"secret": self.seal(self.secret, "meta secret").hex()}).items():
            self.put_meta(name, value)
        self._rows.finish()

    def _unseal(self, key: bytes | None) -> None:
        """Open what is private, and make sure that nothing is missing."""
        store, name = self.meta("id") or "", self.meta("encryption")
        if name not in (Plain.name, Cipher.name):
            raise damaged("meta")
        if key is None and name == Cipher.name:
            raise StateMismatch(f"{self.folder} is encrypted. Say in [encryption] where its key is.")
        if key is not None and name == Plain.name:
            raise StateMismatch(
                f"{self.folder} was made without a key, and stays so. Remove [encryption], or open another stream, "
                "with a name, state and sink of its own; people in both would be protected by the sum of both budgets."
            )
        self._private = Plain(store) if key is None else Cipher(key, store)
        if isinstance(self._private, Cipher) and not hmac.compare_digest(
            (self.meta("key check") or "").encode(), self._private.check.encode()
        ):
            raise StateMismatch(
                f"The key in [encryption] is not the one that {self.folder} was made with. Put that one back. If it is "
                "lost, so is this state: move the folder away, and it is as if the state were lost."
            )
        try:
            sealed = bytes.fromhex(self.meta("secret") or "")
        except ValueError:
            raise damaged("meta") from None
        self.secret = self.unseal(sealed, "meta secret")
        self._rows = RowSums(self.db, self._private, self.secret)
        self._rows.verify()

    def close(self) -> None:
        """Wipe the log, close the file and let go of the lock."""
        try:
            if isinstance(self.db, Database):
                self._do("close store", self.db.close)  # SQLite empties the log into the file first, and removes it
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """As :meth:`close`, whatever has come of it."""
        db, self.db = getattr(self, "db", None), Closed()  # type: ignore[assignment]
        if isinstance(db, Database):
            with suppress(StateError):
                db.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def wipe(self) -> None:
        """Empty the write-ahead log, where counts live on that were deleted from the tables. A reader may delay it."""
        self._do("wipe log", lambda: self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())

    @contextmanager
    def transaction(self, what: str) -> Iterator[None]:
        """All or nothing; on return it is on disk. ``what``: is committed, in a word."""
        with database.transaction(self.db, what, self._do):
            self._rows.begin()
            yield
            self._rows.finish()

    # -- seals --------------------------------------------------------------------------------------------------

    def seal(self, piece: bytes, place: str) -> bytes:
        """A private piece as it may be stored: encrypted, if there is a key.

        Args:
            place: table and row, so that it is refused elsewhere.
        """
        return self._private.seal(piece, place)

    def unseal(self, sealed: bytes, place: str) -> bytes:
        """The private piece that was sealed for a place. Raises ``StateCorrupt`` if it is not what was sealed there."""
        return self._private.open(sealed, place)

    # -- public facts ------------------------------------------------------------------------------------------

    def meta(self, key: str) -> str | None:
        """A public setting, or ``None``."""
        return self._text("SELECT value FROM meta WHERE key = ?", key)

    def _text(self, question: str, *values: Any) -> str | None:
        row = self.db.execute(question, values).fetchone()
        return None if row is None else str(row[0])

    def put_meta(self, key: str, value: str) -> None:
        """Set a public setting."""
        self._rows.put("meta", key, value)

    def ledger(self) -> list[dict[str, Any]]:
        """All charges, oldest first."""
        return [json.loads(row[0]) for row in self.db.execute("SELECT claim FROM ledger ORDER BY id").fetchall()]

    def append_ledger(self, claim: dict[str, Any]) -> None:
        """Write down a charge; it can never be changed."""
        number = self.db.execute("SELECT count(*) FROM ledger").fetchone()[0]
        self._rows.add("ledger", number, json.dumps(claim, sort_keys=True))

    def last(self) -> Committed | None:
        """The newest measurement."""
        return self._committed("ORDER BY tick DESC LIMIT 1")

    def measurement(self, tick: int) -> Committed | None:
        """The measurement of a tick."""
        return self._committed("WHERE tick = ?", tick)

    def head(self, tick: int) -> str | None:
        """The chain head after a tick; ``None`` if it was not measured."""
        return None if (found := self.measurement(tick)) is None else found.head

    def append_measurement(self, committed: Committed) -> None:
        """Write down what passed the gate; it can never be changed."""
        blob = self._public.seal(packed_ints(committed.released), _place(committed.tick, committed.head))
        self._rows.add("measurement", committed.tick, blob, committed.head)
        for key, told in committed.circumstances.items():
            self.put_meta(f"{key} {committed.tick}", json.dumps(told))

    def _committed(self, which: str, *values: int) -> Committed | None:
        row = self.db.execute(f"SELECT tick, released, head FROM measurement {which}", values).fetchone()  # noqa: S608
        if row is None:
            return None
        tick, blob, head = row
        unchecked, wait = (json.loads(self.meta(f"{key} {tick}") or "null") for key in ("unchecked", "wait"))
        released = unpacked_ints(self._public.open(blob, _place(tick, head)))
        return Committed(tick, released, head, tuple(unchecked or ()), wait)

    def population(self) -> tuple[int, Arrays] | None:
        """The newest published tick and the rows fitted to it."""
        return self._of_tick("population", "SELECT tick, codes FROM population")

    def _of_tick(self, what: str, question: str) -> tuple[int, Arrays] | None:
        row = self.db.execute(question).fetchone()
        return None if row is None else (int(row[0]), unpacked(self._public.open(row[1], f"{what} {row[0]}")))

    def put_population(self, tick: int, arrays: Arrays) -> None:
        """Mark a tick as published, with its rows."""
        self._rows.put("population", 0, tick, self._public.seal(packed(arrays), f"population {tick}"))

    def segments(self) -> list[tuple[int, Arrays]]:
        """First ticks of the segments after the first, in order, and the models that they go on from."""
        rows = self.db.execute("SELECT start, model FROM segment ORDER BY start").fetchall()
        return [(int(start), unpacked(self._public.open(blob, f"segment {start}"))) for start, blob in rows]

    def append_segment(self, start: int, model: Arrays) -> None:
        """Begin a segment."""
        self._rows.add("segment", start, self._public.seal(packed(model), f"segment {start}"))

    def published(self, tick: int) -> str | None:
        """SHA-256 of the manifest under which a tick was published, or ``None``."""
        return self._text("SELECT manifest FROM published WHERE tick = ?", tick)

    def put_published(self, tick: int, manifest: str) -> None:
        """Remember what was published for a tick."""
        self._rows.put("published", tick, manifest)

    def models(self) -> tuple[int, Arrays] | None:
        """The newest committed tick whose models are kept, and these."""
        return self._of_tick("models", "SELECT tick, arrays FROM models")

    def put_models(self, tick: int, arrays: Arrays) -> None:
        """Keep what was fitted while a tick was drawn."""
        self._rows.put("models", 0, tick, self._public.seal(packed(arrays), f"models {tick}"))

    # -- private ------------------------------------------------------------------------------------------------

    def ingested(self, item: str) -> str | None:
        """The fingerprint under which a file or batch was counted, or ``None`` if it was not."""
        return self._text("SELECT mac FROM ingested WHERE item = ?", item)

    def put_ingested(self, item: str, mac: str) -> None:
        """Remember that a file or batch was counted, or that it has another fingerprint now."""
        self._rows.put("ingested", item, mac)

    def rename_ingested(self, item: str, new: str) -> None:
        """Remember a file that was counted under another name."""
        if (mac := self.ingested(item)) is not None:
            self.forget("ingested", item)
            self.put_ingested(new, mac)

    def items(self, prefix: str) -> list[str]:
        """What was counted, files and batches: those that begin so, sorted."""
        found = "SELECT item FROM ingested WHERE substr(item, 1, ?) = ? ORDER BY item"
        return [str(row[0]) for row in self.db.execute(found, (len(prefix), prefix))]

    def forget(self, table: str, key: str | int) -> None:
        """Take the rows away whose key is, or begins with, this one."""
        self._rows.drop(table, key)

    def sound(self) -> bool:
        """Whether the file is a sound database, page by page."""
        try:
            return bool(self.db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))
        except StateError:
            return False

    @property
    def is_copy(self) -> bool:
        """Whether it is a backup that was put back."""
        return database.is_copy(self.db)

    def take(self) -> None:
        """Go on with a backup as if it were no copy."""
        with self.transaction("adoption"):
            database.take(self.db)

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy of the whole store to a new file, mode 0600, marked as a copy."""
        self._do("copy store", partial(database.copy, self.db, path))

    def undrawn(self) -> bool:
        """Whether nothing was ever drawn. Whether rows were counted is private."""
        tables = ("answer", "measurement")
        return not any(self.db.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() for name in tables)  # noqa: S608

    def half_drawn(self, tick: int) -> bool:
        """Whether some answers of a tick were drawn although it is not closed."""
        return self.db.execute("SELECT 1 FROM answer WHERE tick = ? LIMIT 1", (tick,)).fetchone() is not None

    def answer(self, tick: int, call: int) -> tuple[str, IntArray] | None:
        """The question of one call of a tick that is not yet closed, and what the gate answered; ``None`` if there was
        none. Private: with the counts it tells the noise of open tree nodes.
        """
        found = self.db.execute(
            "SELECT question, drawn FROM answer WHERE tick = ? AND call = ?", (tick, call)
        ).fetchone()
        if found is None:
            return None
        drawn = np.frombuffer(self.unseal(found[1], f"answer {tick} {call}"), dtype="<i8").astype(np.int64)
        return found[0], drawn

    def put_answer(self, tick: int, call: int, question: str, drawn: IntArray) -> None:
        """Write down what the gate answered; it can never be drawn again. Not compressed: its size tells nothing."""
        blob = np.ascontiguousarray(drawn, dtype="<i8").tobytes()
        self._rows.add("answer", tick, call, question, self.seal(blob, f"answer {tick} {call}"))

    def pending(self, tick: int) -> Counts:
        """Exact counts that wait for a tick to close. Private."""
        row = self.db.execute("SELECT counts FROM pending WHERE tick = ?", (tick,)).fetchone()
        if row is None:
            return Counts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        sparse = unpacked(self.unseal(row[0], f"pending {tick}"))
        return Counts(sparse["cell"], sparse["count"])

    def add_pending(self, tick: int, counts: Counts) -> None:
        """Add exact counts to those that wait for a tick. Private."""
        total = self.pending(tick).plus(counts)
        blob = packed({"cell": total.cells, "count": total.numbers})
        self._rows.put("pending", tick, self.seal(blob, f"pending {tick}"))

    def drop_pending(self, tick: int) -> None:
        """Forget the exact counts of a tick that has been closed."""
        self._rows.drop("pending", tick)

    def counter(self) -> Sums | None:
        """State of the counters. Private."""
        row = self.db.execute("SELECT state FROM counter").fetchone()
        return None if row is None else Sums(unpacked(self.unseal(row[0], "counter")))

    def put_counter(self, state: Arrays) -> None:
        """Replace the state of the counters. Private."""
        self._rows.put_counter(self.seal(packed(state), "counter"))


def _place(tick: int, head: str) -> str:
    return f"measurement {tick} {head}"
