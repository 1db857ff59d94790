"""Graphical models over coded columns: marginals, workloads and rows of a junction tree.

Marginal-based inference is due to McKenna, Sheldon and Miklau 2019 (Private-PGM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthstream.papers.fit.belief_propagation import Calibrated
from synthstream.papers.fit.junction import Clique, cells_of, junction
from synthstream.papers.fit.tables import TreeTables, draw
from synthstream.workload import CodeArray, FloatArray, Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class Graphical:
    """A distribution over all combinations of codes, proportional to the exponential of a sum of potentials.

    Args:
        total: number of rows that the model stands for; 0 makes all tables zero.
        cliques: columns of each potential, strictly increasing, none twice. Columns in none are uniform.
        potentials: one for each clique, in the shape of its columns' sizes.

    Example:
        >>> Graphical.uniform((2, 3), 12.0).table((1,)).tolist()
        [4.0, 4.0, 4.0]
    """

    sizes: tuple[int, ...]
    total: float
    cliques: tuple[Clique, ...]
    potentials: tuple[FloatArray, ...]

    @classmethod
    def uniform(cls, sizes: Sequence[int], total: float) -> Graphical:
        """All combinations of codes alike, ``total`` rows."""
        return cls(sizes=tuple(sizes), total=max(float(total), 0.0), cliques=(), potentials=())

    def scaled(self, total: float) -> Graphical:
        """The same distribution with another number of rows; below 0 counts as 0."""
        model = replace(self, total=max(float(total), 0.0))
        # What has been computed holds for any total.
        model.__dict__.update({key: self.__dict__[key] for key in ("_tables",) if key in self.__dict__})
        return model

    def table(self, columns: Sequence[int]) -> FloatArray:
        """Expected counts of any marginal, in the shape of its columns' sizes."""
        wanted = tuple(sorted(columns))
        table = self._tables.marginal(wanted, {}) * self.total
        return np.array(np.transpose(table, [wanted.index(c) for c in columns]), order="C")

    def answers(self, workload: Workload) -> FloatArray:
        """Expected counts over all cells of a workload, shape ``(workload.cells,)``.

        What marginals have in common is computed once: some milliseconds for all pairs of 14 columns.
        """
        memory: dict[Any, FloatArray] = {}
        parts = [self._tables.marginal(marginal, memory).reshape(-1) for marginal in workload.marginals]
        return np.concatenate([*parts, np.zeros(0)]) * self.total

    def rows(self, n: int, rng: np.random.Generator) -> CodeArray:
        """Integer rows: int32 codes, shape ``(n, columns)``; no rows if the total is 0.

        Rows are assigned table by table down the junction tree. Among the rows that agree on what a table shares with
        its parent, each combination of its other columns gets its expected number, rounded down or up: the remainder
        is drawn systematically (Madow 1949), so that the mean of each count is the expected one.
        """
        return draw(self._tables, n if self.total > 0 else 0, rng)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What ``from_arrays`` needs, for ``numpy.savez``: potentials and columns flat, with the lengths of parts."""
        return {
            "total": np.array(self.total),
            "columns": np.array([c for clique in self.cliques for c in clique], dtype=np.int64),
            "lengths": np.array([len(clique) for clique in self.cliques], dtype=np.int64),
            "potentials": np.concatenate([np.zeros(0), *(p.reshape(-1) for p in self.potentials)]),
        }

    @classmethod
    def from_arrays(cls, sizes: Sequence[int], arrays: Mapping[str, NDArray[Any]]) -> Graphical:
        """The model whose ``arrays()`` these are."""
        sizes = tuple(sizes)
        ends = np.cumsum(arrays["lengths"]).tolist()
        cliques = tuple(
            tuple(int(c) for c in arrays["columns"][end - length : end])
            for end, length in zip(ends, arrays["lengths"].tolist(), strict=True)
        )
        lengths = [cells_of(sizes, clique) for clique in cliques]
        flat = np.asarray(arrays["potentials"], dtype=np.float64)
        parts = np.split(flat, np.cumsum(lengths)[:-1]) if cliques else []
        potentials = tuple(
            part.reshape(tuple(sizes[c] for c in clique)) for part, clique in zip(parts, cliques, strict=True)
        )
        return cls(sizes=sizes, total=float(arrays["total"]), cliques=cliques, potentials=potentials)

    @cached_property
    def _tables(self) -> TreeTables:
        """Calibrated tables of the junction tree."""
        tree = junction(self.sizes, self.cliques)
        calibrated = Calibrated(tree, tree.attach(self.cliques))
        calibrated.evaluate(np.concatenate([np.zeros(0), *(p.reshape(-1) for p in self.potentials)]))
        return TreeTables(tree, calibrated.given, calibrated.joint)
