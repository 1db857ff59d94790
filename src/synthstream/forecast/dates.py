"""What to think about in columns that are read from one cell before a stream is opened."""

from __future__ import annotations

from collections.abc import Iterator

from synthstream.config.config import StreamConfig
from synthstream.schema.binned import Datetime, seconds_of
from synthstream.schema.conditions import first
from synthstream.schema.dates import Dates

_DAY = 86_400


def of_dates(config: StreamConfig) -> Iterator[tuple[str, str]]:
    """Warnings of them: what it is about, and the words."""
    yield from (("constraints", each) for each in _untied(config))
    yield from _walls(config)
    yield from _parts_of_days(config)
    yield from _outlived(config)


def _untied(config: StreamConfig) -> Iterator[str]:
    """Columns that could not be tied, as constraints leave one of their values without any combination."""
    for columns in config.constraints.untied:
        names = first([config.schema.names[c] for c in columns])
        yield (
            f"{names} are read from one cell, but not tied, so rows may contradict themselves in them: together with "
            "[[constraints]] a value would have no allowed combination, or combinations would be too many. Take the "
            "constraint out, or the columns that it names."
        )


def _walls(config: StreamConfig) -> Iterator[tuple[str, str]]:
    """Columns of one time on different walls, which are not tied, nor dated where it is not the clock's."""
    alike: dict[str, list[Datetime]] = {}
    for column in config.schema.columns:
        if isinstance(column, Datetime):
            alike.setdefault(column.read_from, []).append(column)
    for source, columns in alike.items():
        walls = {column.timezone: column.name for column in reversed(columns)}
        if source == config.clock.column:
            walls.setdefault(config.clock.timezone, "the clock")
        if len(walls) > 1:
            said = ", ".join(f"{name} in {wall}" for wall, name in sorted(walls.items(), key=lambda each: each[::-1]))
            yield (
                f"columns.{columns[0].name}",
                f"{source!r} is read on the walls of several time zones: {said}. Columns of different zones are not "
                "tied, and rows are not dated by a clock of another zone. If one zone is meant, say the same timezone "
                "in [clock] and in each column.",
            )


def _parts_of_days(config: StreamConfig) -> Iterator[tuple[str, str]]:
    """Bins beside a part of the calendar that do not begin where days do."""
    dates = [column for column in config.schema.columns if isinstance(column, Datetime)]
    for column in dates:
        beside = [c.name for c in dates if c.part not in (None, "minute", "hour") and c.read_from == column.read_from]
        if column.part is not None or not beside:
            continue
        low, high = column.edges[0], column.edges[-1]
        width = (high - low) / (len(column.edges) - 1)
        if (low % _DAY or width % _DAY) if width >= _DAY else (_DAY % width or low % width):
            days = round((high - low) / _DAY)
            fit = f"say bins = {days}, or a divisor of {days}" if days else "let them be a day or more apart"
            yield (
                f"columns.{column.name}",
                f"Bins of {column.name!r} are {width / 3600:.4g} hours wide and do not begin with days, so one may "
                f"hold parts of two days, and tells less of {first(beside)}. Let min and max be at midnight, and "
                f"{fit}.",
            )


def _outlived(config: StreamConfig) -> Iterator[tuple[str, str]]:
    """Bins of the clock's own time that begin after the stream, or end before it."""
    clock, dates = config.clock, Dates.of(config.clock, config.schema.columns)
    for column in () if dates is None else dates.columns.values():
        if column.min is None or column.max is None:
            continue
        end = None if clock.horizon is None else clock.boundary(clock.horizon)
        if seconds_of(column.min) > seconds_of(clock.boundary(0)):
            yield (
                f"columns.{column.name}",
                f"Bins of {column.name!r} begin with {column.min:%Y-%m-%d}, and the stream with {clock.begins(0)}: all "
                "events before count in the first bin, as if they were of its days. Say an earlier min.",
            )
        if end is not None and seconds_of(column.max) < seconds_of(end):
            yield (
                f"columns.{column.name}",
                f"Bins of {column.name!r} end with {column.max:%Y-%m-%d}, and the stream with {end:%Y-%m-%d}: all "
                "later events count in the last bin, and their rows are dated there. Say a later max, or a "
                "shorter horizon.",
            )
