"""Charts as inline SVG and HTML: no script, nothing from elsewhere, colours from the page's style sheet.

Labels are HTML, not SVG text, so that they keep their size on a phone. Every chart is a ``figure`` with a caption, and
says in words what it shows; the numbers are in a table below it, or it is a table itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Required, TypedDict, Unpack

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from synthstream.report.page import macro
from synthstream.report.scales import Axis, class_labels, classes, number
from synthstream.workload import FloatArray

# Colours of a sequence in the style sheet: classes m1 (least) to m7 (most).
SHADES = 7
# Series that can be told apart: classes s1 to s6, each with its own dashes.
MOST_SERIES = 6
_WIDTH, _HEIGHT = 1000.0, 500.0
# Of the width of a small chart, in per cent: a letter, and up to where a label stands to the right of its mark.
_LETTER, _EDGE = 4.0, 4.0


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one line.

    Args:
        x, y: the points; where ``y`` is ``None`` the line has a gap.
        low, high: ends of the error band at each point; left out: no band. ``None`` in either: no band there.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar.

    Args:
        at, low, high: a dot, and the ends of its error bar; ``None`` for none. The scale starts at 0: a dot below it
            is an arrow there, with the note as its words.
        muted: drawn grey: a cell such as ``other`` or ``missing``, or one that is lost in noise.
        note: said when the pointer rests on it.
    """

    label: str
    value: float
    at: float | None = None
    low: float | None = None
    high: float | None = None
    muted: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Numbers behind a chart: headings, rows of texts, each named by its first cell, and a caption, if any."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]] = field(default=())
    caption: str = ""


class Caption(TypedDict, total=False):
    """What stands around a chart.

    Args:
        description: what it shows, in words, for who cannot see it.
        table: the numbers, under a fold.
        note: a sentence below.
    """

    title: Required[str]
    description: Required[str]
    table: Table | None
    note: str


def line_chart(
    series: Sequence[Series],
    *,
    x: Axis,
    y: Axis,
    x_label: str = "",
    y_label: str = "",
    small: bool = False,
    **caption: Unpack[Caption],
) -> Markup:
    """Lines over time or another number, each with a band of error.

    Args:
        series: at most six.
        x_label, y_label: what they are, with the unit.
        small: one of many side by side.

    Raises:
        ValueError: there are more series than can be told apart.

    Example:
        >>> from synthstream.report.scales import linear
        >>> one = Series(name="events", x=[0, 1], y=[10, 20], low=[8, 18], high=[12, 22])
        >>> html = line_chart([one], title="Events", description="They grow.", x=linear(0, 1), y=linear(0, 20))
        >>> 'role="img"' in html, "<figcaption>" in html
        (True, True)
    """
    if len(series) > MOST_SERIES:
        raise ValueError(f"at most {MOST_SERIES} lines can be told apart, not {len(series)}")
    drawn = []
    for s in series:
        points = [
            None if v is None or not math.isfinite(v) else _point(x, y, at, v) for at, v in zip(s.x, s.y, strict=True)
        ]
        drawn.append({"name": s.name, "line": _path(points), "dots": _lonely(points), "band": _band(s, x, y)})
    return macro(
        "line",
        series=drawn,
        x_marks=_apart(_marks(x)) if small else _marks(x),
        y_marks=[(100 - place, label) for place, label in _marks(y)],
        x_label=x_label,
        y_label=y_label,
        small=small,
        wide=max((len(label) for _, label in y.marks), default=0) > 6,
        **caption,
    )


def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    more: Sequence[Bar] = (),
    headings: tuple[str, str] = ("Value", "Synthetic rows"),
    table: Table | None = None,
) -> Markup:
    """Horizontal bars with error bars, as a table: labels and numbers are text.

    Args:
        bars: from top to bottom. The scale starts at 0, and ends at the longest bar or error bar.
        more: further bars, under a fold.
        headings: of labels and of numbers, for those who cannot see the bars.
        table: the numbers, under a fold.

    Example:
        >>> html = bar_chart([Bar(label="A <b>", value=3, at=2.5, low=1, high=4)], title="Wards")
        >>> "A &lt;b&gt;" in html, "<b>" in html
        (True, False)
    """
    ends = [v for b in (*bars, *more) for v in (b.value, b.at, b.high) if v is not None and math.isfinite(v)]
    top = max([*ends, 0.0]) or 1.0
    longest = max((len(b.label) for b in (*bars, *more)), default=0)
    return macro(
        "bars",
        title=title,
        headings=headings,
        bars=[_bar(b, top) for b in bars],
        more=[_bar(b, top) for b in more],
        width=min(max(longest, 5), 26),
        table=table,
    )


