"""Files that were counted and are not what they were: accepted as they are now, or retired. No row is read."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError, SchemaError, SourceError
from synthstream.ingest.counting import columns_of, files_of
from synthstream.ingest.filenames import RETIRED, FileNames, counted, item_of, one_of_each
from synthstream.ingest.files import FileSource
from synthstream.kinds import is_text
from synthstream.schema.coercion import Frame
from synthstream.state.sealing import framed
from synthstream.state.store import Store
from synthstream.state.turns import Turns, alone

Stands = Literal["counted", "changed", "gone", "retired", "new"]


def content_of(fingerprint: str, secret: bytes) -> str:
    """A fingerprint of a file, keyed: tells equal from different, and nothing to who lacks the key."""
    return hmac.new(secret, framed(fingerprint.encode()), hashlib.sha256).hexdigest()


def refuse_hidden_times(config: StreamConfig, names: list[str], *, indexed: bool) -> None:
    """Raise ``SchemaError`` if rows without the clock's column may have their times under another name.

    They would count as rows without times, and again with times once the name is put right and the state was lost.

    Args:
        names: of columns, and of an index. They are repeated only if the schema's are among them: see
            :func:`synthstream.schema.coercion.require`.
        indexed: whether an index may hold something.
    """
    if not set(columns_of(config, away=True, timed=False)) <= set(names):
        return  # told where the rows are read
    known, column = columns_of(config), config.clock.column
    others = ", ".join(repr(name) for name in names if name not in known)
    if others or indexed:
        found = f"these are no columns of the stream: {others}" if others else "the frame has an index"
        raise SchemaError(
            f"column {column!r} is missing, and {found}. If the times are there, call them {column!r}"
            f"{' after .reset_index()' * indexed}; if not, leave "
            f"{'the index out: say .reset_index(drop=True)' if indexed else 'these out'}. Nothing was taken away."
        )


_NO_OP = (
    "this stream has no op: its rows can only be added, so nothing was taken away. Who counted stays in the counts, as "
    "protected as the claim says. To take events away, a stream needs from its beginning a column that says whether a "
    "row adds or takes away: op, at the top of stream.toml. A new stream may have one, with its own budget. What "
    "can be done now: erase the rows from the source's files, and say `synthstream source accept`. Rows of a file that "
    "was not counted yet never count."
)


class Corrections:
    """What the state knows of the files of a source, and what is taken away.

    Names and fingerprints decide which files count in future; of what was counted nothing becomes uncounted. Rows that
    are taken away are events of their own, which the claim counts.

    Args:
        forget: takes rows away under the id of a request.
        lock: of all that threads share with it.
        open_tick: tells the open tick.
    """

    def __init__(
        self,
        config: StreamConfig,
        store: Store,
        forget: Callable[..., None],
        *,
        lock: Turns,
        open_tick: Callable[[], int],
    ) -> None:
        self._config, self._store, self._lock = config, store, lock
        self._forget, self._open_tick = forget, open_tick

    @property
    def _files(self) -> tuple[FileSource, FileNames]:
        source, said = files_of(self._config), self._config.source
        if source is None or said is None:
            raise SourceError("this stream counts no files: in [source] is a log, or nothing.")
        return source, FileNames(source=said, base=self._config.base)

    @alone
    def forget(self, rows: Frame | str | Path, *, request: str) -> None:
        """Take rows away in the open tick, or the later tick of their own time, whether they had counted or not.

        Nobody is told. After a cut, and in a segment on top of a lost state, those that are dated before it, or have no
        readable time, stay: they may have counted on the other side.

        Args:
            rows: a polars, pandas or pyarrow frame; or the path of a file, written as the source's files are. op is not
                needed. Before any cut or segment the column of times may be left out: then they count in the open
                tick, and must never come with times again.
            request: the same id and rows again is a no-op.

        Raises:
            ConfigError: the stream has no op.
            SchemaError: a column is missing. Without the column of times: there are columns which the stream does not
                know, or an index of a pandas frame, that may be it.
            BatchConflict: the id came with other rows.
            HorizonExhausted: all ticks have been released.
        """
        if self._config.op is None:
            raise ConfigError(_NO_OP)
        self._forget(rows, request, open_tick=self._open_tick())

    @alone
    def listed(self) -> list[tuple[str, Stands]]:
        """All files that are there or were counted, by the names that they have now, and how they stand.

        For the operator alone: whether a file was changed depends on its rows.
        """
        there, known = self._there()
        names = sorted(there.keys() | known.keys())
        return [(name, self._stands(known.get(name, name), there.get(name))) for name in names]

    def _there(self) -> tuple[dict[str, Path], dict[str, str]]:
        """The files that are there, by name; and by theirs what the state calls those that were counted, which has not
        heard of files that were moved since. Of several links to one file one is there. Once one counted, all may be
        gone.
        """
        (source, names), before = self._files, counted(self._store)
        there = {path: names.of(path) for path in source.files(gone=bool(before))}
        renamed = names.renamed(there, before)
        known = {renamed.get(name, name): name for name in before}
        return {name: path for path, name in one_of_each(there, known.keys()).items()}, known

    def _stands(self, name: str, path: Path | None) -> Stands:
        known = self._store.ingested(item_of(name))
        if known == RETIRED:
            return "retired"
        if known is None:
            return "new"
        if path is None:
            return "gone"
        return "counted" if known == self._content(path) else "changed"

    def _content(self, path: Path) -> str:
        return content_of(self._files[0].fingerprint(path), self._store.secret)

    @alone
    def accept(self, file: str) -> bool:
        """Take a counted file as it is now, without counting it again. What was counted of it stays counted.

        Returns:
            Whether it had changed.

        Raises:
            SourceError: it was never counted, was retired, or is not there.
        """
        name, path = self._counted(file)
        stands = self._stands(name, path)
        if path is None:
            raise SourceError(f"{name} is not there. If it is gone for good, say `synthstream source retire`.")
        if stands == "retired":
            raise SourceError(f"{name} was retired, and never counts again.")
        if stands == "changed":
            self._put(name, self._content(path))
        return stands == "changed"

    @alone
    def retire(self, file: str) -> bool:
        """Never look at a counted file again, whether it is there or not. What was counted of it stays counted.

        Returns:
            Whether it was not retired before.

        Raises:
            SourceError: it was never counted.
        """
        name, path = self._counted(file)
        if self._stands(name, path) == "retired":
            return False
        self._put(name, RETIRED)
        return True

    def _put(self, name: str, content: str) -> None:
        with self._store.transaction("names"):
            self._store.put_ingested(item_of(name), content)

    def _counted(self, file: str) -> tuple[str, Path | None]:
        """The name that the state knows a file by, and the file, if it is there."""
        (there, known), names = self._there(), self._files[1]
        places, root = (Path(file).absolute(), self._config.base / file), names.source.root
        meant = [name for name, path in there.items() if path in places]
        # What one that is gone may be called: as it was typed, or by where that leads.
        gone = [file, *(names.of(path) for path in places if root is None or path.is_relative_to(root))]
        for name in (*meant, *gone):
            if name in known:
                return known[name], there.get(name)
        near = next((name for name, path in there.items() if path.name == Path(file).name and name in known), None)
        hint = "" if near is None else f" Did you mean {near!r}?"
        said = "a text" if is_text(file) else file
        raise SourceError(
            f"{said}: no file of this name was counted.{hint} `synthstream source list` has those that "
            "were. One that was not is left out by taking it out of source.path."
        )
