"""Where events come from, [source]: files, or a log. Passwords never stand there."""

from __future__ import annotations

import codecs
import glob
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, PrivateAttr
from pydantic_core import PydanticCustomError
from typing_extensions import override

from synthstream.config.keys import Name, Place, Section, Service
from synthstream.config.objects import ObjectPath, fits, place_of
from synthstream.errors import ConfigError
from synthstream.kinds import FileKind
from synthstream.schema.dialects import holds, zoned


def _files(path: object) -> object:
    return place_of(path, os.path.expanduser) if isinstance(path, str) else path


_ASCII = bytes(range(128)).decode("ascii")


def _encoding(name: str) -> str:
    """A name of an encoding in which no byte can change how the bytes after a line end are read."""
    try:
        known = codecs.lookup(name).name.removesuffix("-sig")
        table = getattr(import_module(f"encodings.{known.replace('-', '_')}"), "decoding_table", "")
    except (LookupError, ImportError):
        known, table = "", ""
    if known not in ("utf-8", "iso8859-1", "ascii") and table[:128] != _ASCII:
        raise PydanticCustomError(
            "encoding", 'use "utf-8", or one with a byte for each character, such as "windows-1252" or "iso-8859-15"'
        )
    return known


def _header(value: object) -> int | tuple[str, ...]:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1000:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) and name for name in value):
        return tuple(str(name) for name in value)
    raise PydanticCustomError(
        "header", "say in which line the names stand, as in 1; or, of files without names, list them in their order"
    )


