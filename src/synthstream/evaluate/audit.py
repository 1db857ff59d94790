"""NOT A PROOF. A measured lower bound on the privacy loss of a configuration, on simulated neighbours with real noise.

Private data are never read. Two streams are simulated: one without events (or with a few fixed ones), and one with one
event more, at a tick at which the claim is tight. How well what is released tells them apart is a lower bound on
epsilon, or on the mu of Gaussian DP (rho = mu^2 / 2). If it is above the claim, the claim is refuted.

Where one event is hidden too well for so few runs, k equal events are added: by group privacy their loss is at most k
times that of one, and the bound is divided by k. Bounds on readings with noise of their own add up (their squares, for
mu): that the noise is drawn afresh is checked elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.evaluate.lower_bounds import epsilon_of, epsilon_seen, lattice, mu_seen
from synthstream.kernel.counters import Counter, Kary, Restarted, Simple
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.papers.counters.nodes import NodeCounter, Span
from synthstream.synthesizers.assembly import group_factor, synthesizer_of
from synthstream.synthesizers.contract import POWER, CounterTarget, DrawTarget, Measure
from synthstream.workload import FloatArray, IntArray

Meter = Callable[[float], None]
# Cells of one vector of simulated counters.
_CELLS = 200_000


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was seen of one claim.

    Args:
        what: what was audited, in words.
        measure: ``epsilon`` of pure DP, or ``mu`` of Gaussian DP with rho = mu^2 / 2.
        claimed: the claim for one event.
        seen: lower bound for one event. Of noise in whole numbers a threshold sees a little more than mu, which a zCDP
            claim covers: that is taken off (:func:`synthstream.evaluate.lower_bounds.lattice`).
        events: how many events were added, at least and at most.
        runs: on each side.
    """

    what: str
    measure: Measure
    claimed: float
    seen: float
    events: tuple[int, int]
    runs: int

    @property
    def refuted(self) -> bool:
        """Whether more was seen than is claimed."""
        return self.seen > self.claimed * (1 + 1e-9)

    @property
    def words(self) -> str:
        """The verdict in one sentence."""
        name = "" if self.measure == "epsilon" else " mu"
        if self.refuted:
            return f"REFUTED: at least{name} {self.seen:.3g}, where {self.claimed:.3g} is claimed"
        return (
            f"at least{name} {self.seen:.3g} of the claimed {self.claimed:.3g} can be seen; never more than claimed: "
            "consistent with the claim"
        )


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All findings on a configuration. They hold together with the given confidence.

    Args:
        counters: single counters, for which a bound is tight.
        parts: what the claim of the whole stream is made of, as far as it was audited.
        whole: of the whole stream.
        delta: of the configuration.
        caveat: what was not looked at, in words; empty if all was.
    """

    counters: tuple[Finding, ...]
    parts: tuple[Finding, ...]
    whole: Finding
    delta: float
    confidence: float
    caveat: str

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, the whole last."""
        return (*self.counters, *self.parts, self.whole)

    @property
    def refuted(self) -> bool:
        """Whether any claim is."""
        return any(finding.refuted for finding in self.findings)

    @property
    def epsilon(self) -> float:
        """Lower bound on the epsilon of the whole stream at its delta."""
        if self.whole.measure == "epsilon":
            return self.whole.seen
        return epsilon_of(self.whole.seen, self.delta)

    @property
    def words(self) -> str:
        """The verdict on the whole stream in one sentence, in epsilon."""
        whole = self.whole
        if whole.measure == "epsilon":
            return f"The whole stream, epsilon: {whole.words}"
        return (
            f"The whole stream: {whole.words}. In zCDP, rho is at least {whole.seen**2 / 2:.3g} of "
            f"{whole.claimed**2 / 2:.3g}; epsilon at least {self.epsilon:.3g} at delta = {self.delta:g}"
        )

    def facts(self) -> dict[str, Any]:
        """All of it as plain numbers and texts, for JSON."""
        keys = ("what", "measure", "claimed", "seen", "events", "runs", "refuted", "words")
        return {
            "refuted": self.refuted,
            "confidence": self.confidence,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "verdict": self.words,
            "caveat": self.caveat,
            "findings": [{key: getattr(finding, key) for key in keys} for finding in self.findings],
        }


def _added(bounds: FloatArray, measure: Measure) -> float:
    """Losses by noise of its own each, all together: epsilon adds up, of mu the squares."""
    return float(bounds.sum() if measure == "epsilon" else np.sqrt(np.sum(bounds**2)))


