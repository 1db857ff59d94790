"""PRIVATE. What ``check`` tells: lines for a terminal or a notebook, and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from synthstream.config.config import StreamConfig, load
from synthstream.environment import REAL
from synthstream.errors import secretive
from synthstream.evaluate.findings import Checked, Level, checked
from synthstream.evaluate.formats import percent, texts_of
from synthstream.evaluate.look import Cells, look
from synthstream.ingest.files import path_of
from synthstream.kinds import spelled
from synthstream.report.charts import Bar, Table, bar_chart
from synthstream.report.page import moment, render
from synthstream.report.regions import check_regions
from synthstream.schema.coercion import Frame
from synthstream.schema.columns import Category
from synthstream.schema.places import View
from synthstream.state.looking import to_look_at
from synthstream.stream.opening import begun, changes_from

STAMP = "PRIVATE: secret, shows true data. For the custodian alone; do not publish"
_WIDTH, _LISTED = 48, 40


@secretive
def check(config: StreamConfig | str | Path, *rows: Frame | str | Path) -> str:
    """Look at private rows before anything is spent: dates that cannot be read, values off the list, empty ticks.

    PRIVATE, for the custodian's eyes: every line says so. Nothing is counted, and no state is changed. Change how rows
    are read, never values, bounds or limits by what the data show: these must be known publicly.

    Args:
        config: of the stream, or the path of its ``stream.toml``.
        rows: polars, pandas or pyarrow frames, or paths of files; none: the new files of the configured source.

    Returns:
        What the command ``check`` prints.

    Raises:
        SchemaError: a frame lacks a column. ``ConfigError``: there are no files. ``SourceError``: one is not there.

    Example:
        >>> print(synthstream.check("stream.toml").splitlines()[0])
        PRIVATE  trips: 8,000 rows in 1 file(s)
    """
    config = load(config)
    said = [path_of(one) if isinstance(one, str | Path) else one for one in rows]
    return "\n".join(f"PRIVATE  {line}" for line in lines_of(look_now(config, said)))


def look_now(
    config: StreamConfig, said: Sequence[Path | Frame], *, progress: Callable[[list[Any]], Iterable[Any]] = iter
) -> Checked:
    """What is found in files and frames, by the machine's clock and the stream's state, if there is one."""
    config, open_tick, changed = begun(config), 0, list[str]()
    check_regions(config)
    looked, store = look(config, said, progress=progress), to_look_at(config.state)
    if store is not None:
        with closing(store):
            last, changed = store.last(), changes_from(config, store)
            open_tick = 0 if last is None else last.tick + 1
            looked = replace(looked, first=max((start for start, _ in store.segments()), default=0))
    return checked(config, looked, now=REAL.now(), open_tick=open_tick, changed=changed)


def lines_of(found: Checked) -> Iterator[str]:
    """All of it as lines, to be stamped one by one."""
    rows, looked = found.looked.rows, found.looked
    parts = [f"{len(looked.files):,} file(s)"] if looked.files or looked.refused else []
    parts += [f"{looked.frames:,} frame(s)"] if looked.frames else []
    many = "1 row" if rows.count == 1 else f"{rows.count:,} rows"
    yield f"{found.config.name}: " + (f"{many} in {' and '.join(parts)}" if parts else "no new file")
    yield f"Verdict: {_verdict(found)}"
    for finding in found.findings:
        mark = found.said(finding.level)
        yield f"{mark.upper() if finding.level is Level.STOP else mark}: {finding.about}: {finding.words}"
    if found.lines and looked.frames:
        yield "Keys of [source] change how files are read; of a frame, convert the columns before `update`."
    elif found.lines:
        yield "Lines that would change how files are read:"
        yield from (f"    {line}" for line in found.lines)
    if rows.count:
        by, ticks = found.by_tick()
        yield f"{by}:"
        most = max([number for _, number in ticks] + [1])
        for start, number in ticks:
            bar = "█" * round(_WIDTH * number / most) or ("▏" if number else "")
            yield f"    {moment(start)}  {bar} {number:,}"
    yield from _columns(found)
    for name, known in _shown(found):
        if known.other:
            yield f"{name}: most frequent in other: {texts_of(known.odd)}"
    yield from persons_of(found)
    if found.verdict is not Level.FINE:
        yield "Change how rows are read, never values, bounds or limits by what the data show."


def _verdict(found: Checked) -> str:
    """In words; there is none of nothing."""
    something = found.looked.files or found.looked.frames or found.looked.refused or found.verdict
    return found.said(found.verdict) if something else "none: there was nothing new to look at"


def _shown(found: Checked) -> list[tuple[str, Cells]]:
    """Each column, and of a place the finest grid by the place's name: the others hold the same."""
    columns, known = found.config.schema.columns, found.looked.rows.columns
    return [
        (column.place if isinstance(column, View) else column.name, known.get(column.name, Cells()))
        for column in columns
        if not isinstance(column, View) or column.located
    ]


