"""The marginals mechanism: claim, cost along exhaustive small neighbours, variance, private total."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from synthstream.kernel.gate import Gate
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.kernel.tables import Marginals
from synthstream.kinds import Split
from synthstream.measured import Measured
from synthstream.privacy import EVENT, Budget, Neighbours, Unit
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray, Workload
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost
from tests.support.marginals import WORKLOAD, mechanism, run

PURE, ZCDP = Budget(epsilon=1.0, delta=0.0), Budget(epsilon=1.0, delta=1e-9)
SIGNED = Unit(signed=True)
UNITS = pytest.mark.parametrize("unit", [EVENT, SIGNED], ids=["plain", "signed"])
BUDGETS = pytest.mark.parametrize("budget", [PURE, ZCDP], ids=["pure", "zcdp"])


@BUDGETS
@UNITS
@pytest.mark.parametrize("split", ["auto", "equal", "sqrt-cells", "by-order"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("horizon", [4, 100, None])
def test_the_claim_spends_the_budget_and_not_more(
    budget: Budget, split: Split, neighbours: Neighbours, horizon: int | None, unit: Unit
) -> None:
    claim = mechanism(budget, split=split, neighbours=neighbours, horizon=horizon, unit=unit).claim()
    assert claim.fits(budget)
    if budget.pure:
        assert claim.pure is not None
        assert 1 - 1e-9 < float(claim.pure) <= 1
    else:
        assert claim.pure is None
        assert 1 - 1e-9 < float(claim.rho / budget.rho) <= 1


@BUDGETS
@pytest.mark.parametrize(
    ("neighbours", "unit", "a", "s"),
    [
        ("add-remove", EVENT, 1, 1),
        ("add-remove", SIGNED, 1, 1),
        ("replace-one", EVENT, 2, 2),
        ("replace-one", SIGNED, 2, 4),
    ],
)
def test_the_claim_is_the_formula_of_the_theorem(
    budget: Budget, neighbours: Neighbours, unit: Unit, a: int, s: int
) -> None:
    m = mechanism(budget, neighbours=neighbours, unit=unit)
    if budget.pure:
        assert m.claim().pure == sum(a / Fraction(float(v)) for v in m.multipliers)
    else:
        assert m.claim().rho == sum(s / (2 * Fraction(float(v)) ** 2) for v in m.multipliers)


def test_signs_are_part_of_the_numbers_a_stream_begins_with() -> None:
    for budget in (PURE, ZCDP):
        plain = mechanism(budget, neighbours="replace-one")
        signed = mechanism(budget, neighbours="replace-one", unit=SIGNED)
        assert plain.fingerprint() != signed.fingerprint()
        ratio = signed.multipliers / plain.multipliers
        assert ratio == pytest.approx(1.0 if budget.pure else np.sqrt(2))
        assert "taking away" in signed.claim().words(budget)
        assert "taking away" not in plain.claim().words(budget)


THREE = Workload.all_up_to(3, sizes=(2, 3, 4))
ONES = math.sqrt(2) + math.sqrt(3) + math.sqrt(4)


@pytest.mark.parametrize(
    ("workload", "split", "parts"),
    [
        (THREE, "equal", [1] * 8),
        (THREE, "sqrt-cells", [math.sqrt(n) for n in (1, 2, 3, 4, 6, 8, 12, 24)]),
        (THREE, "by-order", [0.02, *(0.58 * math.sqrt(n) / ONES for n in (2, 3, 4)), *[0.4 / 4] * 4]),
        (Workload.all_up_to(1, sizes=(4, 9)), "by-order", [0.02, 0.58 * 2 / 5, 0.58 * 3 / 5]),
        (Workload(sizes=(4, 9), marginals=((), (0, 1))), "by-order", [0.02, 0.4]),
        (Workload(sizes=(4, 9), marginals=((0,), (1,))), "by-order", [2, 3]),
    ],
)
def test_shares_are_those_of_the_split(workload: Workload, split: Split, parts: list[float]) -> None:
    m = Marginals(workload=workload, budget=PURE, horizon=4, split=split)
    assert m.shares.tolist() == pytest.approx([part / sum(parts) for part in parts], rel=1e-12)


def test_the_split_is_by_order_for_pure_budgets_and_equal_for_others() -> None:
    assert mechanism(PURE).shares.tolist() == mechanism(PURE, split="by-order").shares.tolist()
    many = Workload.all_up_to(2, sizes=(2,) * 4)
    auto, equal = (Marginals(workload=many, budget=ZCDP, horizon=9, split=split) for split in ("auto", "equal"))
    assert auto.shares.tolist() == equal.shares.tolist()


@pytest.mark.parametrize(("sizes", "order"), [((2,), 1), ((2, 5, 9), 1), ((2, 5), 2), ((2,) * 8, 1)])
def test_the_total_of_few_tables_has_a_tenth(sizes: tuple[int, ...], order: int) -> None:
    shares = Marginals(workload=Workload.all_up_to(order, sizes=sizes), budget=ZCDP, horizon=9).shares
    assert shares == pytest.approx([0.1, *[0.9 / (shares.size - 1)] * (shares.size - 1)])


@pytest.mark.parametrize(
    ("weights", "parts"),
    [
        ((1.0, 1.0, 2.0, 3.0), (2 / 3, 1, 2, 3)),
        ((0.5, 1.0, 1.0, 4.0), (0.5, 1, 1, 4)),
        ((2.0, 9.0, 4.0, 5.0), (2, 9, 4, 5)),
        ((1.0, 0.1, 0.2, 0.6), (0.1, 0.1, 0.2, 0.6)),
    ],
)
def test_a_tenth_is_of_what_weights_leave(weights: tuple[float, ...], parts: tuple[float, ...]) -> None:
    shares = Marginals(workload=WORKLOAD, budget=ZCDP, horizon=9, weights=weights).shares
    assert shares == pytest.approx(np.array(parts) / sum(parts), rel=1e-12)


def test_the_total_alone_has_all() -> None:
    alone = Workload(sizes=(2,), marginals=((),))
    assert Marginals(workload=alone, budget=ZCDP, horizon=9).shares.tolist() == [1.0]


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 8.0])
def test_a_pure_claim_states_half_the_square_as_rho(epsilon: float) -> None:
    claim = mechanism(Budget(epsilon=epsilon, delta=0.0)).claim()
    assert claim.pure is not None
    assert claim.rho == claim.pure**2 / 2
    assert float(claim.rho) == pytest.approx(epsilon**2 / 2, rel=1e-9)


def test_values_are_rounded_to_a_power_of_two_at_a_32nd_of_the_least_error() -> None:
    for i in range(60):
        m = mechanism(Budget(epsilon=2 ** (i / 30), delta=0.0), split="equal", horizon=20)  # a simple counter
        error = math.sqrt(m.counter.noise_variance(float(m.multipliers[0]) * (1 + 2**-50)))
        assert math.log2(m.resolution).is_integer()
        assert m.resolution <= error / 32 < 2 * m.resolution
    assert mechanism(Budget(epsilon=1e5, delta=0.0)).resolution == 2**-20


@BUDGETS
def test_variance_is_that_of_the_counter_and_of_rounding(budget: Budget) -> None:
    m = mechanism(budget, split="by-order")
    multipliers = m.multipliers.tolist()
    assert len(set(multipliers)) > 1
    rounding = m.resolution**2 / 12
    for t in range(4):
        expected = [m.counter.variance(t, multiplier=each) + rounding for each in multipliers]
        assert m.variance(t).tolist() == pytest.approx(expected, rel=1e-13)
        assert m.covariance(t, t).tolist() == m.variance(t).tolist()
        for s in range(t):
            between = [m.counter.covariance(s, t, multiplier=each) for each in multipliers]
            assert m.covariance(s, t).tolist() == m.covariance(t, s).tolist() == pytest.approx(between, rel=1e-13)


@pytest.mark.parametrize("unit", [EVENT, SIGNED], ids=["plain", "signed"])
def test_a_fingerprint_is_of_what_decides_how_values_are_encoded(unit: Unit) -> None:
    m = mechanism(PURE, unit=unit)
    facts = [m.multipliers.tolist(), m.counter.facts(), m.resolution, [[], [0], [1], [0, 1]]]
    facts += ["signed"] * unit.signed
    assert m.fingerprint() == hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def test_a_running_stream_keeps_its_fingerprint() -> None:
    assert mechanism(PURE).fingerprint() == "22f9e4b4284b91b6082fc97567b4f5f48eb5c7f57bc4562be25b635fe328843d"


def small_streams() -> list[list[IntArray]]:
    """All streams of two ticks with at most one event a tick, followed by two empty ticks."""
    none = np.zeros((0, 2), dtype=np.int64)
    batches = [none, *(np.array([row]) for row in itertools.product(range(2), range(3)))]
    return [[a, b, none, none] for a, b in itertools.product(batches, repeat=2)]


@BUDGETS
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_worst_path_cost_on_exhaustive_neighbours_equals_the_claim(budget: Budget, neighbours: Neighbours) -> None:
    m = mechanism(budget, neighbours=neighbours)  # four ticks: simple for pure DP, toeplitz for zCDP: both are tight
    rows = list(itertools.product(range(2), range(3)))
    worst = Fraction(0)
    for stream in small_streams():
        tracing = TracingGate(SeededGate(1))
        releases = run(m, stream, tracing)
        for tick in (0, 1):
            others = [np.concatenate([stream[tick], [row]]) for row in rows]
            if neighbours == "replace-one":
                others = [np.array([row]) for row in rows] if len(stream[tick]) else []
            for batch in others:
                replaying = ReplayingGate(tracing.trace)
                again = run(m, [*stream[:tick], batch, *stream[tick + 1 :]], replaying)
                assert all(np.array_equal(a.values, b.values) for a, b in zip(releases, again, strict=True))
                rho, epsilon = path_cost(tracing.trace, replaying.trace)
                worst = max(worst, epsilon if budget.pure else rho)
    claimed = m.claim().pure if budget.pure else m.claim().rho
    assert claimed is not None
    assert worst <= claimed
    # The total is one cell, which a replacement leaves alone: there the claim allows for a little more than is spent.
    slack = 1.0 if neighbours == "add-remove" else 1 - float(m.shares[0])
    assert float(worst) == pytest.approx(float(claimed) * slack, rel=1e-9)


Signed = tuple[tuple[int, ...], int]  # the codes of a row and its weight


def run_signed(m: Marginals, stream: list[list[Signed]], gate: Gate) -> list[Measured]:
    state, out = m.init(), []
    for batch in stream:
        codes = np.array([row for row, _ in batch], dtype=np.int32).reshape(-1, 2)
        counts = WORKLOAD.count(codes, np.array([weight for _, weight in batch], dtype=np.int64))
        state, measured = m.step(state, counts, gate)
        out.append(measured)
    return out


def worst_signed(m: Marginals) -> Fraction:
    """Largest path cost over neighbours of streams with at most one signed event in the first tick."""
    events: list[Signed] = [(row, w) for row in itertools.product(range(2), range(3)) for w in (1, -1)]
    worst = Fraction(0)
    for batch in ([], *([event] for event in events)):
        tracing = TracingGate(SeededGate(1))
        releases = run_signed(m, [batch, [], [], []], tracing)
        others = [[*batch, event] for event in events]
        if m.neighbours == "replace-one":
            others = [[event] for event in events] if batch else []
        for other in others:
            replaying = ReplayingGate(tracing.trace)
            again = run_signed(m, [other, [], [], []], replaying)
            assert all(np.array_equal(a.values, b.values) for a, b in zip(releases, again, strict=True))
            worst = max(worst, path_cost(tracing.trace, replaying.trace)[1 if m.budget.pure else 0])
    return worst


@BUDGETS
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_worst_path_cost_of_signed_events_equals_the_claim(budget: Budget, neighbours: Neighbours) -> None:
    """Also where a row that adds is replaced by one that takes away: one cell of each table moves by two."""
    m = mechanism(budget, neighbours=neighbours, unit=SIGNED)
    claimed = m.claim().pure if budget.pure else m.claim().rho
    assert claimed is not None
    worst = worst_signed(m)
    assert worst <= claimed
    assert float(worst) == pytest.approx(float(claimed), rel=1e-9)


@pytest.mark.parametrize("horizon", [20, 60, None])
def test_a_turned_sign_stays_within_the_claim_where_encoders_round(horizon: int | None) -> None:
    m = mechanism(ZCDP, horizon=horizon, neighbours="replace-one", unit=SIGNED)
    rest: list[list[Signed]] = [[((t % 2, t % 3), (-1) ** (t // 2))] for t in range(19)]
    tracing = TracingGate(SeededGate(1))
    run_signed(m, [[((1, 2), 1)], *rest], tracing)
    replaying = ReplayingGate(tracing.trace)
    run_signed(m, [[((1, 2), -1)], *rest], replaying)
    rho, _ = path_cost(tracing.trace, replaying.trace)
    assert float(m.claim().rho) * 0.3 < float(rho)
    assert rho <= m.claim().rho


def test_a_claim_that_forgets_signs_is_seen() -> None:
    """Noise for rows that all add would not do: a turned sign costs twice the rho."""
    m = mechanism(ZCDP, neighbours="replace-one", unit=EVENT)
    assert float(worst_signed(m)) == pytest.approx(2 * float(m.claim().rho), rel=1e-9)
    assert not worst_signed(m) <= ZCDP.rho


def test_a_forgotten_marginal_in_the_split_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the total is measured outside the split, the path costs more than the budget."""
    m = mechanism(ZCDP, split="equal")
    shares = m.shares.copy()
    shares[1:] /= shares[1:].sum()
    monkeypatch.setitem(m.__dict__, "shares", shares)
    monkeypatch.delitem(m.__dict__, "multipliers")
    assert not m.claim().fits(ZCDP)


