"""The fit's own random numbers, for compiled loops: public, and no version of NumPy changes them."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from synthstream.workload import FloatArray, IntArray

# A margin of so many codes is gone through from end to end.
_FEW = 32


def cumulative(counts: FloatArray) -> FloatArray:
    """Shares of codes or combinations added up, ending at 1, to draw from; of no rows all alike."""
    total = counts.sum()
    found = np.cumsum(counts / total if total > 0 else np.full(counts.size, 1 / counts.size))
    found[-1] = 1.0
    return np.asarray(found)


def steps_of(margins: Sequence[FloatArray]) -> tuple[FloatArray, IntArray]:
    """For :func:`draw`: :func:`cumulative` of all columns, one after the other, and where each column's begin."""
    places = np.cumsum([0, *(margin.size for margin in margins)])
    return np.concatenate([cumulative(margin) for margin in margins]), places


@numba.njit(cache=True, inline="always")
def step(state):  # type: ignore[no-untyped-def]
    """One step of xorshift64*: a public stream of 64-bit numbers."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state, state * np.uint64(2685821657736338717)


@numba.njit(cache=True, inline="always")
def below(bits, limit):  # type: ignore[no-untyped-def]
    """A number in ``range(limit)`` from the upper 32 bits."""
    return np.int64((bits >> np.uint64(32)) * np.uint64(limit) >> np.uint64(32))


@numba.njit(cache=True, inline="always")
def share(bits):  # type: ignore[no-untyped-def]
    """A number from 0 up to 1, 1 left out."""
    return np.float64(bits >> np.uint64(11)) / 9007199254740992.0


@numba.njit(cache=True, inline="always")
def draw(bits, cumulative, places, column):  # type: ignore[no-untyped-def]
    """A code drawn from the column's margin."""
    first, last, drawn = places[column], places[column + 1], share(bits)
    if last - first > _FEW:
        return np.searchsorted(cumulative[first:last], drawn, side="right")
    code = 0
    for at in range(first, last):  # no branch depends on the draw
        code += cumulative[at] <= drawn
    return code
