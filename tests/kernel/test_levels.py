"""Plans of points, without a mechanism: what decides them, and that the kernel takes what they say."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.kernel.points import checked_nodes
from synthstream.partition import LEAST, WHOLE
from synthstream.strategies import levels as planning
from synthstream.strategies.levels import EVEN, Schedule, evenness, levels_of

CONSTANTS = [name for name in vars(planning) if re.fullmatch("_[A-Z_]+", name)]


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


@pytest.mark.parametrize(
    ("joint", "below", "first", "further"), [(1, 1, 2, 4), (2, 1, 2, 16), (2, 2, 4, 32), (3, 2, 4, 32)]
)
def test_masses_that_are_worth_a_reading_and_a_further_one(joint: int, below: int, first: int, further: int) -> None:
    """In units of noise. A first reading of two levels tells of the level between, too, and is worth half of the mass.

    All of the budget goes into what the first reading is about, until a further one is worth it.
    """
    how, masses = Schedule(dimension=2, joint=joint), np.outer([first, further], [0.999, 1.001]).ravel()
    units = how.nodes(masses, np.full(4, WHOLE), EVEN, 8, 1.0, joint, below).tolist()
    assert units[:3] == [-1, WHOLE, WHOLE]
    assert LEAST <= units[3] < WHOLE


@st.composite
def levels(draw: st.DrawFn) -> tuple[Schedule, tuple[Any, ...]]:
    """A schedule, and what it is asked of one level: masses, what is left of the budget, and facts of the epoch."""
    below, scale = draw(st.integers(1, 3)), draw(st.floats(1e-6, 1e6))
    joint = below + draw(st.integers(0, 2))
    noises = draw(st.lists(st.just(-np.inf) | st.floats(-2, 30), max_size=8))  # binary logarithms
    left = draw(st.lists(st.sampled_from([0, 1, LEAST, WHOLE]) | st.integers(0, WHOLE), min_size=8, max_size=8))
    even = draw(st.lists(st.floats(0, 1), max_size=20))
    of_nodes = scale * 2.0 ** np.array(noises), np.array(left[: len(noises)], dtype=np.int64)
    schedule = Schedule(dimension=draw(st.integers(1, 6)), joint=joint)
    return schedule, (*of_nodes, np.array(even), draw(st.integers(1, 30)), scale, joint, below)


@settings(max_examples=200)
@given(levels())
def test_the_kernel_takes_whatever_a_level_is_planned_to_spend(asked: tuple[Schedule, tuple[Any, ...]]) -> None:
    schedule, facts = asked
    units = schedule.nodes(*facts)
    assert checked_nodes(units, facts[1]).tolist() == units.tolist()
