"""What the events of one person cost together: by brute force over all placements, against the exact factor."""

from __future__ import annotations

import math
from collections import Counter as Multiset
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest

from synthstream.errors import BudgetExceeded
from synthstream.kernel.counters import Blt, Counter, Kary, Restarted, Simple, Toeplitz, counter
from synthstream.kernel.counters.base import root_above
from synthstream.kernel.spending import participation_factor
from synthstream.kinds import COUNTERS
from synthstream.privacy import EVENT, Budget, Claim, Unit
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost

TICKS, CELLS = 5, 2
MULTIPLIER = 3.0

GAUSSIAN: list[Counter] = [
    Simple(horizon=TICKS, noise="gaussian"),
    Toeplitz(horizon=TICKS),
    Blt(horizon=TICKS),
    Restarted(noise="gaussian"),
]

Event = tuple[int, int, int]  # tick, cell, weight


def person(events: int, per_tick: int | None = None, *, period: int | None = None) -> Unit:
    return Unit(kind="person", max_events=events, max_per_tick=per_tick, period=period)


def placements(events: int, per_tick: int, ticks: int = TICKS) -> Iterator[tuple[int, ...]]:
    for chosen in combinations_with_replacement(range(ticks), events):
        if max(Multiset(chosen).values()) <= per_tick:
            yield chosen


def cost(how: Counter, base: np.ndarray, events: Sequence[Event]) -> Fraction:
    """Exact cost of all these events together: one run with them, one without, and the same answers."""
    more = base.copy()
    for tick, cell, weight in events:
        more[tick, cell] += weight
    traces = []
    gate: TracingGate | ReplayingGate = TracingGate(ExactGate())
    for counts in (more, base):
        state = how.init(base.shape[1])
        for x in counts:
            state, _ = how.step(state, x, gate, multiplier=np.full(base.shape[1], MULTIPLIER))
        traces.append(gate.trace)
        gate = ReplayingGate(traces[0])
    return path_cost(*traces)[0]


def promised(how: Counter, unit: Unit) -> Fraction:
    """The claim for the person: that for one event, times the factor's square."""
    return participation_factor(how, unit) ** 2 / (2 * Fraction(MULTIPLIER) ** 2)