def heat_map(
    names: Sequence[str],
    pairs: Mapping[tuple[int, int], tuple[float | None, bool]],
    *,
    high: float = 1.0,
    scale: str = "",
    **caption: Unpack[Caption],
) -> Markup:
    """A triangle of coloured cells, one for each pair of names.

    Args:
        names: of rows and columns.
        pairs: by the places of both names, the smaller first: a value, ``None`` if one column has one value alone; and
            whether it is within noise. Either is greyed out. Other pairs are left empty.
        high: the value of the strongest colour; 0 is the faintest.
        scale: what the colours mean, with the unit.

    Example:
        >>> html = heat_map(["a", "b"], {(0, 1): (0.7, False)}, title="Pairs", description="One.")
        >>> "b and a: 0.7" in html
        True
    """
    cells: list[dict[str, Any]] = []
    for (i, j), (value, noise) in sorted(pairs.items(), key=lambda pair: pair[0][::-1]):
        shade, said = 0, "one of them has one value alone"
        if value is not None:
            shade = 0 if noise else min(int(value / high * SHADES), SHADES - 1) + 1
            said = number(value) + (" (within noise and chance)" if noise else "")
        cells.append({"x": i, "y": j - 1, "shade": shade, "said": f"{names[j]} and {names[i]}: {said}"})
    lonely = any(value is None for value, _ in pairs.values())
    bounds = [f"{high * k / SHADES:.2f}" for k in range(SHADES)]
    return macro(
        "heat",
        names=list(names),
        cells=cells,
        size=len(names) - 1,
        bounds=bounds if any(c["shade"] for c in cells) else [],
        top=f"{high:.2f}",
        scale=scale,
        grey="within noise and chance" + (", or with a column of one value alone" if lonely else ""),
        **caption,
    )


def density_map(
    grid: FloatArray,
    *,
    x: Axis,
    y: Axis,
    aspect: float,
    x_label: str,
    y_label: str,
    scale: str,
    span: tuple[float, float] | None = None,
    noise: NDArray[np.bool_] | None = None,
    outlines: str = "",
    **caption: Unpack[Caption],
) -> Markup:
    """Events by cell of a grid over two numbers, in colours on a logarithmic scale. Empty cells stay blank.

    Args:
        grid: counts, a row for each step of y from low to high, a column for each step of x from low to high.
        aspect: width by height of the drawing.
        span: the counts that the first and the last colour stand for; left out: the smallest and the largest.
        noise: cells that are drawn in grey, in the shape of ``grid``.
        outlines: an SVG path that is drawn above, in cells from the upper left corner.

    Example:
        >>> from synthstream.report.scales import linear
        >>> html = density_map(np.array([[0, 3], [1, 9]]), title="Map", description="Four cells.", x=linear(0, 1),
        ...                    y=linear(0, 1), aspect=1, x_label="lon", y_label="lat", scale="events")
        >>> html.count('class="m')  # three cells, of three colours, and seven in the legend
        10
    """
    grey = np.zeros(grid.shape, dtype=np.bool_) if noise is None else noise & (grid > 0)
    positive = grid[(grid > 0) & ~grey].tolist()
    bounds = classes(span or positive, SHADES) if positive else []
    labels, top = class_labels(bounds, max(span or positive)) if positive else ([], "")
    paths = [*_stripes(grey, [1.0])[-1:], *_stripes(np.where(grey, 0, grid), bounds)]
    return macro(
        "density",
        paths=[(shade, path) for shade, path in enumerate(paths) if path],
        outlines=outlines,
        grey="within noise" if grey.any() else "",
        empty="empty" if (grid <= 0).any() else "",
        size=grid.shape[::-1],
        aspect=round(aspect, 4),
        bounds=labels,
        top=top,
        x_marks=_marks(x),
        y_marks=[(100 - place, label) for place, label in _marks(y)],
        x_label=x_label,
        y_label=y_label,
        scale=scale,
        **caption,
    )