def of_counter(target: CounterTarget, gate: Gate, *, ticks: int, runs: int, alpha: float, progress: Meter) -> Finding:
    """Audit a counter over those cells that one event changes, by ``runs`` runs on each side.

    The bound is wrong with probability at most ``alpha``.
    """
    counter, multipliers, moved = target.counter, target.multipliers, target.moved
    measure: Measure = "epsilon" if counter.noise == "laplace" else "mu"
    look, loss = readings(counter, min(ticks, counter.horizon or ticks)), moved / multipliers
    together = _added(loss, measure)
    power = loss * look.shares.max() if measure == "epsilon" else np.full(loss.size, together * look.shares[0])
    events = np.maximum(np.rint(POWER / power), 1).astype(np.int64)
    at_once = max(1, min(_CELLS // loss.size, runs))
    sides: list[FloatArray] = []
    for side in (0, 1):
        come, parts = (side * events * moved).astype(np.int64), []
        for first in range(0, runs, at_once):
            here = min(at_once, runs - first)
            found = trials(counter, look, gate, multipliers=multipliers, events=come, runs=here)
            if measure == "epsilon":  # each reading on its own
                parts.append(found.reshape(here, -1))
            else:  # the likelihood ratio of all cells, in events
                weights = moved / multipliers**2
                parts.append(np.asarray(found[:, :, 0] @ weights / (weights @ moved))[:, None])
            progress((side + (first + here) / runs) / 2)
        sides.append(np.concatenate(parts))
    if measure == "epsilon":
        each = look.shares.size
        seen = epsilon_seen(sides[0], sides[1], np.repeat(events * moved, each), alpha=alpha) / np.repeat(events, each)
        total, room = float(seen.sum()), 1.0
    else:
        total = float(mu_seen(sides[0], sides[1], events[:1].astype(np.float64), alpha=alpha)[0]) / int(events[0])
        scale = float(multipliers.min()) * counter.sensitivity() * 2.0**counter.grid_bits
        room = lattice(scale, float(events[0] * moved[0]))
    return Finding(
        what=target.name,
        measure=measure,
        claimed=together if target.claimed is None else target.claimed,
        seen=total / room,
        events=(int(events.min()), int(events.max())),
        runs=runs,
    )


def _of_draws(target: DrawTarget, gate: Gate, *, runs: int, alpha: float, progress: Meter) -> Finding:
    """See :func:`of_counter`: readings of runs that are simulated one by one."""
    sides = np.full((2, runs, target.shift.size), np.nan)
    for side in (0, 1):
        for run in range(runs):
            sides[side, run] = target.draw(side, gate)
            if run % 100 == 99:
                progress((side + (run + 1) / runs) / 2)
    room = 1.0 if target.grid is None else lattice(*target.grid)
    bounds = epsilon_seen if target.measure == "epsilon" else mu_seen
    return Finding(
        what=target.name,
        measure=target.measure,
        claimed=target.claimed,
        seen=_added(bounds(sides[0], sides[1], target.shift, alpha=alpha), target.measure) / target.events / room,
        events=(target.events, target.events),
        runs=runs,
    )


def audit(
    config: StreamConfig,
    *,
    runs: int = 10_000,
    ticks: int = 64,
    confidence: float = 0.999,
    gate: Gate | None = None,
    progress: Meter = lambda _: None,
) -> Audit:
    """Audit the counters and the whole stream of a configuration. Reads no data and no state, and spends nothing.

    Args:
        runs: simulated runs on each side, of each part.
        ticks: how many ticks a run has, at most.
        confidence: probability that no finding exceeds the truth.
        gate: where noise comes from; the system's if left out.
        progress: is told which share of the work is done.

    Raises:
        ConfigError: the configuration cannot be run.
        ValueError: an argument is out of range.
    """
    if runs < 10 or ticks < 1 or not 0 < confidence < 1:
        raise ValueError("an audit needs at least 10 runs and 1 tick, and a confidence between 0 and 1")
    made = synthesizer_of(config)
    counters, parts, caveat = made.audit_targets()
    targets = (*counters, *parts)
    alpha = (1 - confidence) / len(targets)
    found = []
    for number, target in enumerate(targets):

        def shared(share: float, number: int = number) -> None:
            progress((number + share) / len(targets))

        audited = (
            partial(_of_draws, target) if isinstance(target, DrawTarget) else partial(of_counter, target, ticks=ticks)
        )
        found.append(audited(gate or SystemGate(), runs=runs, alpha=alpha, progress=shared))
    if config.privacy.unit.of_persons:
        factor = f"{float(group_factor(config)):.3g}"
        caveat = (
            f"{caveat} All this is for one event; a person's events together may tell {factor} times as much.".strip()
        )
    if not any(finding.seen for finding in found):
        caveat = f"{caveat} So few runs see nothing: say --runs 10000.".strip()
    claim, seen = made.mechanism.claim(), found[len(counters) :]
    claimed = math.sqrt(2 * claim.rho) if claim.pure is None else float(claim.pure)
    return Audit(
        counters=tuple(found[: len(counters)]),
        parts=tuple(seen),
        whole=_whole(seen, claimed=claimed),
        delta=config.privacy.budget.delta,
        confidence=confidence,
        caveat=caveat,
    )


def _whole(parts: Sequence[Finding], *, claimed: float) -> Finding:
    """Bounds on parts with noise of their own as one on the whole stream."""
    return replace(
        parts[0],
        what="the whole stream",
        claimed=claimed,
        seen=_added(np.array([part.seen for part in parts]), parts[0].measure),
        events=(min(part.events[0] for part in parts), max(part.events[1] for part in parts)),
    )


class Readings(NamedTuple):
    """What an observer reads off a counter's releases.

    A reading is a fixed linear combination of one cell's released sums: without noise it is the number of events at one
    tick.

    Args:
        event: tick of the event, 0-based: one at which the claim is tight.
        weights: of the released sums, shape ``(readings, ticks)``.
        shares: part of the claimed epsilon of each reading (Laplace noise), or of the claimed mu (Gaussian noise, a
            single reading), shape ``(readings,)``. Their sum says how much of the claim can be seen at most.
    """

    event: int
    weights: FloatArray
    shares: FloatArray


def readings(counter: Counter, ticks: int) -> Readings:
    """The best readings of a counter's first ``ticks`` releases.

    Laplace noise: one reading for each noise that hides the event, each with no other noise in it. Gaussian noise: the
    combination with the smallest variance, which is all that the releases say about the event. Raises ``TypeError`` if
    how to read this kind of counter is not known.
    """
    if counter.noise == "gaussian":
        return _least_squares(counter, ticks)
    if isinstance(counter, Restarted):
        return readings(counter.inner(0), min(ticks, counter.length(0)))
    if isinstance(counter, Simple):
        return Readings(0, np.eye(1, ticks), np.ones(1))
    if isinstance(counter, NodeCounter):
        return _nodes(counter, ticks)
    if isinstance(counter, Kary):
        # The prefix of k^l ticks is a single node of level l.
        ends = [counter.arity**level - 1 for level in range(counter.levels)]
        weights = np.eye(ticks)[[end for end in ends if end < ticks]]
        return Readings(0, weights, np.full(len(weights), 1 / counter.levels))
    raise TypeError(f"no way is known to read a {type(counter).__name__}")


def _least_squares(counter: Counter, ticks: int) -> Readings:
    cov = np.zeros((ticks, ticks))
    for t in range(ticks):
        for s in range(t + 1):
            cov[s, t] = cov[t, s] = counter.covariance(s, t, multiplier=1.0)
    weights = np.linalg.solve(cov, np.ones(ticks))
    precision = float(weights.sum())
    return Readings(0, np.asarray(weights[None] / precision), np.array([min(np.sqrt(precision), 1.0)]))


def _nodes(counter: NodeCounter, ticks: int) -> Readings:
    """Each release adds one new node to nodes that were released before: take these away, and the node is left."""
    rows: dict[Span, FloatArray] = {}
    for n in range(1, ticks + 1):
        *before, new = counter.cover(n)
        rows[new] = np.eye(1, ticks, n - 1)[0] - sum(rows[span] for span in before)
    cost = [sum(1 / span.factor for span in rows if span.start <= i <= span.end) for i in range(1, ticks + 1)]
    event = int(np.argmax(cost))
    held = [span for span in rows if span.start <= event + 1 <= span.end]
    return Readings(event, np.array([rows[span] for span in held]), np.array([1 / span.factor for span in held]))


def trials(
    counter: Counter, look: Readings, gate: Gate, *, multipliers: FloatArray, events: IntArray, runs: int
) -> FloatArray:
    """Readings of independent runs of some cells, in which nothing comes but some events at one tick.

    Runs are cells of one vector: a counter treats cells alike and draws for each of them afresh.

    Args:
        multipliers: noise of each cell per unit of sensitivity, shape ``(cells,)``.
        events: how many come in each cell, shape ``(cells,)``.

    Returns:
        float64, shape ``(runs, cells, readings)``, in events.
    """
    cells = multipliers.size * runs
    state, multiplier = counter.init(cells), np.tile(multipliers, runs)
    come, none = np.tile(events, runs).astype(np.int64), np.zeros(cells, dtype=np.int64)
    found = np.zeros((look.weights.shape[0], cells))
    for tick in range(look.weights.shape[1]):
        counts = come if tick == look.event else none
        state, released = counter.step(state, counts, gate, multiplier=multiplier)
        found += look.weights[:, tick, None] * released
    return np.moveaxis(found.reshape(-1, runs, multipliers.size), 0, 2)
