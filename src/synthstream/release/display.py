"""How a release shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from html import escape
from typing import Any

import polars as pl

from synthstream.errors import SinkError, StateError
from synthstream.measured import NOT_PRIVATE
from synthstream.schema.clock import written
from synthstream.schema.columns import Column
from synthstream.schema.schema import Schema

# Rows that are shown.
_PREVIEW = 5

_CARD = """<div style="border: 1px solid #8888; border-radius: 6px; padding: 0.8em 1em; max-width: 60em">
<div><strong>{name}</strong> &middot; {about}</div>
{warning}<p style="margin: 0.5em 0">{claim}</p>
{body}</div>"""
_ROWS = """<p style="margin: 0.5em 0">{rows:,} synthetic rows{begin}</p>
<div style="overflow-x: auto">{preview}</div>{columns}"""
_WARNING = """<p style="color: #b00020; font-weight: bold; margin: 0.5em 0">{words}</p>
"""


def shown(rows: Callable[[], pl.DataFrame], number: int, schema: Schema) -> str:
    """Of so many rows the first, and what is told of the columns, in HTML. Everything is escaped."""
    begin = f"; the first {_PREVIEW}:" if number > _PREVIEW else ""
    try:
        with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            preview = rows().head(_PREVIEW)._repr_html_()
    except SinkError as error:  # rows that were dropped, most of all
        preview = f"<p>{escape(str(error))}</p>"
    columns = "".join(map(_column, schema.columns))
    return _ROWS.format(rows=number, begin=begin, preview=preview, columns=columns)


def card_of_stream(name: str, ask: Callable[[], Mapping[str, Any]]) -> str:
    """A stream as a small card, from its public status: how far it is, and what it promises; or that it is closed."""
    try:
        status = ask()
    except StateError:
        return framed(name, "closed", "")
    horizon, end = status["horizon"], status["last_end"]
    about = f"{status['released']:,} releases of {'no end' if horizon is None else f'{horizon:,}'}"
    about += "" if end is None else f", events before {written(datetime.fromisoformat(end))}"
    words = " ".join(str(claim["words"]) for claim in status["spent"])
    return framed(status["name"], about, words, secure=status["secure"])


def framed(name: str, about: str, claim: str, *, body: str = "", secure: bool = True) -> str:
    """A small card in HTML: what it is, and what is promised.

    Args:
        body: HTML; all else is escaped.
        secure: whether the noise came from the operating system; otherwise it says so once, above the claim.
    """
    return _CARD.format(
        name=escape(name),
        about=escape(about),
        warning="" if secure else _WARNING.format(words=escape(NOT_PRIVATE)),
        claim=escape(claim.replace(f"{NOT_PRIVATE}. ", "")),
        body=body,
    )


def _column(column: Column) -> str:
    """What is told of a column, if anything is."""
    if not (column.words.label or column.words.description or column.words.unit):
        return ""
    description = "" if column.words.description is None else f": {escape(column.words.description)}"
    return f'<p style="margin: 0.2em 0"><code>{escape(column.name)}</code> {escape(column.title)}{description}</p>'
