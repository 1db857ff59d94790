"""What to think about in values and bins of columns before a stream is opened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from synthstream.config.config import StreamConfig
from synthstream.schema.binned import Number
from synthstream.schema.columns import MISSING, OTHER, Category, Column

# Values that sound like own cells, and which cells count there.
_OWN = {OTHER: ("other", "others"), MISSING: ("missing", "unknown")}
_WHOSE = {OTHER: "unlisted", MISSING: "empty"}
# A first bin for 0 is so much narrower than the next one, or more.
_NARROWER = 10

# What it is about, and the words.
Warned = tuple[str, str]


def of_values(config: StreamConfig) -> Iterator[Warned]:
    """Warnings of columns, each by itself."""
    columns = config.schema.columns
    lists = [column for column in columns if isinstance(column, Category) and column.type == "category"]
    yield from (*_folds(lists), *_truths(lists), *_bins_of_zero(columns))


def _folds(lists: Sequence[Category]) -> Iterator[Warned]:
    """Values of a list that sound like the column's own cells, which would stand beside them."""
    for column in lists:
        for key, sounds in _OWN.items():
            found = [value for value in column.values if value.strip().casefold() in sounds]
            if found and key in column.own_cells:
                yield (
                    f"columns.{column.name}",
                    f"The list has {found[0]!r}, and {_WHOSE[key]} cells count as {key!r}, a value beside it. If both "
                    f'are the same, say {key} = "{found[0]}".',
                )


def _truths(lists: Sequence[Category]) -> Iterator[Warned]:
    """Values that cells of a boolean type do not meet, as these are read as the texts true and false."""
    for column in lists:
        found = [value for value in column.values if value.lower() in ("true", "false") and value != value.lower()]
        if found and not {"true", "false"} & set(column.values):
            yield (
                f"columns.{column.name}",
                f"The list has {found[0]!r}, and cells of a boolean type, as a frame may have, are read as "
                f'{found[0].lower()!r}: none of them is on the list. Say type = "boolean", which reads all of these.',
            )


def _bins_of_zero(columns: Sequence[Column]) -> Iterator[Warned]:
    """First bins that look as if they were there for 0, and come back as numbers above it."""
    for column in columns:
        if not isinstance(column, Number) or column.decimals is not None:
            continue
        low, end, after = (*column.edges, 0.0)[:3]
        if low == 0 and end <= 1 and after > _NARROWER * end:
            yield (
                f"columns.{column.name}",
                f"Rows of the first bin of {column.name!r} lie anywhere from 0 to {end:g}, so hardly any is 0, and "
                f"nearly all rows are > 0. If 0 is all that it holds, say decimals = {math.floor(-math.log10(end))}.",
            )
