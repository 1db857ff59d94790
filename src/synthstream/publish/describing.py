"""The columns of published files in words: what a reader, or a portal, needs to know of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from synthstream.config.config import StreamConfig
from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.columns import MISSING, Boolean, Category, Column
from synthstream.schema.coordinates import Coordinate

Kind = Literal["string", "integer", "number", "boolean", "datetime"]


@dataclass(frozen=True, kw_only=True)
class FieldFacts:
    """One column of a published file.

    Args:
        minimum, maximum: of numbers, both included; of times, ISO texts.
        bins: number of parts of the range that were counted apart.
        title, unit: what people call it, and what it is measured in.
        empty: whether a cell may be null.
    """

    name: str
    kind: Kind
    description: str
    values: tuple[str, ...] = ()
    minimum: float | str | None = None
    maximum: float | str | None = None
    bins: int | None = None
    empty: bool = True
    title: str | None = None
    unit: str | None = None


def rows_fields(config: StreamConfig) -> list[FieldFacts]:
    """The columns of ``rows.parquet``."""
    return [_with_words(_of_rows(column), column) for column in config.schema.columns]


def tables_fields(config: StreamConfig) -> list[FieldFacts]:
    """The columns of ``tables.parquet``."""
    return _of_nodes(config) if config.workload is None else _of_tables(config)


def measured_fields() -> list[FieldFacts]:
    """The column of ``measured.parquet``."""
    words = "What passed the gate at this tick, for machines: enough to build the release again."
    return [FieldFacts(name="released", kind="integer", description=words, empty=False)]


def _with_words(field: FieldFacts, column: Column) -> FieldFacts:
    """The same, with what the configuration tells of the column."""
    words, unit = column.words, column.words.unit
    parts = (words.description and words.description.rstrip(".") + ".", field.description, unit and f"Unit: {unit}.")
    return replace(field, title=words.label, unit=unit, description=" ".join(part for part in parts if part))


def _of_rows(column: Column) -> FieldFacts:
    fold = getattr(column, "missing", None)
    empty = MISSING in column.own_cells
    absent = "Null stands for missing." if empty else f"Missing cells count as {_said(fold)}."
    common: dict[str, Any] = {"name": column.name, "empty": empty}
    if isinstance(column, Category):
        values = tuple(label for label in column.labels if not (empty and label == MISSING))
        rest = "other" if column.other is None else column.other
        words = f"One of {len(column.values)} values; any other value counts as {rest}. {absent}"
        return FieldFacts(kind="string", description=words, values=values, **common)
    if isinstance(column, Boolean):
        return FieldFacts(kind="boolean", description=f"True or false. {absent}", **common)
    if isinstance(column, Datetime):
        return _of_times(column, absent, common)
    if isinstance(column, Integer | Number | Coordinate):
        bins, cut = (None, "") if isinstance(column, Coordinate) else _cut(column)
        whole = isinstance(column, Integer)
        words = f"A {'whole ' if whole else ''}number from {column.min} to {column.max}; values beyond are moved there."
        return FieldFacts(
            kind="integer" if whole else "number",
            description=f"{words}{cut} {absent}",
            minimum=column.min,
            maximum=column.max,
            bins=bins,
            **common,
        )
    raise TypeError(f"{type(column).__name__}: nobody has said how to describe such a column")


def _cut(column: Integer | Number) -> tuple[int | None, str]:
    """Into how many bins a range is cut, if it is, and a sentence on it."""
    bins = len(column.edges) - 1
    if column.cuts is not None:
        starts = ", ".join(f"{edge:g}" for edge in column.edges[:-1])
        return bins, f" Counted in {bins} bins that begin at {starts}, and uniform within each."
    if column.scale is not None:
        return bins, f" Counted in {bins} bins of equal width on a logarithmic scale."
    if isinstance(column, Integer) and column.width is not None:
        return bins, f" Counted in bins of {column.width}, and uniform within each."
    if column.bins is None:
        return None, ""
    return column.bins, f" Counted in {column.bins} equal bins, and uniform within each."


def _of_times(column: Datetime, absent: str, common: dict[str, Any]) -> FieldFacts:
    zone = f"on the wall clock of {column.timezone}"
    if column.part is not None:
        low, high = int(column.edges[0]), int(column.edges[-1]) - 1
        words = f"The {column.part} of a time {zone}, from {low} to {high}. {absent}"
        return FieldFacts(kind="integer", description=words, minimum=low, maximum=high, **common)
    low_time, high_time = (None if t is None else t.replace(tzinfo=None).isoformat() for t in (column.min, column.max))
    words = f"A time {zone}. Counted in {column.bins} equal bins, and uniform within each. {absent}"
    return FieldFacts(
        kind="datetime", description=words, minimum=low_time, maximum=high_time, bins=column.bins, **common
    )


def _said(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_tables(config: StreamConfig) -> list[FieldFacts]:
    fields: list[FieldFacts] = []
    late = "Last tick that measured counts: larger tables are measured when the stream has grown."
    order = 0 if config.workload is None else max(len(marginal) for marginal in config.workload.marginals)
    for k in range(1, order + 1):
        words = f"Name of column {k} of a table; null if the table has fewer columns."
        fields.append(FieldFacts(name=f"column_{k}", kind="string", description=words, values=config.schema.names))
        words = f"Its value, or bin, in this cell; {MISSING} and other are cells of their own."
        fields.append(FieldFacts(name=f"value_{k}", kind="string", description=words))
    return [
        *fields,
        FieldFacts(
            name="count", kind="integer", description="Number of synthetic rows in the cell.", minimum=0, empty=False
        ),
        FieldFacts(
            name="measured",
            kind="number",
            description="The noisy count of the cell; may be negative. Null if it was not measured at this tick.",
        ),
        FieldFacts(
            name="stderr",
            kind="number",
            description="Standard error of the noise in measured. Null if it is not known.",
        ),
        FieldFacts(name="since", kind="integer", description="First tick that measured counts."),
        *([FieldFacts(name="measured_at", kind="integer", description=late)] if config.measures == "refresh" else []),
    ]


def _of_nodes(config: StreamConfig) -> list[FieldFacts]:
    fields = [
        FieldFacts(
            name="level", kind="integer", description="How often the box was cut in halves.", minimum=0, empty=False
        ),
        FieldFacts(name="node", kind="integer", description="Number of the part on its level.", minimum=0, empty=False),
    ]
    for column in config.schema.columns:
        if isinstance(column, Coordinate):
            for end in ("from", "to"):
                words = f"Where the part {'begins' if end == 'from' else 'ends'} along {column.name}."
                fields.append(
                    FieldFacts(
                        name=f"{column.name} {end}",
                        kind="number",
                        description=words,
                        minimum=column.min,
                        maximum=column.max,
                        empty=False,
                    )
                )
    halves = "left half minus right half, noisy, since the number of events last doubled"
    what = halves if config.synthesizer.kind == "points" else "the noisy count"
    sides = {"": ""} if config.op is None else {"": ", of events that were added", " away": ", of those taken away"}
    fields.append(FieldFacts(name="count", kind="number", description="Synthetic events in the part.", empty=False))
    for side, of in sides.items():
        fields += [
            FieldFacts(
                name=f"measured{side}",
                kind="number",
                description=f"What was measured at this tick{of}: {what}. Null if nothing was.",
            ),
            FieldFacts(
                name=f"stderr{side}",
                kind="number",
                description=f"Standard error of the noise in measured{side}. Null if it is not known.",
            ),
        ]
    return fields