@pytest.mark.sparing(8)
@pytest.mark.parametrize("how", GAUSSIAN, ids=lambda how: type(how).__name__)
@pytest.mark.parametrize(("events", "per_tick"), [(1, 1), (2, 1), (3, 1), (5, 1), (2, 2), (3, 2), (4, 2), (4, 3)])
def test_no_placement_of_all_events_costs_more_than_the_claim(how: Counter, events: int, per_tick: int) -> None:
    """Every set of ticks, all in one cell; a random base, because rounding depends on it."""
    base = np.random.default_rng(events).integers(0, 50, (TICKS, 1))
    bound = promised(how, person(events, per_tick))
    found = {at: cost(how, base, [(t, 0, 1) for t in at]) for at in placements(events, per_tick)}
    worst = max(found.values())
    assert worst <= bound
    packed = tuple(sorted(i // per_tick for i in range(events)))
    assert float(found[packed]) == pytest.approx(float(worst), rel=1e-3)
    if events % per_tick == 0 and how.horizon == TICKS:  # then the bound is reached, but for what rounding may add
        assert worst > bound * (1 - Fraction(1, 1000))


@pytest.mark.parametrize("how", GAUSSIAN, ids=lambda how: type(how).__name__)
def test_other_cells_and_signs_cost_less(how: Counter) -> None:
    base = np.zeros((3, CELLS), dtype=np.int64)
    for events, per_tick in ((2, 1), (3, 2)):
        bound = promised(how, person(events, per_tick))
        where = list(product(range(CELLS), (1, -1)))
        for at in placements(events, per_tick, ticks=3):
            for cells in product(where, repeat=events):
                assert cost(how, base, [(t, *c) for t, c in zip(at, cells, strict=True)]) <= bound


def test_without_the_cap_the_small_factor_would_be_wrong() -> None:
    """The brute force would notice: two events in one tick cost more than a factor for one in each covers."""
    how = Toeplitz(horizon=TICKS)
    base = np.zeros((TICKS, 1), dtype=np.int64)
    assert cost(how, base, [(0, 0, 1)] * 2) > promised(how, person(2, 1))
    assert cost(how, base, [(0, 0, 1)] * 2) <= promised(how, person(2))


@dataclass(frozen=True, kw_only=True)
class Short(Restarted):
    """Restarted counters with short segments."""

    noise: str = "gaussian"  # type: ignore[assignment]

    def length(self, segment: int) -> int:
        return 8


@pytest.mark.sparing(1)
@pytest.mark.parametrize(("events", "per_tick"), [(2, 1), (3, 2), (4, 2)])
def test_events_in_two_segments_cost_no_more(events: int, per_tick: int) -> None:
    how = Short()
    base = np.zeros((16, 1), dtype=np.int64)
    bound = promised(how, person(events, per_tick))
    assert bound < events**2 / (2 * Fraction(MULTIPLIER) ** 2)
    found = [cost(how, base, [(t, 0, 1) for t in at]) for at in placements(events, per_tick, ticks=16)]
    assert bound * (1 - Fraction(1, 1000)) * (events % per_tick == 0) < max(found) <= bound
    assert how.participation(3) is None  # three of eight ticks are too many for the proof
    assert participation_factor(how, person(5, 2)) == 5  # so it is if only the longer of two layers has three


@pytest.mark.parametrize(
    ("how", "unit", "factor"),
    [
        (None, person(7, 1), 7),
        (Kary(horizon=50), person(7, 1), 7),
        (Simple(horizon=50, noise="laplace"), person(7, 1), 7),
        (Simple(horizon=50, noise="gaussian"), person(1, 1), 1),
        (Simple(horizon=50, noise="gaussian"), person(9, 1), 3),
        (Simple(horizon=4, noise="gaussian"), person(9, 1), 2),  # there are four ticks only
        (Simple(horizon=4, noise="gaussian"), person(9, 2), 4),  # with two in each
        (Simple(horizon=50, noise="gaussian"), person(9, 1, period=4), 2),
        (None, person(9, 2, period=4), 8),
        (Restarted(noise="laplace"), person(3, 1), 3),
    ],
)
def test_known_factors(how: Counter | None, unit: Unit, factor: int) -> None:
    found = participation_factor(how, unit)
    assert factor <= found < factor * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize("kind", ["simple", "toeplitz", "blt"])
@pytest.mark.parametrize("horizon", [1, 2, 31, 365])
def test_factors_grow_with_events_and_stay_below_their_number(kind: str, horizon: int) -> None:
    how = counter(kind, horizon=horizon, noise="gaussian")
    for per_tick in (1, 2, 5):
        found = [participation_factor(how, person(m, per_tick)) for m in range(1, 30)]
        assert all(a <= b for a, b in pairwise(found))
        assert all(1 <= f <= m for m, f in enumerate(found, 1))


@pytest.mark.parametrize("horizon", [5, 100, 2**14])
def test_the_blt_norm_is_that_of_the_summed_columns(horizon: int) -> None:
    how = Blt(horizon=horizon)
    sums = np.concatenate([[0.0], np.cumsum(how.coefficients)])
    for ticks in (1, 2, 4):
        t = np.arange(horizon)
        norm = math.sqrt(math.fsum((sums[t + 1] - sums[np.maximum(0, t + 1 - ticks)]) ** 2))
        found = how.participation(ticks)
        assert found is not None
        assert norm <= float(found) <= norm * 1.005
    assert how.participation(1) == pytest.approx(how.sensitivity(), rel=1e-6)


def test_columns_do_not_grow_with_age() -> None:
    """What the proof takes from counters that give a joint norm."""
    for horizon in (1, 2, 100, 2**13):
        assert np.all(np.diff(Toeplitz(horizon=horizon).coefficients) <= 0)
        assert np.all(np.diff(Blt(horizon=horizon).coefficients) <= 0)
        assert min(Blt(horizon=horizon).coefficients) > 0


@pytest.mark.parametrize("value", [Fraction(2), Fraction(9), Fraction(1, 3), Fraction(10**30 + 1), Fraction(0)])
def test_a_root_is_never_below(value: Fraction) -> None:
    assert value <= root_above(value) ** 2 <= value + (2 * root_above(value)) / 2**63


# -- budgets and claims --------------------------------------------------------------------------------------------


def one_event(budget: Budget) -> Claim:
    """A claim that spends a budget to the last."""
    rho, pure = budget.rho, Fraction(budget.epsilon) if budget.pure else None
    return Claim(unit=EVENT, neighbours="add-remove", rho=rho, pure=pure, horizon=10, theorems=("marginals",))


@pytest.mark.sparing(15)
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-5, 0.01, 0.4])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("events", [1, 2, 3, 7, 20, 1000])
def test_what_is_left_for_one_event_times_the_factor_is_the_whole(delta: float, epsilon: float, events: int) -> None:
    whole = Budget(epsilon=epsilon, delta=delta)
    left = whole.per_event(Fraction(events))
    claim = one_event(left).of_group(person(events), Fraction(events), theorem="group")
    whole.charge(claim)
    spent, allowed = (claim.pure, Fraction(epsilon)) if whole.pure else (claim.rho, whole.rho)
    assert spent is not None
    assert 1 - Fraction(1, 10**5) < spent / allowed <= 1
    with pytest.raises(BudgetExceeded):
        whole.charge(one_event(left).of_group(person(events + 1), Fraction(events + 1), theorem="group"))