@BUDGETS
def test_without_noise_it_counts(budget: Budget) -> None:
    rng = np.random.default_rng(0)
    stream = [rng.integers(0, (2, 3), size=(n, 2)) for n in (5, 0, 9, 1)]
    measured = run(mechanism(budget), stream, ExactGate())[-1]
    exact = WORKLOAD.count(np.concatenate(stream).astype(np.int32))
    assert np.allclose(measured.values, exact, atol=mechanism(budget).resolution)
    values, stderr = measured.marginal((0, 1))
    assert values.shape == (2, 3)
    assert stderr > 0


@pytest.mark.slow
@BUDGETS
def test_released_values_have_the_variance_they_state(budget: Budget) -> None:
    m = Marginals(workload=Workload.all_up_to(1, sizes=(3000, 1000)), budget=budget, horizon=30)
    state, gate = m.init(), SeededGate(7)
    for _ in range(30):
        state, measured = m.step(state, np.zeros(m.workload.cells, dtype=np.int64), gate)
    for q in (1, 2):
        part = measured.values[m.workload.offsets[q] : m.workload.offsets[q + 1]]
        assert np.mean(part**2) / measured.variance[q] == pytest.approx(1, abs=0.2)
        assert np.mean(part**2) / (measured.variance[q] / 2) != pytest.approx(1, abs=0.2)


