"""Many streams, one list: what each promises, for whom, and what promises add up to. Reads settings alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from synthstream.config.config import StreamConfig
from synthstream.privacy import above, compose
from synthstream.synthesizers.succession import Promise, promise_of


class Line(NamedTuple):
    """One stream: where its settings are, its name, and what it promises for its whole life."""

    path: Path
    name: str
    promise: Promise


class Sum(NamedTuple):
    """What streams with one unit and one relation of neighbours promise together to whoever is in all of them.

    Args:
        epsilon, delta: at the largest delta of its streams; from the sum of rho, or of pure epsilon, whichever is less.
        plain: (epsilon, delta) simply added up.
    """

    unit: str
    neighbours: str
    streams: tuple[str, ...]
    rho: float
    epsilon: float
    delta: float
    plain: tuple[float, float]


class Ledgers(NamedTuple):
    """The streams, their sums, and what was left out because another one of the list goes on from it."""

    lines: tuple[Line, ...]
    sums: tuple[Sum, ...]
    left_out: tuple[Path, ...]

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "streams": [{"file": str(x.path), "name": x.name, "claim": x.promise.facts} for x in self.lines],
            "sums": [total._asdict() for total in self.sums],
            "left_out": [str(path) for path in self.left_out],
            "note": NOTE,
        }


NOTE = (
    "Sums are not added to each other, because each is about another change: an event, a person, or a person in one "
    "period; one event more or less, or one replaced within a tick. Periods and ticks of two clocks overlap: those are "
    "different changes, too. Only the custodian knows whether streams are about the same people."
)


def ledgers(configs: Sequence[tuple[Path, StreamConfig]], begun: Callable[[StreamConfig], StreamConfig]) -> Ledgers:
    """Promises and their sums.

    Args:
        configs: files and what stands in them.
        begun: gives a configuration the cuts of its stream; one that another goes on from is not asked for.
    """
    before = {_life(life, config) for _, config in configs for life in config.lives[:-1]}
    kept, left_out, seen = list[Line](), list[Path](), set[tuple[str, Path]]()
    groups: dict[tuple[Any, ...], list[Line]] = {}
    for path, config in configs:
        life = _life(config, config)
        if life in before or life in seen:
            left_out.append(path)
            continue
        seen.add(life)
        config = begun(config)
        line = Line(path, config.name, promise_of(config))
        kept.append(line)
        claim, clock = line.promise.claim, config.clock
        # Periods, and the tick that a replaced row stays in, are those of one clock.
        by_clock = claim.unit.per is not None or claim.neighbours == "replace-one"
        # However they are written: a tick of 1w is one of 7d.
        ticks = (clock.boundary(0), clock.boundary(1), clock.seconds, clock.timezone) if by_clock else ()
        groups.setdefault((claim.unit.kind, claim.neighbours, claim.unit.period, *ticks), []).append(line)
    return Ledgers(tuple(kept), tuple(_sum(lines) for lines in groups.values()), tuple(left_out))


def _life(life: StreamConfig, config: StreamConfig) -> tuple[str, Path]:
    """One life of a stream: the same settings in another state are another stream."""
    return life.own_hash, config.state.absolute()


def _sum(lines: Sequence[Line]) -> Sum:
    claims = [line.promise.claim for line in lines]
    unit, who = claims[0].unit, "an event that is in all of them"
    if unit.of_persons:
        who = "a person" if unit.per is None else f"a person in one period of {unit.per}"
    rho, pure, least = compose(claims)
    budgets = [line.promise.budget for line in lines]
    delta = 0.0 if pure is not None else max(budget.delta for budget in budgets)
    plain = tuple(above(sum((Fraction(getattr(b, key)) for b in budgets), Fraction(0))) for key in ("epsilon", "delta"))
    return Sum(
        unit=who,
        neighbours=claims[0].neighbours,
        streams=tuple(line.name for line in lines),
        rho=above(rho),
        epsilon=replace(claims[0], rho=rho, pure=pure, least=least).epsilon(delta),
        delta=delta,
        plain=(plain[0], plain[1]),
    )
