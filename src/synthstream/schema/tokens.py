"""What a condition on rows is written in: words, names, numbers, texts and signs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from synthstream.errors import SchemaError

TIMES = ("DATE", "TIMESTAMP")
_LONGEST = 10_000  # characters
_MOST = 500  # words and signs: long chains take polars minutes
_SHOWN = 6  # columns or values that a message names
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![^\W\d]))
    | (?P<word>[^\W\d]\w*)
    | (?P<sign><=|>=|==|!=|<>|[=<>+\-*/%(),])
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """One of a condition: its kind, which is a group of the expression above, and how it is written."""

    kind: str
    text: str


def tokenised(text: str) -> list[Token]:
    """The words, names, numbers, texts and signs of a condition, in order.

    Raises:
        SchemaError: it is empty or too long, or holds what is none of these.
    """
    found, place = [], 0
    text = text.rstrip()
    if len(text) > _LONGEST:
        raise SchemaError(f"where: is longer than {_LONGEST:,} characters")
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise SchemaError(
                f"where: {text!r} cannot be read from {text[place:].strip()[:20]!r} on. Write it like age >= 60 AND "
                "zone = 'A', texts in single quotes."
            )
        found.append(Token(match.lastgroup, match[match.lastgroup]))
        place = match.end()
    if len(found) > _MOST:
        raise SchemaError(f"where: has more than {_MOST} words and signs")
    if not found:
        raise SchemaError("where: is empty; write it like age >= 60 AND zone = 'A'")
    return found


def is_column(token: Token, columns: Sequence[str]) -> bool:
    """Whether it is the name of one of these columns."""
    return token.kind in ("word", "name") and unquoted(token) in columns


def unquoted(token: Token) -> str:
    """What it says, without quotes."""
    if token.kind not in ("text", "name"):
        return token.text
    return token.text[1:-1].replace(token.text[0] * 2, token.text[0])


def quoted(name: str) -> str:
    """A column's name as a condition may always write it."""
    return '"' + name.replace('"', '""') + '"'


def first(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
