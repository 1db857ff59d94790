"""Fewer pairs for wide tables: proposed where more of them then rise above the noise, and worth it where they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from synthstream.cli.common import console
from synthstream.cli.plan import _print_rest
from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError
from synthstream.fit.population import fit
from synthstream.forecast.planning import plan
from synthstream.forecast.wide import _rising
from synthstream.measured import Measured
from synthstream.report.plan_page import plan_page
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.workload import FloatArray, Workload


def text(columns: int = 24, values: int = 4, section: str = "", delta: float = 1e-9) -> str:
    names = json.dumps([f"v{k}" for k in range(values - 2)])  # and "missing" and "other"
    return f"""
        name = "wide"
        state = "state"
        privacy = {{ epsilon = 1.0, delta = {delta}, unit = "event" }}
        clock = {{ start = 2026-01-01, every = "1d", horizon = 365 }}
        {section}
        """ + "".join(f'[[columns]]\nname = "c{i}"\ntype = "category"\nvalues = {names}\n' for i in range(columns))


def config(**how: object) -> StreamConfig:
    return StreamConfig.from_toml(text(**how))  # type: ignore[arg-type]


@pytest.mark.parametrize(("expect", "near"), [("20/day", 0), ("400/day", 4), ("100000/day", None)])
def test_as_many_pairs_as_rise_above_the_noise(expect: str, near: int | None) -> None:
    found = plan(config(), expect=expect, rows=False).proposal
    if near is None:
        assert found is None
        return
    assert found is not None
    assert found.near == near
    assert found.rising >= found.all_rising
    assert found.rising == found.pairs
    assert found.toml == ("[synthesizer]\norder = 1\n" if near == 0 else f"[synthesizer]\nnear = {near}\n")


@pytest.mark.parametrize(
    "how",
    [
        {"section": "synthesizer = { order = 1 }"},
        {"section": "synthesizer = { near = 3 }"},
        {"columns": 19},
        {"delta": 0.0},
    ],
)
def test_nothing_is_proposed_where_tables_were_chosen_or_are_few(how: dict[str, object]) -> None:
    assert plan(config(**how), expect="400/day", rows=False).proposal is None


def test_rising_is_what_noise_rarely_does_and_weak_associations_mostly() -> None:
    """An association of the strength that is asked for has the size that the rule takes, and noise has its spread."""
    rng, workload = np.random.default_rng(0), Workload(sizes=(8, 8), marginals=((0, 1),))

    def size(table: FloatArray) -> float:
        rest = table - table.mean(0) - table.mean(1)[:, None] + table.mean()
        return float(np.sum(rest**2))

    noise = [size(rng.normal(0, 1, (8, 8))) for _ in range(2000)]
    assert np.std(noise) == pytest.approx(np.sqrt(2 * 49), rel=0.05)
    # A share V of all rows has the same value in both columns: Cramer's V, where all values are as frequent.
    n = 10_000.0
    assert size(n * (0.9 * np.full((8, 8), 1 / 64) + 0.1 * np.eye(8) / 8)) == pytest.approx(n**2 * 0.1**2 * 7 / 64)
    border = n**2 * 0.1**2 * 7 / 64 / (2 * np.sqrt(2 * 49))
    assert [_rising(workload, np.array([border * part]), n) for part in (0.99, 1.01)] == [(1, 1), (1, 0)]


def test_near_is_the_total_each_column_pairs_so_far_apart_and_those_listed() -> None:
    found = config(columns=4, section='synthesizer = { near = 1, marginals = [["c0", "c3"], ["c1", "c2"]] }')
    assert found.workload is not None
    assert found.workload.marginals == ((), (0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3), (0, 3))
    with pytest.raises(ConfigError, match="give either order or near"):
        config(section="synthesizer = { near = 1, order = 2 }")
    listed = config(
        columns=3, section='synthesizer = { marginals = [["c0"], ["c1"], ["c2"], ["c0", "c1"], ["c1", "c2"]] }'
    )
    assert config(columns=3, section="synthesizer = { near = 1 }").own_hash == listed.own_hash  # another way to say it


def test_a_proposal_is_printed_and_stands_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(config(), expect="400/day", rows=False)
    _print_rest(console(), found)
    assert "\n\n[synthesizer]\nnear = 4\n" in capsys.readouterr().out
    assert "<pre><code>[synthesizer]\nnear = 4\n" in plan_page(found)
    assert found.facts()["proposal"]["near"] == 4
    assert (
        "fall where related columns stand side by side, and rise where they do not"
        in found.facts()["proposal"]["words"]
    )


def test_fewer_pairs_tell_more_of_columns_that_are_related_to_their_neighbours() -> None:
    """Error of all pairs, by rows fitted to the tables of a proposal and to all of them, at the same budget."""
    whole, rng, events = config(), np.random.default_rng(0), 400 * 30
    codes = rng.integers(0, 4, (events, 24)).astype(np.int32)
    for c in range(1, 24):
        codes[:, c] = np.where(rng.random(events) < 0.6, codes[:, c - 1], codes[:, c])
    every = Workload.all_up_to(2, sizes=(4,) * 24)
    errors = []
    for one in (whole, config(section="synthesizer = { near = 3 }")):
        made = synthesizer_of(one)
        assert made.tables is not None
        workload, variance = made.tables.workload, made.expected_variance(29)
        noisy = workload.count(codes) + np.repeat(np.sqrt(variance), workload.lengths) * rng.normal(size=workload.cells)
        rows = fit(Measured(tick=29, workload=workload, values=noisy, variance=variance), seed=1)
        errors.append(np.abs(rows.counts(every) - every.count(codes)).sum())
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize(
    ("values", "measure", "told"), [(200, "refresh", True), (200, "auto", False), (9, "auto", False)]
)
def test_a_state_that_no_database_keeps_is_told(values: int, measure: str, told: bool) -> None:
    config = StreamConfig.from_toml(text(14, values, f'synthesizer = {{ measure = "{measure}" }}'))
    assert any("would stop at that tick" in note for note in plan(config, rows=False).notes) == told