def _stripes(grid: NDArray[Any], bounds: Sequence[float]) -> list[str]:
    """An SVG path for each colour, whose lower bounds these are: neighbours of one colour are one rectangle."""
    paths = [""] * SHADES
    for i, row in enumerate(grid.tolist()):
        shades = [shade_of(v, bounds) for v in row]
        start = 0
        for shade, same in groupby(shades):
            length = len(list(same))
            if shade:
                paths[shade - 1] += f"M{start} {len(grid) - 1 - i}h{length}v1h-{length}z"
            start += length
    return paths


def shade_of(value: float, bounds: Sequence[float]) -> int:
    """The colour of a count, by the lower bounds of the last colours; 0 for none."""
    passed = sum(value >= bound * (1 - 1e-12) for bound in bounds)
    return 0 if value <= 0 else max(1, passed) + SHADES - len(bounds)


def _marks(axis: Axis) -> list[tuple[float, str]]:
    return [(round(100 * axis.share(at), 2), label) for at, label in axis.marks]


def _apart(marks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Labels below a small chart that do not touch the one before.

    Example:
        >>> _apart([(0.0, "2025-01-01"), (25.2, "Apr"), (50.7, "Jul")])
        [(0.0, '2025-01-01'), (50.7, 'Jul')]
    """
    shown, free = list[tuple[float, str]](), 0.0
    for at, label in marks:
        wide = _LETTER * len(label)
        begin = at - wide / (4 if at < _EDGE else 2)
        if not shown or begin >= free:
            shown.append((at, label))
            free = begin + wide + _LETTER
    return shown


def _point(x: Axis, y: Axis, at: float, value: float) -> tuple[float, float]:
    return round(x.share(at) * _WIDTH, 1), round((1 - y.share(value)) * _HEIGHT, 1)


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """SVG path through points, lifted at gaps."""
    parts, down = [], False
    for point in points:
        if point is not None:
            parts.append(f"{'L' if down else 'M'}{point[0]:g} {point[1]:g}")
        down = point is not None
    return "".join(parts)


def _lonely(points: Sequence[tuple[float, float] | None]) -> str:
    """Points without a neighbour, which no line would show: strokes of length 0, round at the ends."""
    neighbours = zip([None, *points], points, [*points[1:], None], strict=False)
    alone = [p for before, p, after in neighbours if p is not None and before is None and after is None]
    return "".join(f"M{px:g} {py:g}h0" for px, py in alone)


def _band(series: Series, x: Axis, y: Axis) -> str:
    """Closed SVG paths of the band; one for each stretch without a gap."""
    if series.low is None or series.high is None:
        return ""
    stretches: list[list[tuple[float, float, float]]] = [[]]
    for at, low, high in zip(series.x, series.low, series.high, strict=True):
        if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
            stretches.append([])
        else:
            stretches[-1].append((at, low, high))
    parts = []
    for stretch in stretches:
        if len(stretch) > 1:
            there = [_point(x, y, at, high) for at, _, high in stretch]
            back = [_point(x, y, at, low) for at, low, _ in reversed(stretch)]
            parts.append(_path([*there, *back]) + "z")
    return "".join(parts)


def _bar(bar: Bar, top: float) -> dict[str, Any]:
    """Lengths in percent of the scale."""

    def place(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else round(min(max(value / top, 0.0), 1.0) * 100, 2)

    return {
        "label": bar.label,
        "value": number(bar.value),
        "length": place(bar.value) or 0.0,
        "at": None if bar.at is None or bar.at < 0 else place(bar.at),
        "below": bar.at is not None and bar.at < 0,
        "low": place(bar.low),
        "high": place(bar.high),
        "muted": bar.muted,
        "note": bar.note,
    }
