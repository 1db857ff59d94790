"""The general least-squares fit of a tree's marginals: implicit mirror descent. Slower than papers/fit/exact.py.

Mirror descent moves log-potentials against the gradient at the current marginals, and must take small steps. Moved
against the gradient at the *new* marginals, any step is stable: it minimises loss plus Kullback-Leibler divergence from
the current model over the step's length (the proximal point method of Rockafellar 1976, with Bregman distances as in
Censor and Zenios 1992). Newton steps on the dual of that solve linear systems in the covariance of the cells, by
conjugate gradients; lengths grow as long as Newton's model holds.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from synthstream.papers.fit.belief_propagation import attach, condition, derivative, marginals, project
from synthstream.papers.fit.junction import Hosted, Junction
from synthstream.workload import FloatArray

# Conjugate gradients stop at the share _FORCING of the residual, or after _INNER steps.
_FORCING, _INNER = 0.1, 60
# Lengths grow by _GROW or _GROW_LESS if one or two Newton steps were enough, and shrink if _NEWTON steps were not.
_GROW, _GROW_LESS, _SHRINK, _NEWTON = 6.0, 2.0, 0.25, 4
_HALVINGS = 12
# Sweeps of proportional fitting before the first Newton step.
_FIRST = 2


class Calibrated:
    """Buffers of one tree, and the marginals of its current potentials.

    Args:
        attached: where the measured tables lie in it.
        base: log-potentials that stay as they are, over all cells of the tree; left out: none.
    """

    def __init__(self, tree: Junction, attached: Hosted, base: FloatArray | None = None) -> None:
        self.layout, self.attached, self.base = tree.layout, attached, base
        self.given = np.zeros(int(tree.layout.cells[-1]))
        self.scratch = np.zeros_like(self.given)
        self.messages = np.zeros(int(tree.layout.seps[-1]))
        self.masses = np.zeros_like(self.messages)

    def spread(self, potentials: FloatArray) -> None:
        """Fill ``given`` with the sum of all log-potentials."""
        self.given[:] = 0.0 if self.base is None else self.base
        attach(self.layout, self.attached, potentials, self.given)

    def evaluate(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Log of the partition function, and the probabilities of all measured tables, flat."""
        self.spread(potentials)
        log = float(condition(self.layout, self.given, self.messages))
        marginals(self.layout, self.given, self.masses, self.scratch)
        out = np.empty_like(potentials)
        project(self.layout, self.attached, self.scratch, out)
        return log, out

    def covariance(self, change: FloatArray) -> FloatArray:
        """How the probabilities of the measured tables change with their log-potentials, at first order."""
        self.scratch[:] = 0.0
        attach(self.layout, self.attached, change, self.scratch)
        derivative(self.layout, self.given, self.masses, self.scratch)
        out = np.empty_like(change)
        project(self.layout, self.attached, self.scratch, out)
        return out


def descend(
    tree: Calibrated,
    potentials: FloatArray,
    values: FloatArray,
    weights: FloatArray,
    *,
    iterations: int,
    tolerance: float,
) -> FloatArray:
    """Log-potentials with the least ``sum(weights * (p - values)**2) / 2`` of the measured tables' probabilities ``p``.

    Stops after ``iterations`` Newton steps, or where two lengths in a row gained less than ``tolerance`` of the loss.
    All arrays are flat, over the cells of the measured tables; ``potentials`` is where to start.
    """
    roots = np.sqrt(weights)
    _, now = tree.evaluate(potentials)
    residual = roots * (now - values)
    loss = 0.5 * float(residual @ residual)
    length = 1.0 / max(float(np.abs(roots * residual).max()), 1e-300)
    # Displacement from where the length began, over the roots of the weights; what is left of the optimality condition.
    moved, error = np.zeros_like(residual), residual
    newton = idle = 0
    for _ in range(iterations):
        if loss <= 1e-26 or idle == 2:
            break
        step = _solve(tree, roots, error, length)
        share, now = _search(
            tree, potentials + roots * moved, roots * step, (now - values, moved / length), step, length
        )
        newton += 1
        moved = moved + share * step
        residual = roots * (now - values)
        fresh = 0.5 * float(residual @ residual)
        error = residual + moved / length
        gap = 0.5 * float(error @ error)  # bounds what is left of this length, by duality
        if gap <= 0.5 * (loss - fresh) or gap <= 1e-3 * tolerance * loss:
            potentials = potentials + roots * moved
            idle = idle + 1 if loss - fresh <= tolerance * loss else 0
            length *= {1: _GROW, 2: _GROW_LESS}.get(newton, 1.0)
            moved, error, loss, newton = np.zeros_like(residual), residual, fresh, 0
        elif newton == _NEWTON:
            length, moved, newton = length * _SHRINK, moved * _SHRINK, 0
            _, now = tree.evaluate(potentials + roots * moved)
            error = roots * (now - values) + moved / length
    return potentials


