"""Exact counts and rows cannot be handed to what plans noise, fits or publishes, and are opened in few places."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from synthstream.counts import Counts
from synthstream.fit.population import Population, fit
from synthstream.ingest.counting import CountsByTick, PrivateRows
from synthstream.kernel.gate import SystemGate
from synthstream.measured import Measured
from synthstream.partition import WHOLE
from synthstream.strategies.levels import Schedule, Shape
from synthstream.workload import Workload
from tests.support.house import SOURCE, nodes_of

WORKLOAD = Workload.all_up_to(1, sizes=(4,))
COUNTS = Counts.of(np.array([10, 4, 3, 2, 1]))
BY_TICK = CountsByTick(stream="a", cells=5, ticks={0: COUNTS})
ROWS = PrivateRows(np.zeros((3, 1), dtype=np.int32), np.zeros(3, dtype=np.int64))
NOISY: dict[str, Any] = {"tick": 0, "workload": WORKLOAD, "variance": np.ones(2)}


def measured(values: Any) -> Any:
    return fit(Measured(values=values, **NOISY), start=None, seed=0)


def planned(masses: Any) -> Any:
    return Schedule(dimension=1).within(Shape(masses, 0.0), 1e4, 2, 1.0)


USES: list[Callable[[Any], Any]] = [
    np.asarray,
    np.sum,
    np.sqrt,
    list,
    len,
    float,
    lambda private: operator.mul(private, 2),
    lambda private: np.ones(5) + private,
    measured,
    planned,
    lambda private: fit(
        Measured(values=np.ones(5), **NOISY), start=Population(workload=WORKLOAD, codes=private), seed=0
    ),
    lambda private: SystemGate().laplace(private, scale=1.0),
]


@pytest.mark.parametrize("private", [COUNTS, BY_TICK, ROWS], ids=["counts", "by tick", "rows"])
@pytest.mark.parametrize("use", USES, ids=range(len(USES)))
def test_nothing_takes_what_is_exact(use: Callable[[Any], Any], private: Any) -> None:
    with pytest.raises((TypeError, AttributeError)) as caught:
        use(private)
    assert "10" not in str(caught.value)


def test_the_same_uses_take_what_is_open() -> None:
    assert measured(COUNTS.dense(5).astype(np.float64)).codes.shape[1] == 1
    assert planned(np.array([1.0, 3.0])).units.sum() <= WHOLE


def test_counts_are_opened_to_be_stored_and_measured_alone() -> None:
    opened = set()
    for path in SOURCE.rglob("*.py"):
        for function in nodes_of(path):
            if isinstance(function, ast.FunctionDef):
                called = {id(n.func) for n in ast.walk(function) if isinstance(n, ast.Call)}
                for node in ast.walk(function):
                    if isinstance(node, ast.Attribute) and (
                        node.attr == "dense" or (node.attr == "numbers" and id(node) not in called)
                    ):
                        opened.add((str(path.relative_to(SOURCE)), function.name))
    # A synthesizer opens them in the call of its mechanism; a simulation counts rows that it made up.
    assert {
        (name, where) for name, where in opened if not name.startswith(("counts", "kernel", "state", "ingest"))
    } == {
        ("synthesizers/tables.py", "step"),
        ("synthesizers/epochs.py", "step"),
        ("synthesizers/papers.py", "step"),
        ("synthesizers/succession.py", "carried_counts"),
        ("synthesizers/simulation/tables.py", "in_epochs"),
    }