def test_the_total_is_noisy_like_any_other() -> None:
    m = mechanism(ZCDP)
    totals = {run(m, [np.zeros((3, 2), dtype=np.int64)] * 4, SeededGate(s))[-1].values[0] for s in range(20)}
    assert len(totals) > 10


def test_signed_events_are_counted() -> None:
    weights = np.array([1, 1, -1], dtype=np.int64)
    counts = WORKLOAD.count(np.array([[0, 0], [1, 2], [0, 0]], dtype=np.int32), weights)
    assert counts[0] == 1
    _, measured = mechanism(ZCDP).step(mechanism(ZCDP).init(), counts, ExactGate())
    assert measured.values[0] == pytest.approx(1, abs=0.1)


def test_workloads_are_checked() -> None:
    for bad in ((0, 0), (1, 0), (5,)):
        with pytest.raises(ValueError, match="marginals"):
            Workload(sizes=(2, 3), marginals=(bad,))
    with pytest.raises(ValueError, match="twice"):
        Workload(sizes=(2, 3), marginals=((0,), (0,)))
    with pytest.raises(ValueError, match="sizes"):
        Workload(sizes=(), marginals=())


def test_counting_is_linear_and_right_for_any_order() -> None:
    rng = np.random.default_rng(1)
    workload = Workload.all_up_to(3, sizes=(2, 3, 4))
    codes = rng.integers(0, (2, 3, 4), size=(500, 3)).astype(np.int32)
    counts = workload.count(codes)
    assert np.array_equal(counts, workload.count(codes[:123]) + workload.count(codes[123:]))
    part = counts[workload.slice_of((0, 2))].reshape(2, 4)
    assert part[1, 3] == np.sum((codes[:, 0] == 1) & (codes[:, 2] == 3))
    assert np.array_equal(
        counts[workload.slice_of((0, 1, 2))].reshape(2, 3, 4).sum(axis=(0, 1)),
        counts[workload.slice_of((2,))],
    )


