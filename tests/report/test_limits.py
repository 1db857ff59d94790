"""What a page says of the limits of a promise."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from synthstream.config.config import StreamConfig
from synthstream.forecast.planning import plan
from synthstream.report.public import limits_of
from synthstream.synthesizers.assembly import claim_of, synthesizer_of

TOML = """
name = "visits"
state = "visits-state"
privacy = {{ epsilon = {epsilon}, delta = {delta}, unit = {unit} }}
clock = {{ start = 2026-01-01, every = "1d", horizon = 100 }}
columns = [{{ name = "ward", type = "category", values = ["A", "B", "C"] }}]
"""
PERSON = '{ person = "id", max_events = 1, per = "10d" }'


def said_of(config: StreamConfig, heading: str) -> str:
    """What stands under a heading."""
    found = re.search(f"<dt>{heading}</dt><dd>(.*)</dd>", limits_of(config))
    assert found
    return html.unescape(found[1])


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("epsilon", [0.3, 4.0])
@pytest.mark.parametrize(
    ("unit", "heading"),
    [('"event"', "One event, not one person"), (PERSON, "A limit for a period protects a period")],
)
def test_what_ten_rows_or_periods_cost_is_what_the_claim_says(
    unit: str, heading: str, epsilon: float, delta: float
) -> None:
    config = StreamConfig.from_toml(TOML.format(epsilon=epsilon, delta=delta, unit=unit))
    claim = claim_of(config, synthesizer_of(config).mechanism)
    ten = replace(claim, rho=claim.rho * 100, pure=None if claim.pure is None else claim.pure * 10)
    said = re.findall(r"ten (?:rows|periods) by epsilon = ([\d.]+)", said_of(config, heading))
    (number,) = (float(one.rstrip(".")) for one in said)
    assert ten.epsilon(delta) - 1e-9 <= number <= ten.epsilon(delta) + 0.11  # never less than what the claim says


@pytest.mark.parametrize(
    ("per", "told"),
    [
        ("10d", "less: with ten periods by epsilon = 10, not 1."),
        ("33d", "less: with 4 periods by epsilon = 4, not 1."),
        ("50d", "less: with 2 periods by epsilon = 2, not 1."),
        ("100d", "This stream ends within the first period."),
    ],
)
def test_no_more_periods_are_told_than_there_are(per: str, told: str) -> None:
    unit = PERSON.replace("10d", per)
    config = StreamConfig.from_toml(TOML.format(epsilon=1, delta=0, unit=unit))
    assert said_of(config, "A limit for a period protects a period").endswith(told)
    assert any(note.endswith(told) for note in plan(config, rows=False).notes)
