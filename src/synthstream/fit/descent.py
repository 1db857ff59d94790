"""The least-squares fit of a tree's marginals: implicit mirror descent, each step solved by conjugate gradients.

Mirror descent moves log-potentials against the gradient at the current marginals, and must take small steps. Moved
against the gradient at the *new* marginals, any step is stable: it minimises loss plus Kullback-Leibler divergence from
the current model over the step's length (the proximal point method of Rockafellar 1976, with Bregman distances as in
Censor and Zenios 1992). One Newton step on the dual of that, exact in how marginals move with potentials, is a linear
system in their covariance; lengths grow as long as Newton's model holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from synthstream.fit.junction import Attached, Junction
from synthstream.fit.passes import attach, condition, derivative, marginals, project
from synthstream.release import FloatArray

# Conjugate gradients stop at this share of the residual, or after so many steps.
_FORCING, _INNER = 0.1, 60
# Steps grow and shrink by these factors; they grow where Newton's model left less than this share of the residual.
_GROW, _SHRINK, _HOLDS = 6.0, 0.3, 0.3
_HALVINGS = 12


class Result(NamedTuple):
    """Log-potentials of the measured tables, flat; loss; number of steps; passes over the tree."""

    potentials: FloatArray
    loss: float
    steps: int
    passes: int


class Calibrated:
    """Buffers of one tree, and the marginals of its current potentials.

    Args:
        tree: the junction tree.
        attached: where the measured tables lie in it.
        base: log-potentials that stay as they are, over all cells of the tree; left out: none.
    """

    def __init__(self, tree: Junction, attached: Attached, base: FloatArray | None = None) -> None:
        self.plan, self.attached, self.base = tree.plan, attached, base
        self.given = np.zeros(int(tree.plan.cells[-1]))
        self.scratch = np.zeros_like(self.given)
        self.messages = np.zeros(int(tree.plan.seps[-1]))
        self.masses = np.zeros_like(self.messages)
        self.passes = 0

    def evaluate(self, potentials: FloatArray) -> tuple[float, FloatArray]:
        """Log of the partition function, and the probabilities of all measured tables, flat."""
        self.given[:] = 0.0 if self.base is None else self.base
        attach(self.plan, self.attached, potentials, self.given)
        log = float(condition(self.plan, self.given, self.messages))
        marginals(self.plan, self.given, self.masses, self.scratch)
        out = np.empty_like(potentials)
        project(self.plan, self.attached, self.scratch, out)
        self.passes += 1
        return log, out

    def covariance(self, change: FloatArray) -> FloatArray:
        """How the probabilities of the measured tables change with their log-potentials, at first order."""
        self.scratch[:] = 0.0
        attach(self.plan, self.attached, change, self.scratch)
        derivative(self.plan, self.given, self.masses, self.scratch)
        out = np.empty_like(change)
        project(self.plan, self.attached, self.scratch, out)
        self.passes += 1
        return out


def descend(
    tree, potentials, values, weights, *, iterations, tolerance, trace=None,
):
    roots = np.sqrt(weights)
    log, now = tree.evaluate(potentials)
    residual = roots * (now - values)          # of the primal: roots*(p-values)
    loss = 0.5 * float(residual @ residual)    # at centre
    length = 1.0 / max(float(np.abs(roots * residual).max()), 1e-300)
    y = np.zeros_like(residual)
    steps = 0; small = 0; newton = 0
    error = residual.copy()
    best = loss
    while steps < iterations and loss > 0:
        steps += 1
        step, inner = _solve(tree, roots, error, length, now)
        share, now = _search(tree, potentials, roots * y, roots*step, now, values, y, step, length)
        newton += 1
        y = y + share * step
        residual = roots * (now - values)
        fresh = 0.5 * float(residual @ residual)
        error = residual + y / length
        gap = 0.5 * float(error @ error)
        if trace is not None:
            trace.append((steps, tree.passes, loss, fresh, length, share, inner, gap/loss))
        if gap <= ACC * (loss - fresh) or gap <= 1e-3*tolerance * loss:
            potentials = potentials + roots * y
            gain = loss - fresh
            loss = fresh
            y = np.zeros_like(y); error = residual.copy()
            if gain <= tolerance * loss and newton==1 and length > 1e2/np.abs(roots*residual).max(): break
            length *= {1: G1, 2: G2}.get(newton, 1.0)
            newton = 0
        elif newton >= MAXN:
            # Newton's model does not hold so far out.
            y = y*SH
            length *= SH
            newton = 0
            _, now = tree.evaluate(potentials + roots*y)
            residual = roots * (now - values)
            error = residual + y / length
    return Result(potentials, loss, steps, tree.passes)
ACC=0.5; G1=6.; G2=2.; MAXN=4; SH=0.25

def _solve(tree, roots, residual, length, now):
    y = np.zeros_like(residual)
    left = -residual
    scale = 1.0 / (1.0 / length + roots * roots * now * (1 - now))
    direction = scale * left
    square = float(left @ direction)
    stop = _FORCING**2 * square
    n = 0
    for n in range(1, _INNER + 1):
        image = roots * tree.covariance(roots * direction) + direction / length
        step = square / float(direction @ image)
        y += step * direction
        left -= step * image
        solved = scale * left
        new = float(left @ solved)
        if new <= stop:
            break
        direction = solved + (new / square) * direction
        square = new
    return y, n


def _search(tree, potentials, at, change, now, values, y, step, length):
    slope = float(change @ (now - values)) + float(step @ y)/length
    share = 1.0
    for _ in range(_HALVINGS):
        _, new = tree.evaluate(potentials + at + share*change)
        tilt = float(change @ (new - values)) + float(step@(y+share*step))/length
        if tilt <= 0.5 * abs(slope):
            break
        share *= min(max(slope / (slope - tilt), 0.1), 0.7)
    return share, new
