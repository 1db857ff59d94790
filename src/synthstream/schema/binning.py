"""Which bin a number lies in."""

from __future__ import annotations

import numba
import numpy as np

from synthstream.workload import CodeArray, FloatArray


def bins_of(values: FloatArray, edges: FloatArray, missing: int) -> CodeArray:
    """Bins of numbers, int32, shape ``(numbers,)``; those out of range, infinities too, lie in the nearest bin.

    Args:
        values: shape ``(numbers,)``.
        edges: increasing; bin i is [edges[i], edges[i + 1]). Fastest if they are about equally far apart.
        missing: the code of NaN.

    Example:
        >>> values = np.array([-1.0, 0.0, 0.5, 2.0, np.inf, np.nan])
        >>> bins_of(values, np.array([0.0, 0.5, 1.0]), 2).tolist()
        [0, 0, 1, 1, 1, 2]
        >>> bins_of(values, np.array([0.0, 0.1, 1.0]), 2).tolist()
        [0, 0, 1, 1, 1, 2]
    """
    widths = np.diff(edges)
    if widths.max() > 2 * widths.min():  # to step from a guess would take long
        places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(widths) - 1)
        return np.where(np.isnan(values), missing, places).astype(np.int32)
    return _bins(np.ascontiguousarray(values), edges, np.int32(missing))  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)
def _bins(values, edges, missing):  # type: ignore[no-untyped-def]
    last = edges.size - 2
    low, high = edges[0], edges[last + 1]
    per_width = (last + 1) / (high - low)
    out = np.empty(values.size, dtype=np.int32)
    for i in range(values.size):
        value = values[i]
        if value != value:
            out[i] = missing
        elif value < low:
            out[i] = 0
        elif value >= edges[last]:
            out[i] = last
        else:
            # Within range, so that the product is: a guess, which comparisons then set right.
            place = min(np.int64((value - low) * per_width), last)
            while value < edges[place]:
                place -= 1
            while value >= edges[place + 1]:
                place += 1
            out[i] = place
    return out
