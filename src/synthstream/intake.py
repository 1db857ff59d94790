"""How rows come in: encoded, counted by tick, committed, and never counted twice."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

from synthstream.config import StreamConfig
from synthstream.counting import Count, Rows, columns_of, counted, encode
from synthstream.errors import BatchConflict, SourceError
from synthstream.io.sources import FileSource
from synthstream.io.store import Store
from synthstream.reading import Frame, slices

_CHUNK_ROWS = 250_000


class Intake:
    """Counts rows and files into the store. Memory: one chunk of rows, and the counts.

    Args:
        config: says how rows are read.
        store: where exact counts wait for their tick.
        count: makes counts of encoded rows.
        first: first tick of the newest segment. If it is not 0, earlier rows may have counted in another segment: they
            are dropped, and so are rows without a time.
    """

    def __init__(self, config: StreamConfig, store: Store, count: Count, *, first: int) -> None:
        self._config, self._store, self._count, self._first = config, store, count, first

    def update(self, rows: Frame | str | Path, *, batch_id: str | None, open_tick: int) -> None:
        """See :meth:`synthstream.Stream.update`."""
        if isinstance(rows, str | Path):
            path, columns = Path(rows).absolute(), columns_of(self._config)
            source = FileSource(kind="csv" if path.suffix == ".csv" else "parquet", path=path, columns=columns)
            chunks: Iterator[Frame] = source.read(path, chunk_rows=_CHUNK_ROWS)
        else:
            chunks = slices(rows, _CHUNK_ROWS)
        encoded = (encode(self._config, chunk) for chunk in chunks)
        item = f"batch {batch_id}"
        known = None if batch_id is None else self._store.ingested(item)
        mac = self._keyed()
        if known is None:
            with self._store.transaction("counts"):
                for part in encoded:
                    if batch_id is not None:
                        _feed(mac, *part.content())
                    self._add(part, open_tick)
                if batch_id is not None:
                    self._store.put_ingested(item, mac.hexdigest())
            return
        for part in encoded:
            _feed(mac, *part.content())
        if known != mac.hexdigest():
            raise BatchConflict(
                f"batch_id {batch_id!r} was counted before with other content. Nothing was counted now; give new rows "
                "a new id."
            )

    def ingest(self, *, open_tick: int) -> int:
        """See :meth:`synthstream.Stream.ingest`."""
        config = self._config.source
        if config is None:
            return 0
        new = 0
        source = FileSource(kind=config.kind, path=config.path, columns=columns_of(self._config))
        for path in source.files():
            item = f"file {_relative(path, self._config.base)}"
            mac = self._keyed()
            _feed(mac, source.fingerprint(path).encode())
            content = mac.hexdigest()
            known = self._store.ingested(item)
            if known is None:
                with self._store.transaction("counts"):
                    if self._store.ingested(f"content {content}") is None:  # not counted under another name
                        for chunk in source.read(path, chunk_rows=_CHUNK_ROWS):
                            self._add(encode(self._config, chunk), open_tick)
                        self._store.put_ingested(f"content {content}", content)
                        new += 1
                    self._store.put_ingested(item, content)
            elif known != content:
                raise SourceError(
                    f"{path} is not what it was when it was counted. Rows that were counted cannot be taken back; put "
                    "the file back as it was, and new rows into a new file."
                )
        return new

    def _add(self, rows: Rows, open_tick: int) -> None:
        rows = rows.since(self._first) if self._first else rows
        for tick, counts in counted(rows, count=self._count, open_tick=open_tick):
            self._store.add_pending(tick, counts)

    def _keyed(self) -> hmac.HMAC:
        """A keyed fingerprint of private content: tells equal from different, and nothing to who lacks the key."""
        return hmac.new(bytes.fromhex(self._store.meta("secret") or ""), digestmod=hashlib.sha256)


def _feed(mac: hmac.HMAC, *parts: bytes) -> None:
    for part in parts:
        mac.update(len(part).to_bytes(8, "big") + part)


def _relative(path: Path, base: Path) -> str:
    real, root = path.resolve(), base.resolve()
    return str(real.relative_to(root)) if real.is_relative_to(root) else str(real)
