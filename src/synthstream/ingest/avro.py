"""Messages in Avro, each behind the number by which a schema registry knows its schema (Confluent's wire format).

A message becomes what an object of JSON becomes: names and texts, so that all that follows is the same. What cannot be
read is a row in which every column is missing, as with JSON: a number that the registry does not know, a schema that is
no record, content that is too short or too long for it. Nor is a schema read that contains itself, or of which a few
bytes could be very many values: a short message of these nests deeper than a process can follow, or fills its memory.

A registry that does not answer ends the run: whether it does is asked at each look, whatever messages there are. Its
numbers never change their meaning, so the next run reads the same. A number of which alone it says nothing, or nothing
that can be used, is one that it does not know: what a message names must not decide whether anything is read.
"""

from __future__ import annotations

import base64
import io
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

import numpy as np
from fastavro import parse_schema, schemaless_reader
from typing_extensions import override

from synthstream.errors import SourceError
from synthstream.ingest.changes import CHANGE

PREFIX = "schema.registry."  # of settings in the operator's file
ADDRESS = "KAFKA_SCHEMA_REGISTRY_URL"

_Value = Callable[[Any], Any]

_PATIENCE = 10.0  # seconds for an answer
_LARGEST = 2**24  # bytes of a message that is looked into
_HEAD = 5  # bytes before the content: 0, and the schema's number
_DIGITS = 64  # bytes of a decimal number that is read, and places behind its point
_UNKNOWN = (40401, 40402, 40403)  # what registries answer if they have no such subject, version or schema
_VALUES = 10_000  # of one message without lists
_OF_BYTES = 16  # in lists, a byte may become so many times the memory of other content
_NESTED = 2  # records that are read: the message, and what a change holds of a row
_NOTHING: dict[str, Any] = {}
_START = datetime(1970, 1, 1, tzinfo=UTC)
_BYTES = {"null": 0, "float": 4, "double": 8} | dict.fromkeys(("boolean", "int", "long", "bytes", "string", "enum"), 1)

