"""What to think about in values and bins of columns before a stream is opened."""

from __future__ import annotations

import math
from collections.abc import Iterator

from synthstream.config.config import StreamConfig
from synthstream.forecast.dates import of_dates
from synthstream.schema.binned import Integer, Number
from synthstream.schema.columns import MISSING, OTHER, Category
from synthstream.schema.conditions import first
from synthstream.schema.districts import OfPlace

# Values that sound like own cells, and which cells count there.
_OWN = {OTHER: ("other", "others"), MISSING: ("missing", "unknown")}
_WHOSE = {OTHER: "unlisted", MISSING: "empty"}
# A first bin for 0 is so much narrower than the next one, or more.
_NARROWER = 10


def of_values(config: StreamConfig) -> Iterator[tuple[str, str]]:
    """Warnings of columns: what it is about, and the words."""
    yield from (("synthesizer.marginals", each) for each in _in_no_table(config))
    yield from (("privacy.unit.person", each) for each in _of_keys(config))
    yield from of_dates(config)
    for column in config.schema.columns:
        words: Iterator[str] = iter(())
        if isinstance(column, Category) and column.type == "category":
            words = _of_list(column)
        elif isinstance(column, Number):
            words = _bins_of_zero(column)
        elif isinstance(column, Integer):
            words = _bins_of_max(column)
        yield from ((f"columns.{column.name}", each) for each in words)


def _in_no_table(config: StreamConfig) -> Iterator[str]:
    """Columns of which nothing is measured. A place is measured by any of its columns, in part."""
    columns, workload = config.schema.columns, config.workload
    if workload is None:
        return
    there = {columns[c] for marginal in workload.marginals for c in marginal}
    places = {column.place for column in there if isinstance(column, OfPlace)}
    left = [c.name for c in columns if c not in there and not (isinstance(c, OfPlace) and c.place in places)]
    if left:
        yield (
            f"No table holds {first(left)}. Nothing is measured of them, and rows have their values in equal parts, "
            f'whatever the data hold. List each, as in ["{left[0]}"]. Or say near = {len(columns)} as well: then all '
            "tables of one column and of two are there, too."
        )


def _of_keys(config: StreamConfig) -> Iterator[str]:
    """Keys of persons that are published."""
    if config.privacy.person in config.schema.read_from:
        yield (
            f"The column {config.privacy.person!r} stands in [[columns]], too, so each published row has a key. A list "
            "of keys is public, as part of the settings. If keys are people's, take it out there; those of stations or "
            "shops may stay."
        )


def _bins_of_max(column: Integer) -> Iterator[str]:
    """Bins that would be even without ``max`` itself, as 0 to 100 in 10: with it each is wider by one."""
    bins, reach = column.bins, column.max - column.min
    if bins is None or bins == 1 or column.scale is not None or reach % bins:
        return
    edges = [int(edge) for edge in column.edges]
    each, last = edges[1] - edges[0], edges[-1] - edges[-2]
    if 2 * last <= each:
        yield (
            f"max = {column.max} lies in the range: of its {reach + 1:,} whole numbers each bin holds {each:,}, and "
            f"the last one {last:,}. With max = {column.max - 1} each of {bins:,} holds {reach // bins:,}."
        )


def _of_list(column: Category) -> Iterator[str]:
    """Values that sound like the column's own cells, which would stand beside them; and values that cells of a boolean
    type do not meet, as these are read as the texts true and false.
    """
    for key, sounds in _OWN.items():
        found = [value for value in column.values if value.strip().casefold() in sounds]
        if found and key in column.own_cells:
            yield (
                f"The list has {found[0]!r}, and {_WHOSE[key]} cells count as {key!r}, a value beside it. If both are "
                f'the same, say {key} = "{found[0]}".'
            )
    found = [value for value in column.values if value.lower() in ("true", "false") and value != value.lower()]
    if found and not {"true", "false"} & set(column.values):
        yield (
            f"The list has {found[0]!r}, and cells of a boolean type, as a frame may have, are read as "
            f'{found[0].lower()!r}: none of them is on the list. Say type = "boolean", which reads all of these.'
        )


def _bins_of_zero(column: Number) -> Iterator[str]:
    """A first bin that looks as if it were there for 0, and comes back as numbers above it."""
    low, end, after = (*column.edges, 0.0)[:3]
    if column.decimals is None and low == 0 and end <= 1 and after > _NARROWER * end:
        yield (
            f"Rows of the first bin of {column.name!r} lie anywhere from 0 to {end:g}, so hardly any is 0, and "
            f"nearly all rows are > 0. If 0 is all that it holds, say decimals = {math.floor(-math.log10(end))}."
        )
