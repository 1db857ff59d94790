"""From numbers and dates to places on an axis, and to the text beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, Context
from itertools import pairwise

from synthstream.privacy import CHEAPER

# Steps between dates on an axis: months, then seconds.
_MONTHS = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1200)
_SECONDS = (60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, 7 * 86_400, 14 * 86_400)
# How many standard errors an error bar reaches to either side; and what a range of a number is called.
REACH, RANGE = 2.0, "Measured (range of about 95\u00a0%)"
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))


def number(value: float | None, digits: int = 3) -> str:
    """A number as people write it: thousands apart, three digits that count, or so many.

    Example:
        >>> [number(v) for v in (12345.6, 12.345, 0.001234, -3.0, None)], number(12.345, 4)
        (['12,346', '12.3', '0.00123', '\u22123', '\u2013'], '12.35')
    """
    if value is None or math.isnan(value):
        return "\u2013"
    if math.isinf(value):
        return "\u221e" if value > 0 else "\u2212\u221e"
    size = abs(value)
    if size >= 10 ** (digits - 1) or size == int(size):
        text = f"{size:,.0f}"
    elif size < 1e-4:
        text = f"{size:.{digits - 1}g}"
    else:
        text = f"{size:,.{digits - 1 - math.floor(math.log10(size))}f}".rstrip("0").rstrip(".")
    return f"\u2212{text}" if value < 0 and text != "0" else text


def bound(value: float | None) -> str:
    """A bound with as many digits as :func:`number` writes, never below what it is.

    Example:
        >>> [bound(value) for value in (0.1, 0.014123, 2.7113, 1.0, 1.31e-5, None)]
        ['0.1', '0.0142', '2.72', '1', '1.4e-05', '\u2013']
    """
    if value is None or not 0 < value < math.inf:
        return number(value)
    digits = 3 if value >= 1e-4 else 2
    return number(float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value * CHEAPER)))


def ranged(value: float, stderr: float) -> str:
    """A count, and in brackets as far as its error bar reaches.

    Example:
        >>> ranged(2025.2, 67.6), ranged(3, 10)
        ('2,025 (1,890 to 2,160)', '3 (\u221217 to 23)')
    """
    low, high = (number(round(value + side * REACH * stderr)) for side in (-1, 1))
    return f"{number(round(value))} ({low} to {high})"


def size_of(size: int) -> str:
    """A number of bytes as people read it."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{max(size / 1e3, 0.1):.1f} kB"


def ranges(edges: Sequence[float]) -> list[str]:
    """Labels of the bins between edges, with as many decimals as it takes to tell them apart.

    Example:
        >>> ranges([47.0, 47.25, 47.5]), ranges([-10, 0, 10])
        (['47.00 to 47.25', '47.25 to 47.50'], ['\u221210 to 0', '0 to 10'])
        >>> ranges([0.1, 1, 31.6, 1000])
        ['0.1 to 1', '1 to 31.6', '31.6 to 1,000']
    """
    steps = [b - a for a, b in pairwise(edges)]
    if max(steps) > 10 * min(steps) and len({number(edge) for edge in edges}) == len(edges):
        return [f"{a} to {b}" for a, b in pairwise(map(number, edges))]
    step = min(steps)
    digits = next((d for d in range(12) if all(abs(round(e, d) - e) <= step / 20 for e in edges)), 12)
    texts = [f"{edge:,.{digits}f}".replace("-", "\u2212") for edge in edges]
    return [f"{a} to {b}" for a, b in pairwise(texts)]