def test_an_unbounded_stream_is_checked_to_its_last_segment() -> None:
    with pytest.raises(ValueError, match="too small"):
        thin(15_000, horizon=None)
    assert thin(15_000, horizon=15).counter.theorem == "simple"


def thin(root: int, *, horizon: int | None, kind: str = "auto") -> Marginals:
    """The total has a part of the least budget that is one in so many; the other table is too large to be counted."""
    workload = Workload(sizes=(root, root), marginals=((), (0, 1)))
    budget = Budget(epsilon=1e-6, delta=0.0)
    return Marginals(workload=workload, budget=budget, horizon=horizon, split="sqrt-cells", kind=kind)


@pytest.mark.parametrize(("kind", "horizon", "widest"), [("block", 100, 2), ("binary", 1024, 11), ("hybrid", None, 72)])
def test_a_tree_whose_widest_noise_cannot_be_drawn_is_refused(kind: str, horizon: int | None, widest: int) -> None:
    """Not when it is first drawn, after years of ticks."""
    most = LARGEST_SCALE / 1e6 / widest
    assert thin(int(most * 0.999), horizon=horizon, kind=kind)
    with pytest.raises(ValueError, match="too small"):
        thin(int(most * 1.001), horizon=horizon, kind=kind)


def test_an_enormous_budget_still_works() -> None:
    m = Marginals(workload=WORKLOAD, budget=Budget(epsilon=1e5, delta=0.0), horizon=4)
    _, measured = m.step(m.init(), WORKLOAD.count(np.zeros((3, 2), dtype=np.int32)), SeededGate(0))
    assert measured.values[0] == pytest.approx(3, abs=1e-3)


def test_codes_of_another_schema_are_refused() -> None:
    for bad in ([[2, 0]], [[0, -1]]):
        with pytest.raises(ValueError, match="schema"):
            WORKLOAD.count(np.array(bad, dtype=np.int32))
