"""The columns of published files in words: what a reader, or a portal, needs to know of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from synthstream.config.config import StreamConfig
from synthstream.release.rows import weight_name
from synthstream.schema.binned import Datetime, Integer, Number
from synthstream.schema.columns import MISSING, Boolean, Category, Column
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.districts import Districts
from synthstream.schema.places import View

Kind = Literal["string", "integer", "number", "boolean", "datetime"]

_INVENTED = "Where in its bin a row lies is invented."
_UNKNOWN = "No error is known for it: a number with an error bar is measured."
_ERROR = (
    "Standard error of the noise in measured. Null if it is not known. Noise is independent from cell to cell of one "
    "tick, and not from tick to tick."
)


@dataclass(frozen=True)
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


def rows_fields(config: StreamConfig, manifest: Mapping[str, Any]) -> list[FieldFacts]:
    """The columns of ``rows.parquet`` of a release, by its manifest."""
    name, words = weight_name(config.schema), "For how many events the row stands."
    weighted = "population" in manifest and config.sink is not None and config.sink.rows == "total"
    weight = [FieldFacts(name, "integer", words, minimum=1, empty=False)] if weighted else []
    columns = config.schema.columns
    return [*map(_of_rows, columns), *_of_coordinates(columns), *weight]


def _of_coordinates(columns: Sequence[Column]) -> Iterator[FieldFacts]:
    """Of places: where in its finest cell a row lies."""
    for column in columns:
        if isinstance(column, View) and column.located:
            words = (
                f"Within the cell {column.name} it is invented, as neighbouring cells suggest. "
                "Null outside of the box, and where missing."
            )
            for name, (low, high) in zip(column.coordinates, column.bounds, strict=True):
                yield FieldFacts(name, "number", words, minimum=low, maximum=high)


def tables_fields(config: StreamConfig) -> list[FieldFacts]:
    """The columns of ``tables.parquet``."""
    words = (
        "When the tick {} whose release this is, on the stream's wall clock. Not what is counted: count is of all "
        "events up to its end."
    )
    ends = (("start", "begins"), ("end", "ends"))
    dates = [FieldFacts(name, "datetime", words.format(does), empty=False) for name, does in ends]
    return [*(_of_nodes(config) if config.workload is None else _of_tables(config)), *dates]


def series_fields(config: StreamConfig) -> list[FieldFacts]:
    """The columns of ``series.parquet``."""
    spans = "tick: since start, this tick or epoch alone; running: all so far."
    return [
        FieldFacts("tick", "integer", "Number of the tick, from 0.", empty=False),
        FieldFacts("start", "datetime", "When what is counted begins, on the stream's wall clock.", empty=False),
        FieldFacts("end", "datetime", "When the tick ends.", empty=False),
        FieldFacts("column", "string", "Name of a column; null for the total.", values=config.schema.names),
        FieldFacts("value", "string", "Its value, or bin."),
        FieldFacts("measured", "number", "How many were counted from start to end, with noise; may be negative."),
        FieldFacts("stderr", "number", _ERROR),
        FieldFacts("span", "string", spans, values=("tick", "running"), empty=False),
    ]


def measured_fields() -> list[FieldFacts]:
    """The column of ``measured.parquet``."""
    words = "What passed the gate at this tick, for machines: enough to build the release again."
    return [FieldFacts("released", "integer", words, empty=False)]


def _of_rows(column: Column) -> FieldFacts:
    """A column of rows, with what the configuration tells of it, and what missing cells are."""
    field, about, empty = _of_kind(column), column.words, MISSING in column.own_cells
    fold = _said(getattr(column, "missing", None))
    absent = "Null stands for missing." if empty else f"Missing cells count as {fold}."
    described = about.description and about.description.rstrip(".") + "."
    words = " ".join(filter(None, (described, field.description, absent, about.unit and f"Unit: {about.unit}.")))
    return replace(field, title=about.label, unit=about.unit, empty=empty, description=words)


def _of_kind(column: Column) -> FieldFacts:
    if isinstance(column, View):
        halved = " and ".join(column.coordinates)
        words = (
            f"A cell of the place {column.place}: a digit for each time that {halved} are halved, the first one first."
        )
        upper = " plus ".join(f"{2**k} in the upper half of {name}" for k, name in enumerate(column.coordinates[::-1]))
        return FieldFacts(column.name, "string", f"{words} It is {upper}. other: outside.")
    if isinstance(column, Category):
        values = tuple(label for label in column.labels if label != MISSING or MISSING not in column.own_cells)
        rest = "other" if column.other is None else column.other
        words = f"One of {len(column.values)} values; any other value counts as {rest}."
        if isinstance(column, Districts):
            words = f"The region that {' and '.join(column.sources)} lie in. other: none."
        return FieldFacts(column.name, "string", words, values=values)
    if isinstance(column, Boolean):
        return FieldFacts(column.name, "boolean", "True or false.")
    if isinstance(column, Datetime):
        return _of_times(column)
    if isinstance(column, Integer | Number | Coordinate):
        bins, cut = (None, "") if isinstance(column, Coordinate) else _cut(column)
        whole = isinstance(column, Integer)
        words = f"A {'whole ' if whole else ''}number from {column.min} to {column.max}; values beyond are moved there."
        kind: Kind = "integer" if whole else "number"
        return FieldFacts(column.name, kind, words + cut, minimum=column.min, maximum=column.max, bins=bins)
    raise TypeError(f"{type(column).__name__}: nobody has said how to describe such a column")


def _cut(column: Integer | Number) -> tuple[int | None, str]:
    """Into how many bins a range is cut, if it is, and sentences on them."""
    bins = len(column.edges) - 1
    if column.cuts is not None:
        starts = ", ".join(f"{edge:g}" for edge in column.edges[:-1])
        how = f"{bins} bins that begin at {starts}; all from {column.edges[-2]:g} on is in the last"
    elif column.scale is not None:
        how = f"{bins} bins of equal width on a logarithmic scale"
    elif isinstance(column, Integer) and column.width is not None:
        how = f"bins of {column.width}"
    elif column.bins is not None:
        bins, how = column.bins, f"{column.bins} equal bins"
    else:
        return None, ""
    return bins, f" Counted in {how}. {_INVENTED}"


def _of_times(column: Datetime) -> FieldFacts:
    zone = f"on the wall clock of {column.timezone}"
    if column.part is not None:
        low, high = int(column.edges[0]), int(column.edges[-1]) - 1
        words = f"The {column.part} of a time {zone}, from {low} to {high}."
        words += " Monday is 1." if column.part == "weekday" else ""
        return FieldFacts(column.name, "integer", words, minimum=low, maximum=high)
    begin, end = (None if t is None else t.replace(tzinfo=None).isoformat() for t in (column.min, column.max))
    words = f"A time {zone}. Counted in {column.bins} equal bins. {_INVENTED}"
    return FieldFacts(column.name, "datetime", words, minimum=begin, maximum=end, bins=column.bins)


def _said(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_tables(config: StreamConfig) -> Iterator[FieldFacts]:
    order = 0 if config.workload is None else max(len(marginal) for marginal in config.workload.marginals)
    for k in range(1, order + 1):
        words = f"Name of column {k} of a table; null if the table has fewer columns."
        yield FieldFacts(f"column_{k}", "string", words, values=config.schema.names)
        words = f"Its value, or bin, in this cell; {MISSING} and other are cells of their own."
        yield FieldFacts(f"value_{k}", "string", words)
    refreshed = config.measures == "refresh"
    when = "" if refreshed else " at this tick"
    noisy = f"The noisy count of the cell; may be negative. Null if it was not measured{when}."
    yield FieldFacts("count", "integer", f"Number of synthetic rows in the cell. {_UNKNOWN}", minimum=0, empty=False)
    yield FieldFacts("measured", "number", noisy)
    yield FieldFacts("stderr", "number", _ERROR)
    yield FieldFacts("since", "integer", "First tick that measured counts.")
    if refreshed:
        late = "Last tick that measured counts: larger tables are measured when the stream has grown."
        yield FieldFacts("measured_at", "integer", late)


def _of_nodes(config: StreamConfig) -> Iterator[FieldFacts]:
    yield FieldFacts("level", "integer", "How often the box was cut in halves.", minimum=0, empty=False)
    yield FieldFacts("node", "integer", "Number of the part on its level.", minimum=0, empty=False)
    for column in config.schema.columns:
        if isinstance(column, Coordinate):
            ends: dict[str, Any] = {"minimum": column.min, "maximum": column.max, "empty": False}
            for end, does in (("from", "begins"), ("to", "ends")):
                words = f"Where the part {does} along {column.name}."
                yield FieldFacts(f"{column.name} {end}", "number", words, **ends)
    halves = "left half minus right half, noisy, of events since the epoch began"
    what = "the noisy count" if config.synthesizer.of_paper else halves
    sides = {"": ""} if config.op is None else {"": ", of events that were added", " away": ", of those taken away"}
    yield FieldFacts("count", "number", "Synthetic events in the part.", empty=False)
    for side, of in sides.items():
        words = f"What was measured at this tick{of}: {what}. Null if nothing was."
        yield FieldFacts(f"measured{side}", "number", words)
        words = f"Standard error of the noise in measured{side}. Null if it is not known."
        yield FieldFacts(f"stderr{side}", "number", words)