def _formats(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = value if isinstance(value, dict) and value else {"*": value}
    forms: dict[str, Any] = {name: (one,) if isinstance(one, str) else one for name, one in found.items()}
    for name, one in forms.items():
        if not isinstance(one, list | tuple) or not one or not all(isinstance(form, str) for form in one):
            raise PydanticCustomError("formats", "say a form such as %d.%m.%Y, a list of forms, or a table by column")
        forms[name] = one = [form.replace(".%f", "%.f") for form in one]  # as Python writes a fraction
        wrong = [form for form in one if holds(form) is None]
        if wrong:
            raise PydanticCustomError(
                "formats",
                "{form}: no form of a date, or of an hour with its minutes. Write it as in %d.%m.%Y, %H:%M or "
                "%I:%M %p (%p goes with %I, not with %H), or say seconds, milliseconds or microseconds of a number "
                "since 1970; a number of hours alone is an integer",
                {"form": repr(wrong[0])},
            )
        if len(set(map(zoned, one))) > 1:
            raise PydanticCustomError(
                "formats",
                "of several forms some have an offset, as %z and numbers since 1970, and some have none; all must, or "
                "none",
            )
    return tuple((name, tuple(one)) for name, one in forms.items())


_SIGN = r"[^\r\n\x00\w]"
_GROUPS = Literal[
    "", ".", ",", " ", "'", "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}", "\N{RIGHT SINGLE QUOTATION MARK}"
]
Formats = Annotated[tuple[tuple[str, tuple[str, ...]], ...], PlainValidator(_formats)]


class Dated(Section):
    """What may write times in its own way.

    Args:
        datetime_format: in which forms texts write times, the first that fits: for all, or by the column's name.
    """

    datetime_format: Formats = ()

    @property
    def formats(self) -> Mapping[str, tuple[str, ...]]:
        """In which forms texts write times, by column; ``*`` stands for all others. Where none is: ISO 8601."""
        return dict(self.datetime_format)


class Dialect(Section):
    """How a CSV file writes what it holds. All of it is public, and may change while a stream runs, but ``multiline``.

    Args:
        delimiter: stands between cells.
        quote: stands around a cell that holds a delimiter; empty: nothing does.
        encoding: of its bytes.
        header: in which line, from 1, the names of the columns stand; or the names themselves, if no line has them.
        decimal: stands before the fraction of a number.
        thousands: stands between groups of three digits; empty: nothing does.
        multiline: whether a cell in quotation marks may hold line ends.
    """

    delimiter: Annotated[str, Field(pattern=f"^{_SIGN}$")] = ","
    quote: Annotated[str, Field(pattern=f"^{_SIGN}?$")] = '"'
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    header: Annotated[int | tuple[str, ...], PlainValidator(_header)] = 1
    decimal: Literal[".", ","] = "."
    thousands: _GROUPS = ""
    multiline: bool = False

    def check(self) -> None:
        """Raise ``ConfigError`` unless its signs can be told apart."""
        for one, other in (("delimiter", "quote"), ("decimal", "thousands")):
            if getattr(self, one) == getattr(self, other):
                raise ConfigError(f"{other}: is {one} too; they must differ")


def fitting(pattern: str) -> Iterator[str]:
    """Paths that fit an absolute pattern, as :func:`glob.glob` finds them, but without going round in circles."""
    above, *below = re.split(r"(?:/\*\*)+(?=/|$)", pattern, maxsplit=1)
    if not below:
        yield from glob.iglob(pattern)
        return
    for top in glob.iglob(above or "/"):
        for folder in _folders(top):
            yield from fitting(glob.escape(folder) + (below[0] or "/*"))


def may_fit(pattern: Path, path: Path) -> bool:
    """Whether a file would fit an absolute pattern, if it were there; of hidden names the answer is yes."""
    parts = pattern.parts
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    roots = {Path(*parts[:fixed]), Path(*parts[:fixed]).resolve()}
    names = {Path(os.path.abspath(path)), path.resolve()}
    inside = [name.relative_to(root).parts for root in roots for name in names if name.is_relative_to(root)]
    return any(fits(below, parts[fixed:], hidden=True) for below in inside)


def _folders(top: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """A folder and those below it, links too, unless they lead back into a folder that they were found in."""
    if (real := os.path.realpath(top)) not in above:
        yield top
        with suppress(OSError):
            for name in sorted(os.listdir(top)):
                if not name.startswith(".") and os.path.isdir(path := os.path.join(top, name)):
                    yield from _folders(path, (*above, real))


class Files(Section):
    """Files to count.

    Args:
        path: a file or a pattern; of this machine, or of an object store (``s3://...``).
        moved: the folder of the files, or the one file, as the state knows it from before it was moved.
    """

    kind: FileKind
    path: Annotated[Place, BeforeValidator(_files)]
    moved: Annotated[Name, AfterValidator(lambda path: os.path.normpath(os.path.expanduser(path)))] | None = None
    _root: Path | None = PrivateAttr(default=None)

    @override
    def model_post_init(self, context: Path | None, /) -> None:
        self._root = None if self.path.is_absolute() or isinstance(self.path, ObjectPath) else context

    @property
    def root(self) -> Path | None:
        """The folder that names of files start from, if the path was configured relative to it: that of
        ``stream.toml``. ``None``: names are absolute.
        """
        return self._root

    @property
    def dialect(self) -> Dialect:
        """How its text is written, if it is CSV."""
        return Dialect()

    @property
    def formats(self) -> Mapping[str, tuple[str, ...]]:
        """As those of :class:`Dated`; none."""
        return {}


class ParquetFiles(Files):
    """Parquet files to count."""

    kind: Literal["parquet"]


class CsvFiles(Dated, Files, Dialect):
    """CSV files to count."""

    kind: Literal["csv"]

    @property
    @override
    def dialect(self) -> Dialect:
        # A copy, for it is compared: how cells are written, not which files hold them.
        return Dialect.model_construct(**{name: getattr(self, name) for name in Dialect.model_fields})


class JsonFiles(Dated, Files):
    """Files to count with an object of JSON in each line. A key that a line lacks is a missing cell."""

    kind: Literal["jsonl"]


class PostgresConfig(Dated):
    """A table of PostgreSQL that rows are inserted into.

    Args:
        table: its name as SQL writes it, such as ``public.visits``.
        sequence: the column that numbers the rows: an identity, or its default is the next value of a sequence.
        service: in the operator's ``pg_service.conf``; left out: the environment (``PGHOST``, ``PGPASSWORD``, ...).
        moved: what the table was called in the stream's checkpoint before it was moved with all its numbers.
    """

    kind: Literal["postgres"]
    table: Name
    sequence: Name
    service: Service | None = None
    moved: Name | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"postgres {self.table}"

    of_changes: ClassVar[bool] = False
    format: ClassVar[str] = "rows"


class KafkaConfig(Dated):
    """A topic of Kafka.

    Args:
        encoding: ``json``: messages are JSON objects; ``avro``: records in Avro, whose schemas a registry knows.
        format: ``json``: a message is a row; ``debezium``: it is a change of a table, of one row or of two.
        config_file: lines such as ``sasl.password=...`` for librdkafka; ``KAFKA_BOOTSTRAP_SERVERS`` adds the servers.
    """

    kind: Literal["kafka"]
    topic: str = Field(pattern=r"^[\w.-]+$")
    format: Literal["json", "debezium"] = "json"
    encoding: Literal["json", "avro"] = "json"
    config_file: Place | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"kafka {self.topic}"

    @property
    def of_changes(self) -> bool:
        """Whether messages are changes, which add rows and take them away."""
        return self.format == "debezium"


class DeltaConfig(Section):
    """A Delta table.

    Args:
        format: ``rows``: they are only added; ``changes``: versions also say which rows they change or take away.
        path: its folder, of this machine or of an object store (``s3://...``).
    """

    kind: Literal["delta"]
    format: Literal["rows", "changes"] = "rows"
    path: Annotated[Place, BeforeValidator(_files)]
    formats: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"delta {self.path.name}"

    @property
    def of_changes(self) -> bool:
        """Whether versions add rows and take them away."""
        return self.format == "changes"


FilesConfig = ParquetFiles | CsvFiles | JsonFiles
LogConfig = PostgresConfig | KafkaConfig | DeltaConfig
SourceConfig = Annotated[FilesConfig | LogConfig, Field(discriminator="kind")]
