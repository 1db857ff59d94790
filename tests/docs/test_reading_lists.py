"""What docs/trust.md says to read for a kind of stream: the files of the page that run while such a stream does."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from synthstream import Stream, StreamConfig
from synthstream.kernel.counters.restarted import _inner
from tests.support.configs import number
from tests.support.executed import executed
from tests.support.house import ROOT, SOURCE, named, own_lines
from tests.support.streams import PERSONS, rows, text_of

TEXT = (ROOT / "docs" / "trust.md").read_text()
SECTIONS = {
    int(part[0]): named(part) for part in re.split(r"^## ", TEXT, flags=re.MULTILINE) if re.match(r"\d\. ", part)
}
PAGE = [name for number in range(1, 7) for name in SECTIONS[number]]

# Streams that are run, by the row that is about them.
RUN = {
    "tables, delta above 0": ("refresh", "always"),
    "tables, delta = 0": ("epochs",),
    "points": ("points", "points-zcdp"),
    "points with `op`": ("points-signed",),
    "persons": (PERSONS,),
    "a method of a paper": ("selective", "selective-mw", "stream-mwem", "hypercube"),
}
EVERY = {
    "every stream: the noise": range(1, 4),
    "every stream: rows and counts": [4],
    "every stream: state and draws": [5, 6],
}
# They take no part in a real stream, or see nothing that is private.
APART = {"synthesizers/simulation/seeded.py"}


def lists() -> dict[str, tuple[list[str], int]]:
    """The rows of the table on the page: files, and lines."""
    found = re.findall(r"^\| ([^`|][^|]*) \| (`[^|]*) \| ([\d,]+) \|$", TEXT, re.MULTILINE)
    return {key: (re.findall(r"`([\w/]+\.py)`", files), int(lines.replace(",", ""))) for key, files, lines in found}


@cache
def run(folder: Path, kind: str) -> frozenset[str]:
    """Files of the page that run while small streams of a kind do: with a horizon, and without."""
    files = set[str]()
    for horizon in ("12", '"unbounded"'):
        text = text_of(kind).replace("until = 2026-01-09", "until = 2026-01-03")
        text = text.replace("horizon = 12", f"horizon = {horizon}")
        # A budget of its own: what was computed for another stream of this process is kept, and would not run again.
        text = text.replace("epsilon = 2.0", f"epsilon = 2.0{len(horizon)}{len(kind)}{sum(map(ord, kind))}")
        if kind == "epochs":  # several larger tables, of which one is chosen
            text += number("y", "bins = 3", high=10)
        place = folder / f"{kind} {len(horizon)}"
        place.mkdir()
        rows(200, 1).write_parquet(place / "rows-1.parquet")
        _inner.cache_clear()
        with executed() as found:
            config = StreamConfig.from_toml(text, base=place)
            for _ in range(2):
                with Stream(config) as stream:
                    list(stream.run())
        files |= found
    return frozenset(name for name in PAGE if name in files)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, frozenset[str]]:
    """By row: about 20 small streams are run, each counted function by function."""
    folder = tmp_path_factory.mktemp("kinds")
    return {row: frozenset().union(*(run(folder, kind) for kind in kinds)) for row, kinds in RUN.items()}


def in_order(names: set[str] | frozenset[str]) -> list[str]:
    """As the page has them; strategies apart, whose work the kernel checks."""
    return [name for name in PAGE if name in names and not name.startswith("strategies/")]


@pytest.mark.slow  # a process for each way of running
def test_every_list_is_what_runs(ran: dict[str, frozenset[str]]) -> None:
    always = frozenset.intersection(*ran.values())
    for row, sections in EVERY.items():
        assert lists()[row][0] == in_order({n for k in sections for n in SECTIONS[k]} & always), row
    for row, files in ran.items():
        besides = ran["tables, delta above 0"] if row == "persons" else always
        assert lists()[row][0] == in_order(files - besides), row


def test_lists_and_strategies_are_all_there_is() -> None:
    found = {name for files, _ in lists().values() for name in files}
    assert found == {name for name in PAGE if not name.startswith("strategies/")} - APART


@pytest.mark.parametrize("row", lists())
def test_lines_are_about_right(row: str) -> None:
    """Of code, without docstrings, comments and blanks; within a tenth, so that not every change is written here."""
    files, lines = lists()[row]
    assert files == in_order(set(files))
    assert lines == pytest.approx(sum(own_lines(SOURCE / name) for name in files), rel=0.1, abs=10)
