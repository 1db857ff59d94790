"""The exact law of a choice."""

from __future__ import annotations

import math
from itertools import chain, combinations

import numpy as np

from synthstream.workload import FloatArray


def law(scores: list[int], rate: float) -> FloatArray:
    """Permute-and-flip, by inclusion and exclusion (McKenna and Sheldon 2020, Proposition 3)."""
    p = np.exp(rate * (np.array(scores) - max(scores)))
    out = []
    for i in range(len(scores)):
        others = [p[j] for j in range(len(scores)) if j != i]
        sets = chain.from_iterable(combinations(others, k) for k in range(len(others) + 1))
        out.append(p[i] * math.fsum((-1) ** len(s) / (len(s) + 1) * math.prod(s) for s in sets))
    return np.array(out)