def _columns(found: Checked) -> Iterator[str]:
    """Columns with something odd in them, below each other."""
    table = columns_of(found)
    if not found.looked.rows.count:
        return
    odd = [row for row in table.rows if set(row[1:6]) != {"–"}]
    if odd:
        lines = [table.headings, *odd]
        widths = [max(len(line[i]) for line in lines) for i in range(len(table.headings))]
        for first, *rest in lines:
            cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            yield "  ".join([first.ljust(widths[0]), *cells])
    if len(odd) < len(table.rows):
        yield f"{len(table.rows) - len(odd)} of {len(table.rows)} columns: nothing empty, unreadable, other or clamped"


def columns_of(found: Checked) -> Table:
    """Each column, with what share of its rows is what."""
    count = found.looked.rows.count
    headings = ["Column", "Empty", "Unreadable", "Other", "Clamped low", "Clamped high", "Values that never occur"]
    rows = []
    for name, cells in _shown(found):
        odd = (cells.empty, cells.unread, cells.other, cells.low, cells.high)
        shares = [percent(n, count) if n else "–" for n in odd]
        never = int((cells.listed == 0).sum())
        rows.append([name, *shares, f"{never} of {cells.listed.size}" if cells.listed.size else "–"])
    rows.sort(key=lambda row: set(row[1:6]) == {"–"})  # what is odd first
    return Table(headings=headings, rows=rows)


def persons_of(found: Checked) -> list[str]:
    """How many persons there are, and how many reach their limit."""
    persons, unit = found.persons, found.config.privacy.unit
    if persons is None:
        return []
    rows = found.looked.rows.count
    period = "" if unit.per is None else f" in some period of {spelled(unit.per)}"
    before = "What these persons had counted before is not looked up: with it, more may be beyond."
    return [
        f"Persons: {persons.number:,}, of whom {persons.full:,} ({percent(persons.full, persons.number)}) reach "
        f"max_events = {unit.max_events}{period}.",
        f"Rows beyond a limit: {persons.left_out:,} ({percent(persons.left_out, rows)}); without a key: "
        f"{persons.without:,} ({percent(persons.without, rows)}).",
        *([before] if found.open_tick else []),
    ]


def check_page(found: Checked) -> str:
    """All of it as HTML."""
    rows = found.looked.rows
    by, ticks = found.by_tick()
    in_ticks, charts = [Bar(label=moment(start), value=number) for start, number in ticks], []
    for column in found.config.schema.columns:
        cells = rows.columns.get(column.name, Cells())
        if isinstance(column, Category) and cells.other and getattr(column, "located", True):
            bars = [Bar(label=text, value=number, muted=True) for text, number in cells.odd.head(_LISTED).iter_rows()]
            title = f"{column.name}: what fell into other"
            charts.append(bar_chart(bars[:12], more=bars[12:], title=title, headings=("Text", "Rows")))
    return render(
        "check.html",
        title="A look at the private rows",
        name=found.config.name,
        stamp=STAMP,
        verdict=_verdict(found),
        found=found,
        rows=rows,
        columns=columns_of(found) if rows.count else None,
        persons=persons_of(found),
        ticks=bar_chart(in_ticks, title=by, headings=("From", "Rows")),
        charts=charts,
    )
