"""A Delta table as a log: its rows as they are at first, then what each later version did.

The table says ``delta.appendOnly``, so its writers take no row away; or it says ``delta.enableChangeDataFeed``, so they
write down which rows they changed. Only its log is read for what there is: files of
JSON, and a checkpoint where these begin. Rows are read from its Parquet files as those of any source, so no cell can
keep another row from being read; values of partitions stand in the log as text, and are read as text of a cell is.

A place in the log is a version, a file of it, and how many rows of that were counted. Names of files may hold values of
rows: no message has one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from synthstream.config.sources import DeltaConfig
from synthstream.errors import SchemaError, SourceError
from synthstream.ingest.changes import Changes, moment
from synthstream.ingest.cursors import cursor_of, place_in
from synthstream.ingest.files import FileSource, for_arrow
from synthstream.schema.coercion import CHUNK_ROWS, require

_APPEND_ONLY, _TELLS_CHANGES = "delta.appendOnly", "delta.enableChangeDataFeed"
_CHANGE = "_change_type"
_VERSION = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
# What readers of the first version of the protocol know, and features that change nothing of what is read here.
_KNOWN = {"timestampNtz", "vacuumProtocolCheck", "appendOnly", "invariants", "domainMetadata", "inCommitTimestamp"}
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/")
_ZONELESS = re.compile(r"[0-9]+-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?")
_IN_PART = "Rows before the damage may have counted already: bring it back as it was, not with other rows."

Actions = list[dict[str, Any]]
_path = itemgetter(0)  # names are unique within a version


class _Added(NamedTuple):
    """A file of the table: its path within it, and the partition that all of its rows are in.

    Args:
        did: what became of its rows, as tables of changes call it; empty: a column says it of each.
        inserted: of changes, whether its rows with their own time are read, or all others.
        anew: of changes, whether what was inserted there took the place of rows.
        at: the moment of the version.
    """

    path: str
    partition: Mapping[str, str | None]
    did: str = "insert"
    inserted: bool = True
    anew: bool = False
    at: str | None = None


class _Known(NamedTuple):
    """What a log says of itself: commits by version, the parts of whole checkpoints by version."""

    commits: dict[int, Path]
    checkpoints: dict[int, list[Path]]

    @property
    def newest(self) -> int:
        return max(self.commits)


class DeltaSource:
    """Reads a Delta table by its versions. Memory: a chunk of rows, and, at first, the names of all files.

    Args:
        columns: what to read; other columns are never looked at.
        changes: how changes of rows become rows; ``None``: rows are only added.
    """

    def __init__(self, log: DeltaConfig, columns: Sequence[str], *, changes: Changes | None = None) -> None:
        self.name, self.waits = log.name, False
        self._path, self._changes = log.path, changes
        self._columns = [column for column in columns if changes is None or column != changes.op]

    def look(self) -> None:
        self._table(self._list())

    def pattern(self) -> str:
        """What paths of its files look like within its folder, for a shell; raises as :meth:`look` does."""
        partitions = self._meta(self._list()).get("partitionColumns") or ()
        return "".join(f"{name}=*/" for name in partitions) + "*.parquet"

    def read(self, after: bytes | None) -> Iterator[tuple[pl.DataFrame, bytes]]:
        known = self._list()
        origin, instants = self._table(known)
        place = place_in(after, origin, name=self.name)
        first, version, number, done = (known.newest, known.newest, 0, 0) if place is None else place[:4]
        later = self._appended if self._changes is None else self._changed
        if place is not None:
            counted = version if done else version - 1
            if known.newest < counted or (counted in known.commits and self._seal(known, counted) != place[4]):
                raise SourceError(
                    f"{self.name}: its version {counted} was counted, and now there is none, or another of that "
                    "number: the table was set back, or written anew under the same identity. Nothing was counted. "
                    "Bring its log back; or open another stream, with a name, state and sink of its own."
                )
        for now in range(version, known.newest + 1):
            seal = self._seal(known, now)
            files = (self._whole if now == first else later)(known, now)
            for at in range(number, len(files)):
                rows = 0
                for frame in self._rows(files[at], now, instants):
                    before, rows = rows, rows + frame.height
                    if rows > done:
                        new = self._sides(frame[max(0, done - before) :], files[at])
                        yield new, cursor_of(origin, [first, now, at, rows, seal])
                done = 0
            number = 0
            # What has no rows moves on too.
            none = self._sides(_frame(self._columns, pl.DataFrame(), {}, 0), _Added("", {}))
            yield none, cursor_of(origin, [first, now + 1, 0, 0, seal])

    def close(self) -> None:
        """Nothing is open."""

    # -- the log -----------------------------------------------------------------------------------------------------

    def _list(self) -> _Known:
        with self._told("its log cannot be listed"):
            names = {path.name: path for path in (self._path / "_delta_log").glob("*")}
        commits = {int(m[1]): path for name, path in names.items() if (m := _VERSION.fullmatch(name))}
        parts: dict[tuple[int, int], list[Path]] = {}
        for name in sorted(names):
            if m := _CHECKPOINT.fullmatch(name):
                parts.setdefault((int(m[1]), int(m[3] or 1)), []).append(names[name])
        if not commits:
            raise SourceError(f"{self.name}: there is no Delta table. Check source.path: it has no log of versions.")
        return _Known(commits, {v: found for (v, number), found in sorted(parts.items()) if len(found) == number})

    def _actions(self, known: _Known, version: int) -> Actions:
        path = self._path / "_delta_log" / f"{version:020}.json"  # a list that is made while others write may miss it
        if version not in known.commits and not path.exists():
            raise SourceError(
                f"{self.name}: its version {version} is no longer kept, and was not counted. Nothing was lost that "
                "was counted; what it added cannot be told from what was there before. Bring that file of the log "
                f"back; or {self._on}. Let the table keep its log (delta.logRetentionDuration) for longer than this "
                "stream ever pauses."
            )
        with self._told(f"version {version} of its log cannot be read"), path.open("rb") as file:
            lines = file.read().decode("utf-8", "replace").split("\n")
            found = [json.loads(line) for line in lines if line.strip()]
            return [{kind: told for kind, told in one.items() if isinstance(told, dict)} for one in found]

    @property
    def _on(self) -> str:
        """How to go on without a version."""
        if self._changes is not None:
            return "open another stream, with a name, state and sink of its own"
        return (
            "go on with a successor that reads the table again (`synthstream succeed --read-again`): all rows dated "
            "from the newest release on count, and those dated before that were not counted yet are lost"
        )

    def _seal(self, known: _Known, version: int) -> str:
        """What tells a version from another one of its number."""
        return hashlib.sha256(json.dumps(self._actions(known, version), sort_keys=True).encode()).hexdigest()

    def _replayed(self, known: _Known, version: int, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Actions that made a version what it is: of the newest checkpoint before it, and of versions since."""
        start = max((v for v in known.checkpoints if v <= version), default=-1)
        for path in known.checkpoints.get(start, []):
            with self._told(f"the checkpoint of its version {start} cannot be read"):
                yield from _in_checkpoint(path, kinds)
        for now in range(start + 1, version + 1):
            yield from self._actions(known, now)

    def _table(self, known: _Known) -> tuple[str, frozenset[str]]:
        """The origin of cursors of the table, and which columns are instants. Raises unless it can be read on."""
        meta = self._meta(known)
        self._refuse_unsaid(meta)
        with self._told("its log does not say what columns it has"):
            fields = json.loads(meta["schemaString"])["fields"]
            kinds = {field["name"]: field["type"] for field in fields}
        require(self._columns, list(kinds), of=f"{self.name}: ")
        return f"delta {meta.get('id')}", frozenset(name for name, kind in kinds.items() if kind == "timestamp")

    def _meta(self, known: _Known) -> dict[str, Any]:
        """What the table says of itself. Raises if only a later version of the protocol knows how to read it."""
        meta: dict[str, Any] = {}
        for action in self._replayed(known, known.newest, ("metaData", "protocol")):
            if found := action.get("protocol"):
                features = set(found.get("readerFeatures") or ()) - _KNOWN
                if found.get("minReaderVersion") == 2:
                    features = {"columnMapping"}
                if features or found.get("minReaderVersion", 1) not in (1, 3):
                    words = ", ".join(sorted(features)) or "of a later version"
                    raise SourceError(
                        f"{self.name}: has features that are not read here: {words}. Write it without them."
                    )
            meta = action.get("metaData") or meta
        return meta

    def _refuse_unsaid(self, meta: Mapping[str, Any], when: str = "") -> None:
        """Raise unless a table says what its writers keep to."""
        said = dict(meta.get("configuration") or {})
        if self._changes is not None and said.get(_TELLS_CHANGES) != "true":
            raise SourceError(
                f"{self.name}: {when}its writers do not write down which rows they change. Say that they must: ALTER "
                f"TABLE ... SET TBLPROPERTIES ('{_TELLS_CHANGES}' = 'true'). What was changed without it cannot be "
                "told; if that was after this stream began, open another one, with a name, state and sink of its own."
            )
        if self._changes is None and said.get(_APPEND_ONLY) != "true":
            raise SourceError(
                f"{self.name}: rows may be updated or deleted there, and a row that has counted stays counted. If "
                f"rows are only ever added, say so: ALTER TABLE ... SET TBLPROPERTIES ('{_APPEND_ONLY}' = 'true'). If "
                f"not, let it tell of changes ('{_TELLS_CHANGES}' = 'true') and say format = \"changes\" in [source]."
            )

    def _whole(self, known: _Known, version: int) -> list[_Added]:
        """All files of a version, in the order of their names."""
        found: dict[str, _Added] = {}
        for action in self._replayed(known, version, ("add", "remove")):
            if gone := action.get("remove"):
                found.pop(str(gone.get("path")), None)
            if told := action.get("add"):
                added = self._added(told)
                found[added.path] = added
        return [found[path] for path in sorted(found)]

    def _changed(self, known: _Known, version: int) -> list[_Added]:
        """Files of changes that a version wrote; or, if it wrote none, those whose rows it took away and added.

        Each file of changes is read twice: first for rows with their own time, then for those with that of the version.
        What is written anew in the place of rows has the time of the version as well, on one side of every cut.
        """
        actions = self._actions(known, version)
        for meta in (action["metaData"] for action in actions if "metaData" in action):
            self._refuse_unsaid(meta, f"from its version {version} on ")
        commit: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        at = moment(commit.get("inCommitTimestamp", commit.get("timestamp")))
        told = sorted((self._added(action["cdc"]) for action in actions if "cdc" in action), key=_path)
        if told:
            # An overwrite of a part. A MERGE may take rows away as well, but what it inserts is new.
            anew = commit.get("operation") == "WRITE" and any("remove" in action for action in actions)
            told = [one._replace(did="", anew=anew, at=at) for one in told]
            return [one._replace(inserted=inserted) for one in told for inserted in (True, False)]
        found: list[_Added] = []
        for kind in ("remove", "add"):
            those = [action[kind] for action in actions if kind in action and action[kind].get("dataChange", True)]
            if missing := [one for one in those if one.get("partitionValues") is None]:
                before = {added.path: added.partition for added in self._whole(known, version - 1)}
                for one in missing:
                    one["partitionValues"] = before.get(str(one.get("path")))
            anew, did = bool(found), "delete" if kind == "remove" else "insert"
            files = sorted((self._added(one) for one in those), key=_path)
            found += [one._replace(did=did, inserted=did == "insert" and not anew, anew=anew, at=at) for one in files]
        return found

    def _appended(self, known: _Known, version: int) -> list[_Added]:
        """Files that a version added rows with; what lays rows out anew adds none."""
        found = []
        for action in self._actions(known, version):
            gone, told = action.get("remove"), action.get("add")
            if gone and gone.get("dataChange", True):
                raise SourceError(
                    f"{self.name}: its version {version} takes rows away, though the table says {_APPEND_ONLY}. "
                    "Nothing of that version was counted, and the stream cannot go on from there. Open another "
                    "stream, with a name, state and sink of its own."
                )
            if told and told.get("dataChange", True):
                found.append(self._added(told))
        return sorted(found, key=_path)

    def _added(self, told: Mapping[str, Any]) -> _Added:
        path = str(told.get("path"))
        if told.get("deletionVector") or _ELSEWHERE.match(path):
            raise SourceError(
                f"{self.name}: has files that lie elsewhere (a shallow clone), or of which rows were taken away. Copy "
                "it with all of its rows."
            )
        values = dict(told.get("partitionValues") or {})
        # An empty text stands for no value. Half a character would be no text.
        texts = {key: str(v).encode("utf-8", "replace").decode() if v else None for key, v in values.items()}
        return _Added(path, texts)

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, added: _Added, version: int, instants: Set[str]) -> Iterator[pl.DataFrame]:
        """Rows of a file. A column that it has not, because it came later, has no value there."""
        # An instant that names no zone is in UTC, as writers agree; other text is left as it is.
        zoneless = {key for key, text in added.partition.items() if key in instants and _ZONELESS.fullmatch(text or "")}
        partition = {key: f"{text}Z" if key in zoneless else text for key, text in added.partition.items()}
        columns = self._columns if added.did else [*self._columns, _CHANGE]
        with self._told(f"a file of its version {version} cannot be read", _IN_PART):
            path = self._path / os.fsdecode(unquote_to_bytes(added.path))
            file = FileSource(kind="parquet", path=path, columns=())
            names = set(file.names(path))
            own = tuple(c for c in columns if c in names and c not in partition)
            if not own:
                count = pq.read_metadata(for_arrow(path)).num_rows
                for start in range(0, count, CHUNK_ROWS):
                    yield _frame(columns, pl.DataFrame(), partition, min(CHUNK_ROWS, count - start))
                return
            for frame in FileSource(kind="parquet", path=path, columns=own).read(path):
                yield _frame(columns, frame, partition, frame.height)

    def _sides(self, rows: pl.DataFrame, added: _Added) -> pl.DataFrame:
        """The rows of a file that are asked for, with what they do to a count."""
        if self._changes is None:
            return rows
        kinds = pl.Series([added.did]).new_from_index(0, rows.height) if added.did else rows[_CHANGE]
        own = rows if added.did else rows.drop(_CHANGE)
        return self._changes.sides(own, kinds, added.at, inserted=added.inserted, anew=added.anew)

    @contextmanager
    def _told(self, what: str, counted: str = "Nothing of it was counted.") -> Iterator[None]:
        try:
            yield
        except (SourceError, SchemaError, OSError, ValueError, LookupError, TypeError, pa.ArrowException) as error:
            why = getattr(error, "strerror", None)  # without the name of the file, which may hold values of rows
            raise SourceError(
                f"{self.name}: {what}{f': {why}' if why else ''}. {counted} Check that the table is there and may be "
                "read, and that files are kept (VACUUM) for longer than this stream ever pauses."
            ) from None


