"""Figures on the pages that follow from public facts alone are what the program computes; the reference is whole."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import synthstream
from synthstream.kernel.counters import counter
from synthstream.kernel.tables import Refreshed
from synthstream.kinds import COUNTERS, Noise
from synthstream.privacy import Budget
from synthstream.workload import Workload

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "synthesizers" / "counters.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (\S+) \| (.*?) " + r"\| ([\d.]+) " * 4 + r"\|", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:3]))
def test_standard_errors_of_counters(row: tuple[str, ...]) -> None:
    kind, delta, horizons, *figures = row
    noise: Noise = "laplace" if delta == "0" else "gaussian"
    budget = Budget(epsilon=1.0, delta=float(delta))
    multiplier = 1.0 if delta == "0" else 1 / float(np.sqrt(2 * float(budget.rho)))
    for horizon in horizons.split(" or "):
        made = counter(as_kind(kind), horizon=None if horizon == "-" else int(horizon.replace(",", "")), noise=noise)
        found = [f"{np.sqrt(made.variance(t - 1, multiplier=multiplier)):.1f}" for t in (1, 10, 100, 1_000)]
        assert found == figures


def as_kind(name: str) -> str:
    return next(kind for kind in COUNTERS if kind == name)


def test_every_counter_is_in_the_table() -> None:
    assert {row[0] for row in ROWS} == set(COUNTERS) - {"auto", "weeks", "sevens"}  # the guide and a test add theirs
    assert len(ROWS) == 11


def test_the_reference_names_all_that_is_public() -> None:
    listed = set(
        re.findall(r"^::: synthstream\.(?:\w+\.)*(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    )
    assert set(synthstream.__all__) - {"SynthstreamError"} <= listed
    assert "errors" in listed  # which holds SynthstreamError


def test_the_errors_of_many_tables_and_of_one() -> None:
    page = (ROOT / "docs" / "concepts" / "error.md").read_text()
    text = (ROOT / "examples" / "evictions" / "stream.toml").read_text()
    always = text.replace('kind = "table"', 'kind = "table"\nmeasure = "always"')
    every, mixed = (
        synthstream.plan(
            synthstream.StreamConfig.from_toml(each, base=ROOT / "examples" / "evictions"), at_ticks=[520], rows=False
        )
        .forecasts[0]
        .stderr
        for each in (always, text)
    )
    assert f"standard error of {every[2]:.0f} after 520 ticks; one table alone has {every[2] / 254**0.5:.0f}." in page
    assert f"it is {max(mixed.values()):.0f} or less after the last tick" in page


CUSTODIAN = (ROOT / "docs" / "guides" / "custodian.md").read_text()


def test_the_errors_of_the_custodians_example() -> None:
    (text,) = re.findall(r'title="stream.toml"\n(.*?)```', CUSTODIAN, re.DOTALL)
    config = synthstream.StreamConfig.from_toml(text)
    found = synthstream.plan(config, at_ticks=[1, *range(53, 105)], rows=False).forecasts
    first, *later = (round(forecast.stderr[1], -1) for forecast in found)
    assert (
        f"± {first:.0f} in the first week, and ± {min(later):.0f} to {max(later):.0f} in the second year" in CUSTODIAN
    )


HORIZONS = re.findall(
    r"^\| (\d[\d,]*|unbounded|a successor each year) " + r"\| ([\d /]+) " * 4 + r"\|", CUSTODIAN, re.MULTILINE
)
AFTER = (30, 365, 3 * 365, 5 * 365)


def six_columns(horizon: int | None) -> Refreshed:
    workload = Workload.all_up_to(2, sizes=(6, 11, 6, 4, 5, 9))
    return Refreshed(workload=workload, budget=Budget(epsilon=1.0, delta=1e-9, exact=True), horizon=horizon, early=2)


@pytest.mark.parametrize("row", HORIZONS, ids=lambda row: row[0])
def test_standard_errors_of_horizons(row: tuple[str, ...]) -> None:
    name, *figures = row
    yearly = name == "a successor each year"
    horizon = 365 if yearly else None if name == "unbounded" else int(name.replace(",", ""))
    made = six_columns(horizon)
    for days, figure in zip(AFTER, figures, strict=True):
        parts = -(-days // 365) if yearly else 1  # all of them whole, but where there is one alone
        variance = parts * made.variance(min(days, horizon or days) - 1)
        found = [float(np.sqrt(variance[made.order == k].mean())) for k in range(3)]
        assert " / ".join(f"{error:.0f}" for error in found) == figure


def test_every_horizon_is_in_the_table() -> None:
    assert len(HORIZONS) == 5


def test_errors_of_larger_tables_without_a_horizon() -> None:
    page = (ROOT / "docs" / "synthesizers" / "refreshed.md").read_text()
    (late,) = re.findall(r"at tick ([\d,]+) a cell .* off by (\d+), with ([\d,]+) ticks by (\d+)", page)
    told = re.findall(r"at tick ([\d,]+) a cell is off by (\d+)\.", page)
    (again,) = re.findall(r"they begin with tick ([\d,]+)", page)
    late, *told, again = (tuple(int(part.replace(",", "")) for part in one) for one in (late, *told, (again,)))
    endless = six_columns(None)

    def off_by(made: Refreshed, tick: int) -> float:
        return float(np.sqrt(made.variance(tick)[made.order == 2].mean()))

    assert told
    for tick, error in (late[:2], *told):
        assert round(off_by(endless, tick)) == error
    assert round(off_by(six_columns(late[2]), late[0])) == late[3]
    assert endless.times.up_to(2 * 10**6).ticks[96] == again[0]
    assert 1.1 < off_by(endless, again[0]) / off_by(endless, again[0] - 1) < 1.3
