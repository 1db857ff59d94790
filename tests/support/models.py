"""What rows of a fit hold."""

from __future__ import annotations

from collections.abc import Sequence

from synthstream.fit.population import Population
from synthstream.workload import IntArray, Workload


def table_of(model: Population, columns: Sequence[int]) -> IntArray:
    """Counts of the rows over some columns, in the shape of their sizes."""
    single = Workload(sizes=model.workload.sizes, marginals=(tuple(columns),))
    return model.counts(single).reshape(single.shapes[0])