def short(value: float, *, like: float | None = None) -> str:
    """A number for an axis, where there is little room; in the unit of another one, if that is named.

    Example:
        >>> [short(v) for v in (0, 2500, 25_000, 1_500_000)], [short(v, like=15_000) for v in (0, 2500, 5000)]
        (['0', '2,500', '25k', '1.5M'], ['0', '2.5k', '5k'])
    """
    for unit, letter in _LARGE:
        if value and abs(value if like is None else like) >= unit:
            unit = 1e3 if letter == "k" else unit
            return f"{value / unit:.3g}{letter}".replace("-", "\u2212")
    return number(value)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One direction of a plot.

    Args:
        low, high: the ends, in the axis's own units; seconds since 1970 for dates.
        marks: where to write a label, and which, from low to high.
        log: whether places go by the logarithm.
    """

    low: float
    high: float
    marks: tuple[tuple[float, str], ...]
    log: bool = False

    def share(self, value: float) -> float:
        """How far along a value lies: 0 at ``low``, 1 at ``high``; clipped to the axis.

        Example:
            >>> Axis(low=1, high=100, marks=(), log=True).share(10)
            0.5
        """
        if self.log:
            low, high, at = math.log(self.low), math.log(self.high), math.log(max(value, self.low))
        else:
            low, high, at = self.low, self.high, value
        return min(max((at - low) / (high - low), 0.0), 1.0)


def linear(low: float, high: float, *, marks: int = 5, tight: bool = False) -> Axis:
    """An axis whose labels are round numbers: about ``marks`` of them. ``tight``: do not widen it to the next label.

    Example:
        >>> axis = linear(0, 4588)
        >>> axis.high, [label for _, label in axis.marks]
        (5000.0, ['0', '1,000', '2,000', '3,000', '4,000', '5,000'])
        >>> [label for _, label in linear(0, 13_000, marks=3).marks]
        ['0', '5k', '10k', '15k']
        >>> [label for _, label in linear(-122.45, -122.40, tight=True).marks]
        ['−122.45', '−122.44', '−122.43', '−122.42', '−122.41', '−122.40']
    """
    if not high > low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / marks
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9)) * power
    first = math.ceil(low / step - 1e-9) if tight else math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9) if tight else math.ceil(high / step - 1e-9)
    places = [i * step for i in range(first, last + 1)]
    ends = (low, high) if tight else (places[0], places[-1])
    most = max(map(abs, ends))
    labels = [number(p) if most <= 10_000 else short(p, like=most) for p in places]
    if len(set(labels)) < len(labels):  # three digits do not tell them apart
        labels = [label.split(" to ")[0] for label in ranges([*places, places[-1] + step])]
    return Axis(low=ends[0], high=ends[1], marks=tuple(zip(places, labels, strict=True)))


def logarithmic(low: float, high: float) -> Axis:
    """An axis by powers of ten; with 2 and 5 between if there are few.

    Example:
        >>> [label for _, label in logarithmic(3, 80).marks], [label for _, label in logarithmic(1, 3650).marks]
        (['2', '5', '10', '20', '50', '100'], ['1', '10', '100', '1,000'])
    """
    low, high = max(low, 1e-300), max(high, low * 1.0001)
    steps = (1, 2, 5) if high / low < 1e4 else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    places = [s * 10.0**p for p in powers for s in steps]
    start = max(i for i, p in enumerate(places) if p <= low * (1 + 1e-9))
    end = min(i for i, p in enumerate(places) if p >= high * (1 - 1e-9))
    shown = places[start : end + 1]
    if len(shown) > 8:
        shown = [p for p in shown if math.isclose(math.log10(p), round(math.log10(p)), abs_tol=1e-9)]
    shown = shown[:: math.ceil(len(shown) / 8)]
    return Axis(low=places[start], high=places[end], marks=tuple((p, short(p)) for p in shown), log=True)


def dates(start: datetime, end: datetime, *, marks: int = 6) -> Axis:
    """An axis of dates, labelled at the beginning of years, months, days or hours; one date stands in its middle.

    No hours stand between two days.

    Example:
        >>> from datetime import UTC
        >>> axis = dates(datetime(2011, 1, 1, tzinfo=UTC), datetime(2016, 1, 2, tzinfo=UTC))
        >>> [label for _, label in axis.marks]
        ['2011', '2012', '2013', '2014', '2015', '2016']
        >>> [label for _, label in dates(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)).marks]
        ['2 Jan', '3 Jan']
        >>> [label for _, label in dates(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)).marks]
        ['2026-01-02']
    """
    zone = start.tzinfo
    if end <= start:
        at, label = start.timestamp(), f"{start:%Y-%m-%d %H:%M}".removesuffix(" 00:00")
        return Axis(low=at - 1, high=at + 1, marks=((at, label),))
    least = 0 if any(day.hour or day.minute for day in (start, end)) else 86_400
    span = (end - start).total_seconds()
    if span / marks > _SECONDS[-1] * 1.2:
        month = next((m for m in _MONTHS if m * 30.4 * 86_400 * (marks + 1) >= span), _MONTHS[-1])
        first = (start.year * 12 + start.month - 1) // month * month
        last = end.year * 12 + end.month
        days = [datetime(i // 12, i % 12 + 1, 1, tzinfo=zone) for i in range(max(first, 12), last, month)]
        form = "%Y" if month % 12 == 0 else "%b %Y"
    else:
        step = next((s for s in _SECONDS if s >= least and s * (marks + 1) >= span), _SECONDS[-1])
        day = datetime(start.year, start.month, start.day, tzinfo=zone)
        days = [day + timedelta(seconds=i * step) for i in range(int((span + 86_400) / step) + 2)]
        form = "%d %b" if step >= 86_400 else "%H:%M"
        if step >= 86_400 and start.year != end.year:
            form = "%d %b %Y"
    places = [day for day in days if start <= day <= end]
    names = [day.strftime(form) for day in places]
    if form == "%b %Y" and start.year == end.year:  # the year once will do
        names[1:] = [name[:3] for name in names[1:]]
    shown = tuple((day.timestamp(), name.removeprefix("0")) for day, name in zip(places, names, strict=True))
    ends = tuple((day.timestamp(), f"{day:%Y-%m-%d}") for day in (start, end))
    return Axis(low=ends[0][0], high=ends[1][0], marks=shown or ends)


def classes(values: Sequence[float], number_of: int) -> list[float]:
    """Bounds of ``number_of`` classes of positive values, equal in the logarithm, from small to large: the lower ones.

    Example:
        >>> classes([1.0, 100.0], 2)
        [1.0, 10.0]
        >>> classes([109.0], 7)  # of one value there is one class
        [109.0]
    """
    low, high = min(values), max(values)
    return [low * (high / low) ** (i / number_of) for i in range(number_of if high > low else 1)]


def class_labels(bounds: Sequence[float], top: float) -> tuple[list[str], str]:
    """Labels of the bounds of :func:`classes`, and of where the last one ends: as few digits as tell them apart.

    Example:
        >>> class_labels([1.724, 17.24], 109), class_labels([100.0, 104.4], 109), class_labels([109.0], 109)
        ((['1.7', '17'], '109'), (['100', '104'], '109'), (['109'], ''))
        >>> class_labels([2564.0, 8400.0, 12_060.0], 22_510)  # all in one unit, and the first not above the least
        (['2.5k', '8.4k', '12k'], '22.5k')
    """
    if len(bounds) == 1:
        return [short(top)], ""
    labels: list[str] = []
    for digits in (2, 3, 17):
        rounded = [*(float(f"{bound:.{digits}g}") for bound in bounds), top]
        if rounded[0] > bounds[0]:
            rounded[0] -= 10.0 ** (math.floor(math.log10(bounds[0])) + 1 - digits)
        labels = [short(value, like=top if 1000 <= bounds[0] <= top < 1e6 else None) for value in rounded]
        if rounded == sorted(rounded) and len({*labels}) == len(labels):
            break
    return labels[:-1], labels[-1]
