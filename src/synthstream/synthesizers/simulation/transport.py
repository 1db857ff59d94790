"""The Wasserstein distance W1 of two masses on a grid, about right and quick."""

from __future__ import annotations

from functools import cache
from itertools import product

import numba
import numpy as np

from synthstream.workload import FloatArray, IntArray

# Rounds of the iteration, how often its result is looked at, and the step of its prices beside that of its flows: in
# sides of the grid, by the size of the gap. Prices grow with the grid, flows with the gap.
_ROUNDS, _LOOK, _BALANCE = 800, 50, 4.0
# It ends when the answer is known to this part of itself, or else with a few times as much.
_EXACT = 0.02


def w1(mass_a: FloatArray, mass_b: FloatArray) -> float:
    """W1 of two masses on one grid over the unit cube, in the maximum norm, to about a tenth.

    Mass flows from cell to cell as a king moves, each move costs one side of a cell: the cheapest flow is the best
    transport. It is found by the primal-dual iteration of Chambolle and Pock (2011).

    An exact linear program takes several times as long (``w1_grid`` of :mod:`synthstream.evaluate.wasserstein`).

    Args:
        mass_a, mass_b: shape ``(side,) * dimension``, at least 0, each scaled to add up to 1.

    Returns:
        In widths of the cube; 1 if there is no mass on one side.
    """
    if not (mass_a.sum() > 0 and mass_b.sum() > 0):
        return 1.0
    side, dimension = mass_a.shape[0], mass_a.ndim
    gap = (mass_a / mass_a.sum() - mass_b / mass_b.sum()).ravel()
    size = float(np.abs(gap).sum())
    if size < 1e-12:
        return 0.0
    if dimension == 1:
        return float(np.abs(np.cumsum(gap)[:-1]).sum() / side)
    gap /= size
    tails, heads = moves(side, dimension)
    step = 0.99 / np.sqrt(2.0 * (3**dimension - 1))
    balance = _BALANCE * side / float(np.linalg.norm(gap))
    return float(_flow(gap, tails, heads, step / balance, step * balance) * size / side)


@numba.njit(cache=True, nogil=True)
def _flow(gap, tails, heads, flow_step, price_step):  # type: ignore[no-untyped-def]
    """Cost of the cheapest flow that leaves ``gap``, in moves."""
    prices, flow = np.zeros(gap.size), np.zeros(tails.size)
    asked = 0.0
    for done in range(1, _ROUNDS + 1):
        leaving = -gap
        cost = 0.0
        for m in range(tails.size):
            moved = flow[m] - flow_step * (prices[tails[m]] - prices[heads[m]])
            moved = max(moved - flow_step, 0.0) + min(moved + flow_step, 0.0)
            ahead = 2 * moved - flow[m]
            leaving[tails[m]] += ahead
            leaving[heads[m]] -= ahead
            flow[m] = moved
            cost += abs(moved)
        prices += price_step * leaving
        # What the flow costs comes from below, and what the prices ask for it from above.
        if done % _LOOK == 0:
            asked = -(prices * gap).sum()
            if abs(cost - asked) < _EXACT * asked:
                break
    return asked


@cache
def moves(side: int, dimension: int) -> tuple[IntArray, IntArray]:
    """All moves of a king, each once: from which cell to which."""
    cells = np.arange(side**dimension)
    places = np.stack(np.unravel_index(cells, (side,) * dimension))
    tails, heads = [], []
    for step in product((-1, 0, 1), repeat=dimension):
        if step > (0,) * dimension:
            there = places + np.array(step)[:, None]
            on_board = np.all((there >= 0) & (there < side), axis=0)
            tails.append(cells[on_board])
            heads.append(np.ravel_multi_index(tuple(there[:, on_board]), (side,) * dimension))
    return np.concatenate(tails), np.concatenate(heads)