def _frame(columns: Sequence[str], own: pl.DataFrame, partition: Mapping[str, str | None], rows: int) -> pl.DataFrame:
    return pl.DataFrame(
        [
            own[name]
            if name in own.columns
            else pl.Series(name, [partition.get(name)], pl.String).new_from_index(0, rows)
            for name in columns
        ]
    )


def _in_checkpoint(path: Path, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Actions of some kinds in a file of a checkpoint. Files that were removed are not in it, but as memories."""
    read = {"add": [f"add.{key}" for key in ("path", "partitionValues", "deletionVector")]}
    columns = [column for kind in kinds if kind != "remove" for column in read.get(kind, [kind])]
    with pq.ParquetFile(for_arrow(path)) as file:
        for batch in file.iter_batches(batch_size=4096, columns=columns):
            for kind in batch.schema.names:
                found = batch.column(kind)
                found = found.filter(found.is_valid())
                for action in _files_in(found) if kind == "add" else found.to_pylist():
                    yield {kind: action}


def _files_in(found: pa.StructArray) -> Iterator[dict[str, Any]]:
    """Files in a checkpoint. Nothing checks its text: what is not UTF-8 is replaced, as in a log of JSON."""

    def texts(column: pa.Array) -> list[str | None]:
        cells = column.cast(pa.binary()).to_pylist()
        return [None if cell is None else cell.decode("utf-8", "replace") for cell in cells]

    values = pc.struct_field(found, "partitionValues")
    keys, items, ends = texts(values.keys), texts(values.items), values.offsets.to_pylist()
    told = any(field.name == "deletionVector" for field in found.type)
    vectors = pc.struct_field(found, "deletionVector").to_pylist() if told else None
    for n, path in enumerate(texts(pc.struct_field(found, "path"))):
        own = slice(ends[n], ends[n + 1])
        partition = dict(zip(keys[own], items[own], strict=True))
        yield {"path": path, "partitionValues": partition, "deletionVector": vectors and vectors[n]}