def test_a_mechanism_that_spends_epsilon_alone_gets_all_of_it() -> None:
    whole = Budget(epsilon=1.0, delta=1e-9)
    left = whole.per_event(Fraction(20), by_pure=True)
    assert left.epsilon == pytest.approx(1 / 20)
    assert Fraction(left.epsilon) * 20 <= 1
    assert whole.per_event(Fraction(20)).epsilon < left.epsilon


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_too_many_events_leave_nothing(delta: float) -> None:
    with pytest.raises(ValueError, match=r"max_events: epsilon = 0\.001 .*Let fewer events"):
        Budget(epsilon=0.001, delta=delta).per_event(Fraction(10**12))
    with pytest.raises(ValueError, match="at least 1"):
        Budget(epsilon=1.0, delta=delta).per_event(Fraction(1, 2))


def test_a_claim_for_a_person_names_who_and_why() -> None:
    claim = one_event(Budget(epsilon=0.25, delta=0.0))
    unit = Unit(kind="person", max_events=4, per="30d", period=30)
    found = claim.of_group(unit, Fraction(4), theorem="group")
    assert (found.pure, found.rho) == (Fraction(1), Fraction(1, 2))
    assert found.theorems == ("marginals", "group")
    words = found.words(Budget(epsilon=1.0, delta=0.0))
    unit_words = "that come to be counted within any one period of 30d (at most 4 count) being added"
    assert f"all events of any one person {unit_words}" in words
    with pytest.raises(ValueError, match="only a claim for one event"):
        found.of_group(unit, Fraction(4), theorem="group")
    with pytest.raises(ValueError, match="max_events must be at least 1"):
        Unit(kind="person", max_events=0)


def test_noise_changes_nothing() -> None:
    """The cost is that of the values, whatever the answers: a run with noise costs the same."""
    how = Toeplitz(horizon=TICKS)
    base = np.zeros((TICKS, 1), dtype=np.int64)
    more = base.copy()
    more[:2] += 1
    noisy = TracingGate(SeededGate(3))
    state = how.init(1)
    for x in more:
        state, _ = how.step(state, x, noisy, multiplier=np.full(1, MULTIPLIER))
    replay = ReplayingGate(noisy.trace)
    state = how.init(1)
    for x in base:
        state, _ = how.step(state, x, replay, multiplier=np.full(1, MULTIPLIER))
    assert path_cost(noisy.trace, replay.trace)[0] == cost(how, base, [(0, 0, 1), (1, 0, 1)])


def impulse(how: Counter, tick: int, ticks: int) -> list[int]:
    """How far one event moves the value at the gate at each tick, in grid steps."""
    values = []
    for events in (0, 1):
        state, gate = how.init(1), TracingGate(ExactGate())
        for t in range(ticks):
            counts = np.array([events if t == tick else 0], dtype=np.int64)
            state, _ = how.step(state, counts, gate, multiplier=np.full(1, MULTIPLIER))
        values.append([int(call.value[0]) for call in gate.trace])
    return [b - a for a, b in zip(*values, strict=True)]


@pytest.mark.parametrize("kind", list(COUNTERS))
def test_who_gives_a_joint_norm_moves_values_less_and_less(kind: str) -> None:
    """What the theorem needs of a counter: never backwards, never more with age, and the same scale at every tick."""
    try:
        how = counter(kind, horizon=12, noise="gaussian")
    except ValueError:
        return  # for Laplace noise alone
    if how.participation(2) is None:
        return
    assert how.sensitivity(0) == how.sensitivity(11)
    slack = 2  # of rounding, in grid steps
    for tick in (0, 3, 11):
        moved = impulse(how, tick, 12)
        assert moved[:tick] == [0] * tick
        after = moved[tick:]
        assert min(after) >= -slack
        assert all(b <= a + slack for a, b in pairwise(after))
        assert after[0] == pytest.approx(impulse(how, 0, 12)[0], abs=slack)
