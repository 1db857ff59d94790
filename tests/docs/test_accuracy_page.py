"""The page on accuracy: its examples run, and its figures are those of the benchmark's result."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

from benchmarks.theorem51 import PICKS, vacuous

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
RESULT = json.loads((ROOT / "benchmarks" / "results" / "theorem51.json").read_text())


def short(share: float) -> str:
    """As the page prints a share: no leading zero, three decimals, four below a tenth, two above one."""
    decimals = 2 if share > 1 else 3 if share > 0.1 else 4
    return f"{share:.{decimals}f}".removeprefix("0")


def test_examples_run() -> None:
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0


def test_figures_are_those_of_the_experiment() -> None:
    text, rows = PAGE.read_text(), RESULT["experiment"]
    assert f"{len(rows)} settings" in text
    assert all(row["bound"] > max(row["mean_weights"], row["refitted"]) for row in rows)
    for batch in sorted({row["batch"] for row in rows}):
        of_batch = [row for row in rows if row["batch"] == batch]
        at_rule = min(of_batch, key=lambda row: abs(row["picks"] - row["rule"]))
        best = min(of_batch, key=lambda row: row["refitted"])
        line = next(line for line in text.splitlines() if line.startswith(f"| {batch:,} |"))
        for key in ("bound", "mean_weights", "refitted"):
            assert f"| {short(at_rule[key])} |" in line
        assert f"{short(best['refitted'])} (k = {best['picks']})" in line
        assert len(of_batch) == len(PICKS)


def test_figures_are_those_of_appendix_b() -> None:
    text, rows = PAGE.read_text(), vacuous()
    assert rows == RESULT["vacuous"]
    for row in rows:
        assert f"10^{row['last_tick_log10']} ({row['events']:,})" in text
        assert f"| {row['first_tick']:,} ({row['first_tick_events']:,}) |" in text
        assert f"| {row['theorem_5_1']:,} |" in text
