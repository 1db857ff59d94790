"""Synthetic data in rounds, for the methods of paper 2: fitted anew after every measured table of a tick."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from synthstream.kernel.counters.base import inner
from synthstream.kinds import FitKind
from synthstream.papers.fit.graphical import Graphical
from synthstream.papers.fit.junction import model_megabytes
from synthstream.papers.fit.mirror_descent import towards
from synthstream.papers.fit.weights import Weights, fit_weights
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

RoundModel = Graphical | Weights

# Size of a graphical model's tables, in megabytes: beyond it old potentials are dropped, and candidates that would need
# more are not offered. Larger ones remember more and take longer. The limit is at least 1.5 times the largest table.
_MODEL_MB = 0.1

# Steps of mirror descent in a round: most of its gain comes early, and the next round goes on.
_STEPS = 8

# Passes of multiplicative weights over the measurements of a tick, and the length of steps (papers/fit/weights.py).
_PASSES, _RATE = 10, 4.0


@dataclass(frozen=True)
class Mixture:
    """Synthetic data of one tick: the mean of the models of all its rounds.

    Args:
        models: at least one; all over the same columns and with the same total.
    """

    models: tuple[RoundModel, ...]

    @property
    def last(self) -> RoundModel:
        """Where the next tick's fit begins: the last round's model; for weights the mean of all, again weights."""
        first = self.models[0]
        if isinstance(first, Graphical):
            return self.models[-1]
        shares = [model.shares for model in self.models if isinstance(model, Weights)]
        return Weights(sizes=first.sizes, total=first.total, shares=np.mean(shares, axis=0))

    def rows(self, n: int, rng: np.random.Generator) -> CodeArray:
        """``n`` rows, int32, shape ``(n, columns)``: the same number from each model, give or take one."""
        parts = [n // len(self.models) + (i < n % len(self.models)) for i in range(len(self.models))]
        return np.concatenate([model.rows(part, rng) for model, part in zip(self.models, parts, strict=True)])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What :meth:`from_arrays` needs, for a store."""
        kind: FitKind = "pgm" if isinstance(self.models[0], Graphical) else "mw"
        named = {f"{i}.{name}": array for i, m in enumerate(self.models) for name, array in m.arrays().items()}
        return named | {"models": np.array(len(self.models)), "kind": np.array(kind)}

    @classmethod
    def from_arrays(cls, sizes: tuple[int, ...], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """A mixture that was stored."""
        build = Graphical.from_arrays if str(arrays["kind"]) == "pgm" else Weights.from_arrays
        known = dict(arrays)
        return cls(tuple(build(sizes, inner(known, f"{i}.")) for i in range(int(known["models"]))))


class Rounds:
    """The rounds of one tick: see :class:`synthstream.papers.rounds.Fitting`.

    Args:
        kind: ``pgm``, a graphical model (McKenna, Sheldon, Miklau 2019); ``mw``, multiplicative weights over every
            combination of codes (Hardt, Ligett, McSherry 2012).
        start: synthetic data to begin with; left out: uniform.

    Raises:
        ValueError: ``mw``, and too many combinations of codes.
    """

    def __init__(self, workload: Workload, kind: FitKind, start: Mixture | None = None) -> None:
        self._workload, self._kind = workload, kind
        uniform = Graphical.uniform if kind == "pgm" else Weights.uniform
        self._model: RoundModel = uniform(workload.sizes, 0.0) if start is None else start.last
        self._models: list[RoundModel] = []
        # Tables, the cell of each that was measured (``None``: all), and what was measured.
        self._added: list[tuple[int, int | None, FloatArray]] = []
        self._cap = max(_MODEL_MB, 1.5 * 8e-6 * int(workload.lengths.max()))

    def begin(self, total: float) -> None:
        self._total = max(total, 0.0)
        self._model = self._model.scaled(self._total)

    def allows(self, tables: IntArray) -> NDArray[np.bool_]:
        if self._kind == "mw":
            return np.ones(len(tables), dtype=np.bool_)
        now, sizes = self._cliques(), self._workload.sizes
        megabytes = [model_megabytes(sizes, (*now, self._workload.marginals[q])) for q in tables]
        return np.array(megabytes, dtype=np.float64) <= self._cap

    def add(self, table: int, first: int, values: FloatArray) -> FloatArray:
        """See :class:`synthstream.papers.rounds.Fitting`. A fit that fails leaves the model as it was."""
        self._added.append((table, None if len(values) == self._workload.lengths[table] else first, values))
        answers = None
        # What was drawn stays drawn, whether a fit succeeds or not.
        with suppress(ArithmeticError, MemoryError, ValueError, np.linalg.LinAlgError):
            model = self._fitted()
            found = model.answers(self._workload)
            if np.all(np.isfinite(found)):
                self._model, answers = model, found
        self._models.append(self._model)
        return self._model.answers(self._workload) if answers is None else answers

    def _cliques(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self._workload.marginals[q] for q, _, _ in self._added)

    def _fitted(self) -> RoundModel:
        if isinstance(self._model, Weights):
            return fit_weights(
                self._workload.sizes,
                self._cliques(),
                [values for _, _, values in self._added],
                self._total,
                start=self._model,
                iterations=_PASSES,
                rate=_RATE,
                cells=[cell for _, cell, _ in self._added],
            )
        tables: dict[int, FloatArray] = {}
        for q, cell, part in self._added:
            whole = tables.setdefault(q, np.full(self._workload.lengths[q], np.nan))
            whole[slice(None) if cell is None else cell] = part if cell is None else part[0]
        cliques = [self._workload.marginals[q] for q in tables]
        values = [table.reshape(self._workload.shapes[q]) for q, table in tables.items()]
        return towards(self._model, cliques, values, self._total, steps=_STEPS, cap_mb=self._cap)

    def result(self) -> Mixture:
        """The mean of all rounds; without rounds, what the tick began with."""
        return Mixture(tuple(self._models) or (self._model,))
