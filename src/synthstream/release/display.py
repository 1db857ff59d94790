"""How a release shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Protocol

import polars as pl

from synthstream.errors import SinkError
from synthstream.measured import NOT_PRIVATE
from synthstream.schema.columns import Column, Words
from synthstream.schema.schema import Schema

# Rows that are shown.
_PREVIEW = 5

_CARD = """<div style="border: 1px solid #8888; border-radius: 6px; padding: 0.8em 1em; max-width: 60em">
<div><strong>{name}</strong> &middot; {about}</div>
{warning}<p style="margin: 0.5em 0">{claim}</p>
<p style="margin: 0.5em 0">{rows:,} synthetic rows{begin}</p>
<div style="overflow-x: auto">{preview}</div>{columns}</div>"""
_WARNING = """<p style="color: #b00020; font-weight: bold; margin: 0.5em 0">{words}</p>
"""


class Shown(Protocol):
    """What is shown: a :class:`synthstream.release.release.Release`."""

    @property
    def name(self) -> str: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def model(self) -> Any: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def secure(self) -> bool: ...
    @property
    def about(self) -> str: ...
    def rows(self) -> pl.DataFrame: ...


def card(release: Shown) -> str:
    """A release as a small card in HTML: what it is, what is promised, and its first rows. Everything is escaped."""
    words = str(release.facts["claim"]["words"])
    return _CARD.format(
        name=escape(release.name),
        about=escape(release.about),
        warning="" if release.secure else _WARNING.format(words=escape(NOT_PRIVATE)),
        rows=release.model.number,
        begin=f"; the first {_PREVIEW}:" if release.model.number > _PREVIEW else "",
        claim=escape(words if release.secure else f"With real noise: {words}"),
        preview=_preview(release),
        columns="".join(map(_column, release.schema.columns)),
    )


def _column(column: Column) -> str:
    """What is told of a column, if anything is."""
    if column.words == Words():
        return ""
    description = "" if column.words.description is None else f": {escape(column.words.description)}"
    return f'<p style="margin: 0.2em 0"><code>{escape(column.name)}</code> {escape(column.title)}{description}</p>'


def _preview(release: Shown) -> str:
    try:
        with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            return release.rows().head(_PREVIEW)._repr_html_()
    except SinkError as error:  # rows that were dropped, most of all
        return f"<p>{escape(str(error))}</p>"
