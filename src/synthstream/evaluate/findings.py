"""PRIVATE. What a look at the rows found: sentences for the custodian, lines of ``stream.toml``, and a verdict.

What is proposed changes how files are read, and nothing else: never values, bounds, bins or limits, which would then be
derived from the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from pathlib import Path

import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.config.sources import Dialect
from synthstream.evaluate.formats import (
    Line,
    advised,
    alike,
    lines_of_numbers,
    lines_of_times,
    lines_of_torn,
    meant,
    percent,
    place_of,
    possible,
    texts_of,
    toml_of,
    types_of,
)
from synthstream.evaluate.look import UTF_16, Cells, Looked, Persons, Rows, counting_in, persons_in
from synthstream.forecast.warnings import off_by
from synthstream.ingest.counting import forms_of
from synthstream.schema.binned import Datetime
from synthstream.schema.clock import due, written
from synthstream.schema.columns import Category, Column
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.districts import Districts
from synthstream.schema.places import View

# What is looked at, and what must not be opened, as shares of all rows. Public constants: nobody tunes them by rows.
_OTHER, _UNREAD, _TIME, _CLAMPED, _BEFORE = (0.01, 0.2), (0.01, 0.2), (0.001, 0.05), (0.05, 0.5), (0.01, 0.5)
_NO_KEY, _LEFT_OUT, _ONE_TICK, _EMPTY_END, _THE_REST = (0.01, 0.5), (0.05, 0.5), 0.9, (0.1, 0.5), (0.01, 0.9)
_SHOWN, _BARS = 8, 40
# Fewer rows than so many standard errors of the count of one value are lost in noise.
_DROWNED = 2.0


class Level(IntEnum):
    """How bad something is."""

    FINE = 0
    LOOK = 1
    STOP = 2


@dataclass(frozen=True, kw_only=True, repr=False)
class Finding:
    """Something to look at.

    Args:
        about: a column, or another part of the configuration.
        lines: of [source] that would change it; of one key, one of them.
    """

    level: Level
    about: str
    words: str
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, kw_only=True, repr=False)
class Checked:
    """All that is told of a look.

    Args:
        over: number of ticks that are over.
        open_tick: 0 in a stream that was never opened.
    """

    config: StreamConfig
    looked: Looked
    findings: tuple[Finding, ...]
    persons: Persons | None
    over: int
    open_tick: int

    @property
    def verdict(self) -> Level:
        """The worst of the findings."""
        return max((finding.level for finding in self.findings), default=Level.FINE)

    def said(self, level: Level) -> str:
        """How bad something is, in words."""
        return ("fine", "look at this", f"do not {'run' if self.open_tick or self.looked.known else 'open'}")[level]

    @property
    def lines(self) -> list[str]:
        """Of ``stream.toml``, for reading alone; where a key has several values, somebody must choose."""
        config, source = self.config, self.config.source
        dated = {c.read_from for c in config.schema.columns if isinstance(c, Datetime)} | {config.clock.column}
        begun = source is not None and not source.formats.keys() <= {"*"}  # a table of forms that is there already
        found = (line for finding in self.findings for line in finding.lines)
        return toml_of(dict.fromkeys(found), dated=dated - {None}, begun=begun)

    def by_tick(self) -> tuple[str, list[tuple[datetime, int]]]:
        """Rows by the tick that they would count in, or by several together: what they are, and when each begins."""
        held, begin = counting_in(self.looked, self.open_tick), self.open_tick
        end = max([self.over, begin + 1, *(tick + 1 for tick in held if tick < self.over + _BARS)])
        step = -(-(end - begin) // _BARS)
        rows = [sum(held[t] for t in range(first, first + step)) for first in range(begin, end, step)]
        words = "Rows by the tick that they would count in" + (f", {step} ticks together" if step > 1 else "")
        return words, [(self.config.clock.boundary(begin + i * step), number) for i, number in enumerate(rows)]


def checked(
    config: StreamConfig, looked: Looked, *, now: datetime, open_tick: int, changed: Sequence[str] = ()
) -> Checked:
    """What a look found.

    Args:
        now: the machine's clock.
        open_tick: number of ticks that have been closed.
        changed: settings that are not those which the stream runs with; see :meth:`StreamConfig.differences`.
    """
    over, persons = due(config.clock, until=None, now=now), persons_in(config, looked)
    found = [*_files(config, looked)]
    if changed:
        words = f"`run` will refuse: the stream in {config.state} has other settings: {'; '.join(changed)}."
        found.insert(0, Finding(level=Level.STOP, about="settings", words=words))
    if looked.rows.count:
        found += [*_times(config, looked, over, open_tick), *_zones(config, looked), *_of_persons(looked, persons)]
        for column in config.schema.columns:
            found += _column(config, column, looked.rows)
        odd = pl.concat(cells.odd for cells in (looked.rows.time, *looked.rows.columns.values()))
        words, lines = lines_of_torn(odd, config.source, begun=open_tick > 0)
        found += [Finding(level=Level.LOOK, about="[source]", words=words, lines=lines)] if words else []
        found += [*_signs(config, looked), *_points(config, looked)]
        found += [] if open_tick else _few(config, looked.rows.count, max(over, 1))
    fitting = ((f, possible(f.words, f.lines, config.source)) for f in sorted(found, key=lambda f: -f.level))
    told = tuple(replace(finding, words=words, lines=lines) for finding, (words, lines) in fitting)
    return Checked(config=config, looked=looked, findings=told, persons=persons, over=over, open_tick=open_tick)


def _level(rows: int, count: int, bounds: tuple[float, float]) -> Level:
    share = rows / max(count, 1)
    return Level(int(share >= bounds[0]) + int(share >= bounds[1])) if rows else Level.FINE


def _some(
    rows: int,
    count: int,
    bounds: tuple[float, float],
    about: str,
    words: str,
    lines: tuple[Line, ...] = (),
    *,
    least: Level = Level.FINE,
) -> Iterator[Finding]:
    """What is so of some of the rows, if they are enough to say it, or ``least`` says so; ``words`` go on after how
    many per cent they are.
    """
    if rows and (level := max(least, _level(rows, count, bounds))):
        yield Finding(level=level, about=about, words=f"{percent(rows, count)} of the rows {words}", lines=lines)


def _files(config: StreamConfig, looked: Looked) -> Iterator[Finding]:
    if not looked.files and not looked.refused and not looked.frames:
        counted = f"All files ({looked.known:,}) were counted before; name those that you want to look at again."
        path = None if config.source is None else config.source.path
        none = "There is no file to look at." if path is None else f"No file fits source.path = {path}; capitals count."
        level, words = (Level.FINE, counted) if looked.known else (Level.STOP, none)
        yield Finding(level=level, about="[source]", words=words)
    same = dict[Finding, list[Path]]()  # what is said of several files is said once
    for path, (words, keys) in looked.refused.items():
        if keys.keys() == {"delimiter"}:
            line = Line("delimiter", keys["delimiter"])
            advice, lines = advised(line, others=len(looked.files))
            other = "commas" if line.value != '","' else "what [source] says"
            words = f"The columns of {path} stand between {line.value}, not {other}: {advice}"
            finding = Finding(level=Level.STOP, about="[source]", words=words, lines=lines)
        else:
            roles = {config.clock.column: "[clock] column", config.privacy.person: "[privacy] person", config.op: "op"}
            about = next((key for name, key in roles.items() if f"column {name!r} is missing" in words), "[source]")
            finding = Finding(level=Level.STOP, about=about, words=words)
        same.setdefault(replace(finding, words=finding.words.replace(str(path), "\0")), []).append(path)
    for path, encoding in looked.encodings.items():
        if encoding == UTF_16:
            words = "\0 is UTF-16, of which nothing can be read: convert it, iconv -f UTF-16 -t UTF-8."
            finding = Finding(level=Level.STOP, about="[source]", words=words)
        else:
            others = len(looked.files) - len(looked.encodings)
            advice, lines = advised(Line("encoding", f'"{encoding}"'), others=others)
            words = f"\0 is not UTF-8; it looks like {encoding}: {advice} Texts with other letters fall into `other`."
            finding = Finding(level=Level.LOOK, about="[source]", words=words, lines=lines)
        same.setdefault(finding, []).append(path)
    for finding, (path, *more) in same.items():
        named = f"{path} (and {len(more):,} more)" if more else str(path)
        yield replace(finding, words=finding.words.replace("\0", named))
    yield from (Finding(level=Level.LOOK, about="[source]", words=words) for words in looked.twice)
    if (looked.files or looked.frames) and not looked.rows.count:
        what, about = ("these files", "[source]") if looked.files else ("it", "frame")
        yield Finding(level=Level.STOP, about=about, words=f"There is no row in {what}.")


def _times(config: StreamConfig, looked: Looked, over: int, open_tick: int) -> Iterator[Finding]:
    rows, clock = looked.rows, config.clock
    if clock.column is None:
        yield from _undated(over, open_tick)
        return
    about, count, unread = f"[clock] column = {clock.column!r}", rows.count, rows.time.unread
    where = "no tick, since the stream has gone on" if looked.first else f"the {'open' if open_tick else 'first'} tick"
    if unread:
        words, lines = _of_times(config, clock.column, rows.time, count)
        said = texts_of(rows.time.odd, 3) + types_of(rows.time.kinds)
        words = f"({unread:,}) have a time that cannot be read, such as {said}. All would count in {where}. {words}"
        yield from _some(unread, count, _TIME, about, words, lines, least=Level.LOOK)
    yield from _some(rows.time.empty, count, _TIME, about, f"have no time, and would count in {where}.")
    if open_tick == 0:
        words = f"({rows.before:,}) are dated before start, and would count in the first tick."
        yield from _some(rows.before, count, _BEFORE, "[clock] start", words, least=Level.LOOK)
    for low, high, which in ((0, looked.first, "no"), (looked.first, open_tick, "the open")):
        if late := sum(number for tick, number in rows.ticks.items() if low <= tick < high):
            words = f"{late:,} rows ({percent(late, count)}) are dated in ticks that are closed, and would count in "
            words += f"{which} tick" + (f": the stream went on at tick {high:,}." if which == "no" else ".")
            yield Finding(level=Level.LOOK, about="late rows", words=words)
    horizon = clock.horizon
    later = sum(n for tick, n in rows.ticks.items() if over + (clock.until is None) <= tick < (horizon or tick + 1))
    if later:
        when = "in the future" if clock.until is None else f"in ticks that end after until = {written(clock.until)}"
        words = f"{later:,} rows ({percent(later, count)}) are dated {when}, and would wait for their tick."
        if clock.cuts(over):
            words += f" The tick from {clock.begins(over)} on is closed if until = {clock.begins(over + 1)}, or later."
        yield Finding(level=Level.LOOK, about="later rows", words=words)
    if horizon is not None and (beyond := sum(n for tick, n in rows.ticks.items() if tick >= horizon)):
        words = f"{beyond:,} rows ({percent(beyond, count)}) are dated after the horizon, and count in no tick. "
        words += f"Its {horizon:,} ticks end {clock.begins(horizon)}. Raise it; a stream that runs needs a successor."
        yield Finding(level=max(Level.LOOK, _level(beyond, count, _BEFORE)), about="[clock] horizon", words=words)
    if _level(unread, count, _TIME) < Level.STOP:  # otherwise all that follows is said of unreadable times
        yield from _empty_ticks(looked, over, open_tick)


def _undated(over: int, open_tick: int) -> Iterator[Finding]:
    """Rows without a time count in the open tick, however many ticks they are of. It follows from the clock alone."""
    waiting, mend = over - open_tick, "A stream that runs keeps its clock: run it in each tick, with the rows of it."
    if open_tick and waiting < 2:
        return
    if not open_tick:
        mend = "If rows have a time, name its column. If not, let start be the day of the first run."
    others = f" {waiting:,} ticks are over and would be released at once, the others without rows." * (waiting > 1)
    words = f"It is left out, so all rows here would count in tick {open_tick:,}, whatever their time.{others} {mend}"
    yield Finding(level=Level.LOOK, about="[clock] column", words=words)


def _empty_ticks(looked: Looked, over: int, open_tick: int) -> Iterator[Finding]:
    """Ticks that would be released at once: all rows in one of them, or none at an end."""
    if (waiting := over - open_tick) < 3:
        return
    held = {tick: number for tick, number in counting_in(looked, open_tick).items() if tick < over}
    most = max(held.values(), default=0)
    if most and most >= _ONE_TICK * sum(held.values()):
        words = f"{percent(most, sum(held.values()))} of the rows would count in one tick of {waiting:,} that are over."
        yield Finding(level=Level.STOP, about="[clock]", words=words)
    before, after = 0 if open_tick else min(held, default=0), over - 1 - max(held, default=open_tick)
    for empty, where, does, key in ((before, "first", "begin", "start"), (after, "last", "end", "until")):
        if level := _level(empty, waiting, _EMPTY_END):
            words = (
                f"{waiting:,} ticks are over and would be released at once; the {where} {empty:,} of them have no row "
                f"here. If it is publicly known where the data {does}, say so as {key} in [clock]."
            )
            yield Finding(level=level, about=f"[clock] {key}", words=words)


def _zones(config: StreamConfig, looked: Looked) -> Iterator[Finding]:
    rows, zone = looked.rows, config.clock.timezone
    known = rows.count - rows.time.empty - rows.time.unread
    if not rows.aware or not known:
        return
    if rows.aware < known:
        words = f"{percent(rows.aware, known)} of the times name an offset or a zone and are converted to {zone}; the "
        yield Finding(level=Level.LOOK, about="[clock] timezone", words=words + f"others are taken as {zone}.")
    if zone != "UTC" and rows.midnight >= _ONE_TICK * rows.aware:
        words = (
            f"{percent(rows.midnight, rows.aware)} of the times are midnight in UTC, which is another hour in {zone}, "
            "maybe of the day before. If they are dates, write them as dates, without a time and a zone."
        )
        yield Finding(level=Level.LOOK, about="[clock] timezone", words=words)


def _column(config: StreamConfig, column: Column, rows: Rows) -> Iterator[Finding]:
    cells, count, lines = rows.columns[column.name], rows.count, tuple[Line, ...]()
    name, what, much = column.name, "are not on the list", _OTHER
    if isinstance(column, Category) and column.other is not None:
        what, at = f"{what}, and would count as {column.other!r}", column.values.index(column.other)
        much = _OTHER if cells.listed[at : at + 1].any() else _THE_REST  # no row has it: it stands for the rest
    if isinstance(column, View):
        if not column.located:  # the finest grid says it
            return
        why, lines = place_of(column, cells.odd, most=cells.mostly_read(count))
        name, what = column.place, f"lie in no cell. {why} Found"
    if isinstance(column, Districts):
        if cells.other == rows.columns.get(column.finest.name, Cells()).other:  # the finest grid says it
            return
        what = "lie in no region"
    yield from _some(cells.other, count, much, name, f"({cells.other:,}) {what}: {texts_of(cells.odd)}.", lines)
    yield from _alike(column, cells)
    if cells.unread:
        words, lines = _reading(config, column, cells, count)
        said = texts_of(cells.odd, 3) + types_of(cells.kinds)
        words = f"cannot be read as {column.type}, such as {said}. They would count as missing. {words}".rstrip()
        yield from _some(cells.unread, count, _UNREAD, name, f"({cells.unread:,}) {words}", lines, least=Level.LOOK)
    if cells.empty == count:
        nothing = "No row has anything in it that can be read: all would count as missing."
        yield Finding(level=Level.LOOK, about=name, words=nothing)
    for key, side, bin_, out in (("min", "below", "first", cells.low), ("max", "above", "last", cells.high)):
        if out:
            end = written(at) if isinstance(at := getattr(column, key), datetime) else f"{at:.15g}"
            place = "there" if isinstance(column, Coordinate) else f"in the {bin_} bin"
            words = f"({out:,}) are {side} {key} = {end}, and would count {place}."
            yield from _some(out, count, _CLAMPED, name, words)


def _of_times(config: StreamConfig, column: str, cells: Cells, count: int) -> tuple[str, tuple[Line, ...]]:
    beside = forms_of(config).get(column, ()) if cells.mostly_read(count) else None
    return lines_of_times(column, cells.odd, beside=beside)


def _reading(config: StreamConfig, column: Column, cells: Cells, count: int) -> tuple[str, tuple[Line, ...]]:
    """What unreadable cells look like, and the key that would say so."""
    if isinstance(column, Datetime):
        return _of_times(config, column.read_from, cells, count)
    if column.type == "boolean":
        return 'Other words than true and false, yes and no, are values of type = "category".', ()
    decimal = config.source.decimal if isinstance(config.source, Dialect) and not config.source.thousands else None
    return lines_of_numbers(cells.odd, most=cells.mostly_read(count), decimal=decimal)


def _alike(column: Column, cells: Cells) -> Iterator[Finding]:
    """Texts that fell into ``other``, and look like a value of the list."""
    if not isinstance(column, Category) or isinstance(column, View | Districts):
        return
    values = dict(zip(alike(pl.Series(column.values)).to_list(), column.values, strict=True))
    texts = zip(cells.odd.iter_rows(), alike(cells.odd["text"]).to_list(), strict=True)
    found = [(text, values[near], rows) for (text, rows), plain in texts for near in meant(plain, values)]
    if found:
        shown = ", ".join(f"{text!r} like {value!r} ({rows:,})" for text, value, rows in found[:_SHOWN])
        words = f"Not on the list, but much like a text that is ({len(found):,}): {shown}."
        yield Finding(level=Level.LOOK, about=column.name, words=words)


def _points(config: StreamConfig, looked: Looked) -> Iterator[Finding]:
    names = " and ".join(map(repr, config.schema.names))
    for rows, about, words in (
        (looked.rows.outside, "region", "lie in no region, and would count in the nearest cell inside."),
        (looked.rows.turned, names, f"lie outside of min and max. They lie in the box if {names} change places."),
    ):
        yield from _some(rows, looked.rows.count, _CLAMPED, about, f"({rows:,}) {words}")


def _signs(config: StreamConfig, looked: Looked) -> Iterator[Finding]:
    odd = looked.rows.signs.empty + looked.rows.signs.unread
    if config.op is not None and odd:
        said = texts_of(looked.rows.signs.odd) or "empty"
        words = f"{odd:,} rows are neither 1 nor -1, and would add an event: {said}."
        yield Finding(level=Level.LOOK, about=f"op = {config.op!r}", words=words)


def _few(config: StreamConfig, count: int, ticks: int) -> Iterator[Finding]:
    """So few rows that noise is all that releases of them would show."""
    if count < _DROWNED * (off := off_by(config, ticks, count)):
        there = "There is 1 row" if count == 1 else f"There are {count:,} rows"
        words = (
            f"{there}, and the count of one value is off by about {off:,.0f} after {ticks:,} tick(s): "
            "releases would show noise alone. `synthstream plan` says what to hope for, with a public guess of how "
            "many events come (--expect 500/day)."
        )
        yield Finding(level=Level.LOOK, about="rows", words=words)


def _of_persons(looked: Looked, persons: Persons | None) -> Iterator[Finding]:
    if persons is None:
        return
    count, in_all = looked.rows.count, persons.left_out - persons.in_a_tick
    yield from _some(persons.without, count, _NO_KEY, "[privacy] person", "have no key, and would be left out.")
    which = f" (max_per_tick: {persons.in_a_tick:,}, max_events: {in_all:,})" if persons.in_a_tick else ""
    about, would = ("max_per_tick", "may") if persons.in_a_tick > in_all else ("max_events", "would")
    words = (
        f"are beyond a person's limit{which}, and would be left out. With a larger limit more would count, and noise "
        f"{would} grow with it. Choose it by what is publicly known of how often people come, not by these rows."
    )
    yield from _some(persons.left_out, count, _LEFT_OUT, f"[privacy] {about}", words)
    shown = "; ".join(" and ".join(map(repr, group[:4])) for group in persons.alike[:_SHOWN])
    same = f"{len(persons.alike):,} groups of keys look alike, and would be different persons: {shown}."
    none = f"Keys that sound like none would be one person each: {persons.nobody}. Leave such cells empty."
    for some, words in ((persons.alike, same), (persons.nobody, none)):
        if some:
            yield Finding(level=Level.LOOK, about="[privacy] person", words=words)
