"""Yardsticks of the custodian's page."""

from __future__ import annotations

import numpy as np
import pytest

from synthstream.evaluate.custodian import yardsticks
from synthstream.publish.history import Cells
from synthstream.workload import Workload

TABLES = Workload(sizes=(2, 2), marginals=((), (0,), (1,), (0, 1)))


def test_by_hand() -> None:
    true = TABLES.count(np.array([[0, 0], [0, 1], [0, 1], [1, 1]], dtype=np.int32))
    rows = TABLES.count(np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=np.int32)).astype(np.float64)
    off = np.array([0, 0, 1.9, 2.1, 0, 0, 0, 0, np.nan])
    found = Cells(count=rows, measured=true + off, stderr=np.ones(9), since=np.where(np.arange(9) == 8, 3.0, 0.0))
    one, two = (yardsticks(TABLES, true, found, order=order) for order in (1, 2))
    assert (one.k_marginal, two.k_marginal) == (750, 750)  # a quarter of the rows in another cell
    assert (one.impossible, two.impossible) == (0, 0.25)
    assert one.coverage == pytest.approx(3 / 4)
    assert two.coverage == 1  # of the cells that count all events