def _solve(tree: Calibrated, roots: FloatArray, residual: FloatArray, length: float) -> FloatArray:
    """Conjugate gradients on ``(1 / length + R C R) y = -residual``: R the roots of the weights, C the covariance."""
    apply = partial(_moved, tree, roots, length)
    system = LinearOperator((residual.size, residual.size), matvec=apply, dtype=np.float64)
    return np.asarray(cg(system, -residual, rtol=_FORCING, maxiter=_INNER)[0])


def _moved(tree: Calibrated, roots: FloatArray, length: float, direction: FloatArray) -> FloatArray:
    return np.asarray(roots * tree.covariance(roots * direction) + direction / length)


def _search(
    tree: Calibrated,
    start: FloatArray,
    change: FloatArray,
    error: tuple[FloatArray, FloatArray],
    step: FloatArray,
    length: float,
) -> tuple[float, FloatArray]:
    """How far to go along a Newton step, and the probabilities there.

    The dual is convex: where it still falls, or rises less steeply than it fell at first, is not too far. Slopes say so
    where values differ by less than floating point shows.
    """
    _, before = tree.evaluate(start)
    slope = float(change @ error[0]) + float(step @ error[1])
    curve, share, new = float(step @ step) / length, 1.0, before
    for _ in range(_HALVINGS):
        _, new = tree.evaluate(start + share * change)
        tilt = slope + float(change @ (new - before)) + share * curve
        if tilt <= 0.5 * abs(slope):
            break
        share *= min(max(slope / (slope - tilt), 0.1), 0.7)
    return share, new


def match(
    tree: Calibrated, potentials: FloatArray, targets: FloatArray, *, sweeps: int, tolerance: float
) -> FloatArray:
    """Log-potentials with given marginals, by iterative proportional fitting (Deming and Stephan 1940).

    Of all models with these marginals this finds the nearest to the first one in Kullback-Leibler divergence.

    Args:
        potentials: of the first model, flat, over the cells of the measured tables.
        targets: positive probabilities, consistent.
        sweeps: over all tables, at most.
        tolerance: largest difference of a probability at which to stop.
    """
    potentials, logs = potentials.copy(), np.log(targets)
    for sweep in range(sweeps):
        _, now = tree.evaluate(potentials)
        if float(np.abs(now - targets).max()) <= tolerance:
            break
        if sweep >= _FIRST:
            potentials = _newton(tree, potentials, now, targets)
        _proportional(tree, potentials, logs)
    return potentials


def _proportional(tree: Calibrated, potentials: FloatArray, logs: FloatArray) -> None:
    """One sweep of iterative proportional fitting, in place."""
    cells = tree.attached.cells
    for q in range(len(cells) - 1):
        part = slice(int(cells[q]), int(cells[q + 1]))
        _, now = tree.evaluate(potentials)
        potentials[part] += logs[part] - np.log(np.maximum(now[part], np.finfo(np.float64).tiny))


def _newton(tree: Calibrated, potentials: FloatArray, now: FloatArray, targets: FloatArray) -> FloatArray:
    """A Newton step on the dual of proportional fitting, which is the log-likelihood of the targets."""
    left = targets - now
    scale = 1 / np.maximum(now, targets)
    solved = scale * left
    step, direction, square = np.zeros_like(left), solved, float(left @ solved)
    stop = _FORCING**2 * square
    for _ in range(_INNER):
        image = tree.covariance(direction)
        curve = float(direction @ image)
        if square <= stop or curve <= 0:
            break
        step = step + square / curve * direction
        left = left - square / curve * image
        solved = scale * left
        new = float(left @ solved)
        direction, square = solved + (new / square) * direction, new
    # What stays after a step that is too long is put right by proportional fitting.
    slope, share = float(step @ (targets - now)), 1.0
    for _ in range(_HALVINGS):
        _, new_now = tree.evaluate(potentials + share * step)
        if float(step @ (targets - new_now)) >= -0.5 * slope:
            return np.asarray(potentials + share * step)
        share *= 0.5
    return potentials