# Numbers that are moments or dates, by their unit. Names with dots are those of Debezium and of Kafka Connect.
_MOMENTS: dict[str, Callable[[int], timedelta]] = {
    "date": lambda n: timedelta(days=n),
    "io.debezium.time.Date": lambda n: timedelta(days=n),
    "timestamp-millis": lambda n: timedelta(milliseconds=n),
    "timestamp-micros": lambda n: timedelta(microseconds=n),
    "local-timestamp-millis": lambda n: timedelta(milliseconds=n),
    "local-timestamp-micros": lambda n: timedelta(microseconds=n),
    "io.debezium.time.Timestamp": lambda n: timedelta(milliseconds=n),
    "io.debezium.time.MicroTimestamp": lambda n: timedelta(microseconds=n),
    "io.debezium.time.NanoTimestamp": lambda n: timedelta(microseconds=n // 1000),
}
_WITHOUT_ZONE = ("local-", "io.debezium.")
_DATES = ("date", "io.debezium.time.Date")


class AvroMessages:
    """Reads messages by their schemas, which it asks a registry for, once each.

    Args:
        name: of the source, in messages.
        settings: ``url``; ``basic.auth.user.info``, as ``user:password``; ``ssl.ca.location``, a file of certificates.

    Raises:
        SourceError: a setting is missing, unknown, or cannot be.
    """

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        self._name, self._known, self._unknown = name, dict[int, _Record | None](), set[int]()
        self._subject, self._wanted = "/subjects", frozenset[str]()
        for key in settings.keys() - {"url", "basic.auth.user.info", "ssl.ca.location"}:
            raise SourceError(
                f'{name}: "{PREFIX}{key}" is not read. Settings are url, basic.auth.user.info and ssl.ca.location'
            )
        url = urlsplit(settings.get("url", ""))
        if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc:
            raise SourceError(
                f"{name}: no schema registry is named. Set {ADDRESS}, as in {ADDRESS}=https://registry:8081, or "
                f"{PREFIX}url in config_file; a user goes into {PREFIX}basic.auth.user.info"
            )
        self._url = url.geturl().rstrip("/")
        try:
            context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
        except OSError:
            raise SourceError(f"{name}: {PREFIX}ssl.ca.location: there are no certificates in this file") from None
        self._opener = build_opener(_Straight(), HTTPSHandler(context=context))
        self._opener.addheaders = [("Accept", "application/vnd.schemaregistry.v1+json"), ("User-Agent", "synthstream")]
        if user := settings.get("basic.auth.user.info"):
            self._opener.addheaders.append(("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}"))

    def look(self, topic: str, columns: Sequence[str], inside: str | None) -> None:
        """Ask for the newest schema of a topic, if its subject has the usual name; the registry answers in any case.

        Args:
            topic: whose messages are read.
            columns: fields that the schema must have; no others are read.
            inside: the field that holds them; left out: the record itself.

        Raises:
            SourceError: the registry does not answer; the schema cannot be read, or lacks a field.
        """
        self._wanted = frozenset([*columns, *CHANGE])
        self._subject, self._unknown = f"/subjects/{quote(f'{topic}-value', safe='')}/versions/latest", set()
        told = self._asked(self._subject)
        if told is None:
            return
        record, subject = _record_of(told, self._wanted), f"{self._name}: the newest schema of {topic}-value"
        if record is None:
            raise SourceError(
                f"{subject} cannot be read: it must be a record in Avro that does not contain itself, with no lists "
                "of empty values, and its references resolved by the registry"
            )
        fields = record.fields if inside is None else record.within(inside)
        for column in columns:
            if fields is not None and column not in fields:
                raise SourceError(f"{subject} has no field {column!r}; its fields are {sorted(fields)}")

    def object_of(self, content: bytes | None) -> dict[str, Any]:
        """Names and texts of a message; without any names if it cannot be read.

        Raises:
            SourceError: the registry does not answer.
        """
        if content is None or not _HEAD < len(content) <= _LARGEST or content[0] != 0:
            return _NOTHING
        number = int.from_bytes(content[1:_HEAD], "big")
        if number in self._unknown:
            return _NOTHING
        if number not in self._known:
            try:
                told = self._asked(f"/schemas/ids/{number}")
            except SourceError:
                self._asked(self._subject)  # raises, if it is not about the number
                told = None
            if told is None:  # until the next look: it may be given to a schema later
                self._unknown.add(number)
                return _NOTHING
            self._known[number] = _record_of(told, self._wanted)
        record = self._known[number]
        return _NOTHING if record is None else record.read(content[_HEAD:])

    def _asked(self, path: str) -> dict[str, Any] | None:
        """What the registry says of a schema; ``None`` if it says that it has none."""
        try:
            with self._opener.open(f"{self._url}{path}?format=resolved", timeout=_PATIENCE) as answer:
                told = json.loads(answer.read())
            if isinstance(told, dict) and isinstance(told.get("schema"), str):
                return told
            what = "answers, but not as a schema registry does"
        except HTTPError as error:
            if error.code == 404 and _code_of(error) in _UNKNOWN:
                return None
            refused = error.code in (401, 403)
            what = "refused user or password" if refused else f"answers {error.code}, and not as a registry does"
        except (OSError, HTTPException, ValueError, RecursionError):
            what = "does not answer"
        raise SourceError(
            f"{self._name}: the schema registry {what}. Check {ADDRESS} and the {PREFIX} settings in config_file. What "
            "was counted is committed; run again to go on."
        )


def _code_of(error: HTTPError) -> Any:
    """What an answer says is wrong, in the registry's own number."""
    try:
        return json.loads(error.read())["error_code"]
    except (OSError, HTTPException, ValueError, TypeError, KeyError, RecursionError):
        return None


class _Straight(HTTPRedirectHandler):
    """Follows to nowhere: the password is for this server alone."""

    @override
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Record:
    """A schema that is a record. Raises whatever it may if it is none, or one that is not read."""

    def __init__(self, schema: Any, wanted: frozenset[str]) -> None:
        named = dict[str, Any]()
        schema = _without(schema, "__")  # marks by which the library knows what it has parsed itself
        whole: Any = parse_schema(schema, named)
        shape = _shape(whole, named, {})
        if shape.values > _VALUES:
            raise ValueError("too many values")
        self._largest = _LARGEST if not shape.by_byte else int(_LARGEST / (_OF_BYTES * shape.by_byte))
        self._named, self.fields = named, {field["name"]: field["type"] for field in whole["fields"]}
        # Numbers are read as numbers: what they mean is told cell by cell, as one that means nothing is missing.
        self._plain = parse_schema(_without(schema, "logicalType"))
        self._value = _value_of(whole, named, wanted, 0)

    def within(self, name: str) -> list[str] | None:
        """Names of the fields of a field that is a record, or null; ``None`` if it is something else."""
        kinds = self.fields.get(name, "null")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            found = self._named.get(kind, kind) if isinstance(kind, str) else kind
            if isinstance(found, dict) and found["type"] == "record":
                return [field["name"] for field in found["fields"]]
        return None

    def read(self, content: bytes) -> dict[str, Any]:
        """Texts of a message; without any if it is no such record."""
        if len(content) > self._largest:
            return _NOTHING
        file = io.BytesIO(content)
        try:
            found = schemaless_reader(file, self._plain, handle_unicode_errors="replace")
            read: dict[str, Any] = self._value(found)
        except Exception:  # the library raises what it may, and no row may end a run
            return _NOTHING
        return read if file.tell() == len(content) else _NOTHING


def _record_of(told: dict[str, Any], wanted: frozenset[str]) -> _Record | None:
    """The schema in an answer; ``None`` if it is no record, or one that is not read."""
    try:
        if told.get("schemaType", "AVRO") != "AVRO":
            return None
        schema = json.loads(told["schema"])
        return _Record(schema, wanted) if schema["type"] == "record" else None
    except Exception:  # a message names the schema, so no schema may end a run
        return None


def _without(schema: Any, start: str) -> Any:
    """A schema without the keys that begin with a text."""
    if isinstance(schema, list):
        return [_without(one, start) for one in schema]
    if isinstance(schema, dict):
        return {key: _without(one, start) for key, one in schema.items() if not key.startswith(start)}
    return schema


class _Shape(NamedTuple):
    """How large a value may be: bytes at least, values at most, and how many values a byte of its lists may become."""

    least: int
    values: int
    by_byte: float = 0.0


def _shape(schema: Any, named: Mapping[str, Any], known: dict[str, _Shape | None]) -> _Shape:
    """The shape of a value. Raises if it may contain itself, or if a list could be of no bytes."""
    if isinstance(schema, list):
        parts = [_shape(one, named, known) for one in schema]
        return _Shape(1 + min(p.least for p in parts), max(p.values for p in parts), max(p.by_byte for p in parts))
    kind = schema["type"] if isinstance(schema, dict) else schema
    if not isinstance(schema, dict) and kind in named:
        schema, kind = named[kind], named[kind]["type"]
    if kind == "record":
        name = schema["name"]
        if name not in known:
            known[name] = None
            parts = [_shape(field["type"], named, known) for field in schema["fields"]]
            sums = sum(p.least for p in parts), 1 + sum(p.values for p in parts)
            known[name] = _Shape(*sums, max((p.by_byte for p in parts), default=0.0))
        found = known[name]
        if found is None:
            raise ValueError("contains itself")
        return found
    if kind in ("array", "map"):
        item = _shape(schema["items" if kind == "array" else "values"], named, known)
        least = item.least + (kind == "map")  # a key has a byte at least
        if not least:
            raise ValueError("a list of what takes no byte")
        return _Shape(1, 1, max(item.by_byte, 1.0) * item.values / least)
    least = int(schema["size"]) if kind == "fixed" else _BYTES[kind]
    if least < 0:
        raise ValueError("less than no byte")
    return _Shape(least, 1)


def _value_of(schema: Any, named: Mapping[str, Any], wanted: frozenset[str], depth: int) -> _Value:
    """What turns a value of a schema into a text, ``True``, ``False`` or ``None``, or a record into a dict of these."""
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        value = _value_of(kinds[0], named, wanted, depth) if len(kinds) == 1 else _text
        return lambda found: None if found is None else value(found)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    if not isinstance(schema, dict):
        return _single if schema == "float" else _text
    meaning, kind = schema.get("logicalType") or schema.get("connect.name"), schema["type"]
    if kind == "record":
        fields = {f["name"]: f["type"] for f in schema["fields"] if f["name"] in wanted} if depth < _NESTED else {}
        values = {name: _value_of(one, named, wanted, depth + 1) for name, one in fields.items()}
        return lambda found: {name: value(found[name]) for name, value in values.items()}
    if meaning == "decimal" and kind in ("bytes", "fixed"):
        scale = schema.get("scale", 0)
        return partial(_decimal, scale=scale if type(scale) is int and 0 <= scale <= _DIGITS else None)
    if isinstance(meaning, str) and meaning in _MOMENTS and kind == ("int" if meaning in _DATES else "long"):
        return partial(_moment, meaning=meaning)
    return _single if kind == "float" else _text


def _text(found: Any) -> Any:
    """Numbers as they are written; what is nested, or bytes, has no text."""
    if isinstance(found, int | float) and not isinstance(found, bool):
        return str(found)
    return found if isinstance(found, str | bool) else None


def _single(found: float) -> str:
    """A number of single precision as it was written: .1, not .10000000149."""
    return str(np.float32(found))


def _decimal(found: bytes, scale: int | None) -> str | None:
    if len(found) > _DIGITS or scale is None:
        return None
    return format(Decimal(f"{int.from_bytes(found, 'big', signed=True)}e-{scale}"), "f")


def _moment(found: int, meaning: str) -> str | None:
    try:
        at = _START + _MOMENTS[meaning](found)
    except OverflowError:
        return None
    if meaning in _DATES:
        return at.date().isoformat()
    return (at.replace(tzinfo=None) if meaning.startswith(_WITHOUT_ZONE) else at).isoformat()
