"""Plans of points, without a mechanism: what decides them, and that the kernel takes what they say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from synthstream.strategies import levels as planning
from synthstream.strategies.levels import Schedule, evenness, levels_of

# The order of a sum, which decides its last bits alone.
UNBOUND = ["_BLOCK"]
CONSTANTS = [name for name in vars(planning) if re.fullmatch("_[A-Z_]+", name) and name not in UNBOUND]


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_state_is_bound_to_every_constant_of_a_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another one a stream that runs would go on with other plans, and nothing would refuse that."""
    schedule = Schedule(dimension=2, joint=2, first=2)
    before = schedule.facts()
    monkeypatch.setattr(planning, name, getattr(planning, name) * 2)
    assert schedule.facts() != before


def test_last_bits_of_masses_do_not_decide_how_evenly_nodes_are_halved() -> None:
    """They depend on the processor."""
    rng = np.random.default_rng(0)
    masses = rng.random(64)
    near = masses * (1 + 1e-12 * rng.random(64))
    assert evenness(levels_of(near, 100, 7)).tolist() == evenness(levels_of(masses, 100, 7)).tolist()
