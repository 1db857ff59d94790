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
from dataclasses import dataclass
from functools import partial

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.evaluate.lower_bounds import epsilon_of, epsilon_seen, lattice, mu_seen
from synthstream.evaluate.trials import readings, trials
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.synthesizers.assembly import group_factor, synthesizer_of
from synthstream.synthesizers.contract import POWER, CounterTarget, DrawTarget, Measure
from synthstream.workload import FloatArray

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


class OfCounter:
    """A counter over those cells that one event changes."""

    def __init__(self, target: CounterTarget, ticks: int) -> None:
        self.name, self.counter = target.name, target.counter
        self.multipliers, self.moved = target.multipliers, target.moved
        self.ticks = min(ticks, target.counter.horizon or ticks)
        self.measure: Measure = "epsilon" if self.counter.noise == "laplace" else "mu"
        loss = self.moved / self.multipliers
        together = float(loss.sum() if self.measure == "epsilon" else np.sqrt(np.sum(loss**2)))
        self.claimed = together if target.claimed is None else target.claimed

    def audit(self, gate: Gate, *, runs: int, alpha: float, progress: Meter) -> Finding:
        """Simulate ``runs`` runs on each side. The bound is wrong with probability at most ``alpha``."""
        look = readings(self.counter, self.ticks)
        loss = self.moved / self.multipliers
        if self.measure == "epsilon":
            power = loss * look.shares.max()
        else:
            power = np.full(loss.size, np.sqrt(np.sum(loss**2)) * look.shares[0])
        events = np.maximum(np.rint(POWER / power), 1).astype(np.int64)
        together = max(1, min(_CELLS // loss.size, runs))
        sides: list[FloatArray] = []
        for side in (0, 1):
            come, parts = (side * events * self.moved).astype(np.int64), []
            for first in range(0, runs, together):
                here = min(together, runs - first)
                found = trials(self.counter, look, gate, multipliers=self.multipliers, events=come, runs=here)
                parts.append(self._combined(found))
                progress((side + (first + here) / runs) / 2)
            sides.append(np.concatenate(parts))
        if self.measure == "epsilon":
            shift = np.repeat(events * self.moved, look.shares.size)
            seen = epsilon_seen(sides[0], sides[1], shift, alpha=alpha) / np.repeat(events, look.shares.size)
            total, room = float(seen.sum()), 1.0
        else:
            total = float(mu_seen(sides[0], sides[1], events[:1].astype(np.float64), alpha=alpha)[0]) / int(events[0])
            scale = float(self.multipliers.min()) * self.counter.sensitivity() * 2.0**self.counter.grid_bits
            room = lattice(scale, float(events[0] * self.moved[0]))
        return Finding(
            what=self.name,
            measure=self.measure,
            claimed=self.claimed,
            seen=total / room,
            events=(int(events.min()), int(events.max())),
            runs=runs,
        )

    def _combined(self, found: FloatArray) -> FloatArray:
        """Laplace: each reading on its own. Gaussian: the likelihood ratio of all cells, in events."""
        if self.measure == "epsilon":
            return found.reshape(len(found), -1)
        weights = self.moved / self.multipliers**2
        return np.asarray(found[:, :, 0] @ weights / (weights @ self.moved))[:, None]


def _of_draws(target: DrawTarget, gate: Gate, *, runs: int, alpha: float, progress: Meter) -> Finding:
    """See :meth:`OfCounter.audit`: readings of runs that are simulated one by one."""
    sides = np.full((2, runs, target.shift.size), np.nan)
    for side in (0, 1):
        for run in range(runs):
            sides[side, run] = target.draw(side, gate)
            if run % 100 == 99:
                progress((side + (run + 1) / runs) / 2)
    room = 1.0 if target.grid is None else lattice(*target.grid)
    if target.measure == "epsilon":
        total = float(epsilon_seen(sides[0], sides[1], target.shift, alpha=alpha).sum())
    else:
        total = float(np.sqrt(np.sum(mu_seen(sides[0], sides[1], target.shift, alpha=alpha) ** 2)))
    return Finding(
        what=target.name,
        measure=target.measure,
        claimed=target.claimed,
        seen=total / target.events / room,
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
    mechanism = made.mechanism
    counters, parts, caveat = made.audit_targets()
    targets = (*counters, *parts)
    alpha = (1 - confidence) / len(targets)
    found = []
    for number, target in enumerate(targets):

        def shared(share: float, number: int = number) -> None:
            progress((number + share) / len(targets))

        audited = partial(_of_draws, target) if isinstance(target, DrawTarget) else OfCounter(target, ticks).audit
        found.append(audited(gate or SystemGate(), runs=runs, alpha=alpha, progress=shared))
    if config.privacy.unit.of_persons:
        factor = f"{float(group_factor(config)):.3g}"
        caveat = (
            f"{caveat} All this is for one event; a person's events together may tell {factor} times as much.".strip()
        )
    if not any(finding.seen for finding in found):
        caveat = f"{caveat} So few runs see nothing: say --runs 10000.".strip()
    claim, split = mechanism.claim(), len(counters)
    claimed = math.sqrt(2 * claim.rho) if claim.pure is None else float(claim.pure)
    return Audit(
        counters=tuple(found[:split]),
        parts=tuple(found[split:]),
        whole=_together(found[split:], claimed=claimed, runs=runs),
        delta=config.privacy.budget.delta,
        confidence=confidence,
        caveat=caveat,
    )


def _together(parts: Sequence[Finding], *, claimed: float, runs: int) -> Finding:
    """Bounds on parts with noise of their own add up: as they are for epsilon, their squares for mu."""
    seen = np.array([part.seen for part in parts])
    measure = parts[0].measure
    return Finding(
        what="the whole stream",
        measure=measure,
        claimed=claimed,
        seen=float(seen.sum() if measure == "epsilon" else np.sqrt(np.sum(seen**2))),
        events=(min(part.events[0] for part in parts), max(part.events[1] for part in parts)),
        runs=runs,
    )
