"""What texts look like that a reader could not read: dates, numbers, separators. Guesses, for a person to confirm."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence, Set
from datetime import datetime
from difflib import get_close_matches
from itertools import product
from typing import NamedTuple

import numpy as np
import polars as pl

from synthstream.config.keys import Section
from synthstream.config.sources import Dialect
from synthstream.schema.coercion import numbers, times
from synthstream.schema.dialects import times_as, zoned
from synthstream.schema.places import SIDES, View

_DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d.%m.%y",
    "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%Y-%m-%d",
)  # fmt: skip
_TIMES = (
    "", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "T%H:%M:%S", ", %H:%M", ", %H:%M:%S", "T%H:%M", " %H.%M",
)  # fmt: skip
# So many different texts are tried, the most frequent ones; a format must read this share of their rows.
_TRIED, _MOST = 200, 0.9
_EPOCHS = {10: "seconds", 13: "milliseconds", 16: "microseconds"}  # since 1970, by their digits
# Offsets without minutes, as COPY writes them; and offsets, or Z, of times without seconds or signs.
_ZONED = (
    "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M%#z", "%Y-%m-%d %H:%M%#z", "%Y%m%dT%H%M%S%#z",
)  # fmt: skip
_POINTS = "They are numbers with a point: leave decimal and thousands out."
_ISO = "They are ISO 8601: leave datetime_format out."
_WORDS = {"d": "day", "m": "month", "Y": "year", "y": "year (2 digits)", "b": "month", "B": "month"}
_WORDS |= {"H": "hour", "I": "hour", "M": "minute", "S": "second", "p": "AM or PM"}
# How much of a text and of a value must be the same, as difflib counts it, for one to be a slip of the other.
_LIKE = 0.8
_NO_KEY = r"^([-.?_x]*|0|9{4,}|n/?a|nan|nil|none|null|unknown|unbekannt|inconnu|desconocido|anonymous|missing)$"


class Line(NamedTuple):
    """A line of [source]: its key, its value as it is written, and for which column, if it is for one."""

    key: str
    value: str
    column: str | None = None


def advised(line: Line, *, others: int) -> tuple[str, tuple[Line, ...]]:
    """What to do about files that need a line of [source], which holds for all: ``others`` are read without it."""
    said = f"{line.key} = {line.value}"
    if not others:
        return f"say {said}.", (line,)
    words = f"write it anew as other files here are ({others:,}); {said} in [source] would hold for those, too."
    return words, ()


def possible(words: str, lines: tuple[Line, ...], source: Section | None) -> tuple[str, tuple[Line, ...]]:
    """What is told, without the lines that a source of this kind cannot have."""
    impossible = {line.key for line in lines} - type(source).model_fields.keys() if source else set()
    if not impossible:
        return words, lines
    words += f" A source of this kind has no {' and no '.join(sorted(impossible))}: write these cells in another way."
    return words, tuple(line for line in lines if line.key not in impossible)


def toml_of(lines: Iterable[Line], *, dated: Set[str | None], begun: bool) -> list[str]:
    """Lines of ``stream.toml`` under their headings, for reading alone; where a key has several values, somebody must
    choose.

    Args:
        dated: all columns with times.
        begun: whether [source] has a table of forms already.
    """
    values = dict[tuple[str, str | None], list[str]]()
    for line in lines:
        values.setdefault((line.key, line.column), []).append(line.value)
    shown = dict[str, dict[str, str]]()
    forms = {column: found for (_, column), found in values.items() if column is not None}
    alone = forms.keys() == dated and len({tuple(found) for found in forms.values()}) == 1
    for (key, column), found in values.items():
        # One format for all columns with times, or each with its own: others may be read as they are.
        where, name, quoted = "[source]", key, json.dumps(column, ensure_ascii=False)
        if column is not None and begun:
            where, name = f"[source.{key}]", quoted
        elif column is not None and not alone:
            name = f"{key}.{quoted}"
        shown.setdefault(where, {})[name] = "   # or ".join(found)
    told = ((where, *(f"{key} = {value}" for key, value in keys.items())) for where, keys in shown.items())
    return [line for some in sorted(told, reverse=True) for line in some]


def _listed(odd: pl.DataFrame) -> list[tuple[str, int]]:
    """Texts that are tried, and how many rows have each. ``odd``: columns ``text`` and ``rows``."""
    return [(str(text).strip(), int(rows)) for text, rows in odd.head(_TRIED).iter_rows()]


def times_of(listed: Sequence[tuple[str, int]]) -> list[str]:
    """Formats that read most of some texts, all equally well; more than one if no text tells them apart.

    Example:
        >>> times_of([("01.02.2010", 7), ("31.12.2010", 1)]), times_of([("01/02/2010", 7)])
        (['%d.%m.%Y'], ['%d/%m/%Y', '%m/%d/%Y'])
    """
    read = {
        date + time: sum(rows for text, rows in listed if _reads(text, date + time))
        for date, time in product(_DATES, _TIMES)
    }
    least = max([1, *read.values(), _MOST * sum(rows for _, rows in listed)])
    return [form for form, rows in read.items() if rows >= least]


def lines_of_times(
    column: str, odd: pl.DataFrame, *, beside: Sequence[str] | None = None
) -> tuple[str, tuple[Line, ...]]:
    """What times look like that cannot be read, and the key that would say so.

    Args:
        beside: forms in which most rows are read, none for ISO 8601; ``None`` if most cannot be read.

    Example:
        >>> odd = pl.DataFrame({"text": ["2026-01-31 12:00"], "rows": [7]})
        >>> lines_of_times("when", odd)
        ('They are ISO 8601: leave datetime_format out.', ())
        >>> lines_of_times("when", odd, beside=["%d.%m.%Y"])[1]
        (Line(key='datetime_format', value='["%d.%m.%Y", "%Y-%m-%d %H:%M"]', column='when'),)
    """
    words, lines = _lines_of_times(column, _listed(odd))
    if beside is None:
        return words, lines
    found = [json.loads(line.value) for line in lines]
    if not found and words == _ISO:
        words, found = "They are ISO 8601.", times_of(_listed(odd))[:1]
    if not beside and found:
        return f"{words} Others are ISO 8601: a list of forms reads both, if it has one for each.", ()
    if not found or {zoned(form) for form in found} != {zoned(form) for form in beside}:
        return words, ()
    lists = [json.dumps([*beside, form]) for form in found]
    words += " Keep the form that reads the others: a list reads both."
    return words, tuple(Line("datetime_format", text, column) for text in lists)


def _lines_of_times(column: str, listed: Sequence[tuple[str, int]]) -> tuple[str, tuple[Line, ...]]:
    digits = {len(text) if text.isdigit() else 0 for text, _ in listed}
    if len(digits) == 1 and digits <= _EPOCHS.keys():
        unit = _EPOCHS[digits.pop()]
        return f"They look like {unit} since 1970.", (Line("datetime_format", f'"{unit}"', column),)
    if digits == {5}:
        return "They look like days as a spreadsheet counts them; convert them to ISO 8601.", ()
    texts = pl.Series([text for text, _ in listed], dtype=pl.String)
    if _most(listed, times(texts, timezone="UTC")):
        return _ISO, ()
    for form in _ZONED:
        if _most(listed, times_as(texts, [form])):
            return "They have offsets, or Z, which this form reads.", (Line("datetime_format", f'"{form}"', column),)
    formats = times_of(listed)
    if not formats:
        return "No format is known that reads most of them.", ()
    lines = tuple(Line("datetime_format", f'"{form}"', column) for form in formats)
    if len(lines) > 1:
        return "Day first or month first? No text tells. Ask who writes them, and take one of the formats.", lines
    words = re.sub(r"%(\w)", lambda found: _WORDS[found[1]], formats[0])
    return f"They look like {words}.", lines


def _most(listed: Sequence[tuple[str, int]], read: pl.Series) -> bool:
    """Whether most rows of some texts are read, by what each text is read as."""
    known = sum(rows for (_, rows), time in zip(listed, read, strict=True) if time is not None)
    return 0 < known >= _MOST * sum(rows for _, rows in listed)


def _reads(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def numbers_of(odd: pl.DataFrame) -> dict[str, str] | None:
    """Keys of [source] with which texts would be numbers; ``None`` if there are none, or both readings are possible.

    Example:
        >>> numbers_of(pl.DataFrame({"text": ["1,5", "1.234,75"], "rows": [7, 1]}))
        {'decimal': ',', 'thousands': '.'}
        >>> numbers_of(pl.DataFrame({"text": ["52,51", "0.00000"], "rows": [43, 1]}))
        {'decimal': ','}
        >>> numbers_of(pl.DataFrame({"text": ["1,234"], "rows": [7]})) is None
        True
    """
    listed, found = _listed(odd), []
    for decimal, thousands in ((",", "."), (".", ","), (",", " "), (",", "'"), (".", "'"), (".", " ")):
        whole, group = re.escape(decimal), re.escape(thousands)
        shape = re.compile(rf"[+-]?(?:\d+|\d{{1,3}}(?:{group}\d{{3}})+)(?:{whole}\d+)?")
        read = [(text, rows) for text, rows in listed if shape.fullmatch(text)]
        rows = sum(rows for _, rows in read)
        if rows and rows >= _MOST * sum(rows for _, rows in listed):
            keys = {"decimal": decimal} if decimal != "." and any(decimal in text for text, _ in read) else {}
            if any(thousands in text for text, _ in read):
                keys["thousands"] = thousands
            found.append((rows, keys))
    best = max((rows for rows, _ in found), default=0)
    different = [keys for i, (rows, keys) in enumerate(found) if rows == best and keys not in [k for _, k in found[:i]]]
    return different[0] if len(different) == 1 and different[0] else None


def lines_of_numbers(
    odd: pl.DataFrame, *, most: bool = False, decimal: str | None = None
) -> tuple[str, tuple[Line, ...]]:
    """What numbers that cannot be read look like, and the keys that would say so.

    Args:
        most: most others can be read.
        decimal: of files in which nothing is said to stand between thousands.

    Example:
        >>> lines_of_numbers(pl.DataFrame({"text": ["8.1", "N/A"], "rows": [99, 1]}))[0]
        'They are numbers with a point: leave decimal and thousands out.'
    """
    if keys := numbers_of(odd):
        said = " and ".join(f"{key} {value!r}" for key, value in keys.items())
        caution = " If most others have a point, these keys would lose those: set these right instead." if most else ""
        return f"They look like numbers with {said}.{caution}", tuple(Line(k, f'"{v}"') for k, v in keys.items())
    listed = _listed(odd)
    plain = sum(rows for text, rows in listed if not np.isnan(numbers(pl.Series([text]))[0]))
    if plain and plain >= _MOST * sum(rows for _, rows in listed):
        return _POINTS, ()
    return _grouped(listed, decimal) if most and decimal is not None else ("", ())


def _grouped(listed: Sequence[tuple[str, int]], decimal: str) -> tuple[str, tuple[Line, ...]]:
    """What stands between thousands of some texts, whatever the others are; to say so changes no number that is read.

    Example:
        >>> _grouped([("n/a", 9), ("1.234,75", 1), ("12.000", 1)], ",")
        ('Some look like numbers with thousands = ".".', (Line(key='thousands', value='"."', column=None),))
        >>> _grouped([("n/a", 9), ("12.000", 1)], ",")
        ('', ())
    """
    for sign in "., '".replace(decimal, ""):
        some = re.compile(rf"[+-]?\d{{1,3}}(?:{re.escape(sign)}\d{{3}})+{re.escape(decimal)}\d+")
        if any(some.fullmatch(text) for text, _ in listed):
            return f'Some look like numbers with thousands = "{sign}".', (Line("thousands", f'"{sign}"'),)
    return "", ()


def lines_of_torn(odd: pl.DataFrame, source: Section | None, *, begun: bool) -> tuple[str, tuple[Line, ...]]:
    """What to do about cells whose quotation mark seems to have begun in the line before, if there are some.

    Args:
        begun: the stream runs, so that ``multiline`` cannot change.
    """
    if not isinstance(source, Dialect) or source.multiline or not source.quote:
        return "", ()
    text = pl.col("text")
    ends = text.str.ends_with(source.quote) & (text.str.count_matches(source.quote, literal=True) % 2 == 1)
    if not (found := texts_of(odd.filter(ends), 3)):
        return "", ()
    mend = "write them without, for multiline cannot change now" if begun else "say multiline = true"
    words = f"Cells end with a quotation mark that does not begin them: {found}. If cells hold line ends, {mend}."
    return words, () if begun else (Line("multiline", "true"),)


def place_of(view: View, odd: pl.DataFrame, *, most: bool = False) -> tuple[str, tuple[Line, ...]]:
    """What coordinates look like that lie in no cell of a place, what to do about it, and keys that would do it.

    ``most``: whether most others lie in one, whom no key may lose.

    Example:
        >>> view = View(name="at_1", place="at", coordinates=("lat", "lon"), bounds=((32, 37), (-122, -114)), depth=1)
        >>> place_of(view, pl.DataFrame({"text": ["-118.2 / 34.1"], "rows": [7]}))[0]
        'They lie in the box with coordinates = ["lon", "lat"]: these stand in the order of bounds.'
        >>> place_of(view, pl.DataFrame({"text": ["34,1 / -118,2"], "rows": [7]}))
        ("They look like numbers with decimal ','.", (Line(key='decimal', value='","', column=None),))
        >>> place_of(view, pl.DataFrame({"text": ["51.5 / 0.1"], "rows": [7]}))[0]
        'They lie outside of bounds.'
        >>> place_of(view, pl.DataFrame({"text": ["34.1 / -118.2"], "rows": [7]}))[0]
        'They are numbers with a point: leave decimal and thousands out. They would count as missing.'
        >>> place_of(view, pl.DataFrame({"text": ["51.5 / 0.1", "x / 0.1"], "rows": [7, 1]}))[0]
        'Some are no numbers, and others lie outside of bounds.'
        >>> fine = View(name="fare_1", place="fare", coordinates=("fare",), bounds=((0, 80),), depth=1)
        >>> place_of(fine, pl.DataFrame(schema={"text": pl.String, "rows": pl.Int64}))
        ('', ())
    """
    if odd.is_empty():
        return "", ()
    tried = odd.head(_TRIED)
    parts = tried["text"].str.split(SIDES).list
    sides = [parts.get(k, null_on_oob=True).fill_null("") for k in range(len(view.coordinates))]
    plain, inside = (
        tried["rows"].filter(pl.Series(read < len(view.values))).sum() >= tried["rows"].sum() / 2
        for given in (sides, sides[::-1])
        for read in (view.read(pl.DataFrame(dict(zip(view.coordinates, given, strict=True)))),)
    )
    if plain:
        return f"{_POINTS} They would count as missing.", ()
    if len(sides) > 1 and inside:
        if most:
            return (
                "They lie in the box if their coordinates change places, and most others as they are: set these right.",
                (),
            )
        said = json.dumps(view.coordinates[::-1], ensure_ascii=False)
        return f"They lie in the box with coordinates = {said}: these stand in the order of bounds.", ()
    texts = pl.concat([tried.select(side.alias("text"), "rows") for side in sides])
    if (found := lines_of_numbers(texts.filter(pl.col("text") != ""), most=most))[1]:
        return found
    broken = np.any([np.isnan(numbers(side)) for side in sides], axis=0)
    if broken.all():
        return "They are no numbers.", ()
    return ("Some are no numbers, and others lie" if broken.any() else "They lie") + " outside of bounds.", ()


def alike(texts: pl.Series) -> pl.Series:
    r"""Texts without what people leave out: spaces, capitals, leading zeros, a point and zeros at the end.

    Example:
        >>> alike(pl.Series([" 07 ", "7.0", "Bay  View", "0"])).to_list()
        ['7', '7', 'bay view', '0']
    """
    plain = texts.str.replace_all(r"\s+", " ").str.strip_chars().str.to_lowercase()
    return plain.str.replace(r"^(\d+)\.0+$", "${1}").str.replace(r"^0+(\d)", "${1}")


def nobody(keys: pl.Series) -> pl.Series:
    """Which keys are what people write where there is none.

    Example:
        >>> nobody(pl.Series([" ", "UNKNOWN", "000", "99999", "90", "p-7"])).to_list()
        [True, True, True, True, False, False]
    """
    return alike(keys).str.contains(_NO_KEY)


def meant(text: str, values: Collection[str]) -> list[str]:
    """The value that a text is a slip of, if there is one. With another digit it is another code, not a slip.

    Nor is a code of few letters with another letter, as of diagnoses.

    Example:
        >>> meant("j069", ["j06.9"]), meant("a00.0", ["z00.0"]), meant("wrd 3", ["ward 3", "ward 4"])
        (['j06.9'], [], ['ward 3'])
    """
    signs, digits = re.findall(r"[^\W_]", text), re.findall(r"\d", text)
    telling = r"[^\W_]" if digits and 2 * len(digits) >= len(signs) else r"\d"
    near = get_close_matches(text, values, n=1, cutoff=_LIKE)
    return [value for value in near if re.findall(telling, value) == re.findall(telling, text)]


def texts_of(odd: pl.DataFrame, number: int = 8) -> str:
    """The most frequent texts, in quotation marks, and how many rows have each."""
    return ", ".join(f"{text!r} ({rows:,})" for text, rows in odd.head(number).iter_rows())


def types_of(kinds: frozenset[str]) -> str:
    """Which types files say that a column has, if they are more than texts."""
    types = sorted(kinds - {"String", "Object"})
    return f"; the file says {', '.join(types)}" if types else ""


def percent(rows: int, count: int) -> str:
    """A share as people write it.

    Example:
        >>> percent(1, 3), percent(1, 100_000), percent(0, 5)
        ('33 %', 'below 0.1 %', '0 %')
    """
    share = 100 * rows / max(count, 1)
    if 0 < share < 0.1:
        return "below 0.1 %"
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.1f} %"
