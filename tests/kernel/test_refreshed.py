"""Tables measured at refreshes: claim, cost along exhaustive small neighbours, covariance, what is known when."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from synthstream.kernel.gate import Gate, Question
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.measured import Measured
from synthstream.privacy import EVENT, Budget, Neighbours, Unit
from synthstream.strategies.shares import at_refreshes, by_size
from synthstream.strategies.times import Refreshes
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import IntArray, Workload
from tests.support.gates import ExactGate, ReplayingGate, TracingGate, path_cost
from tests.support.marginals import WORKLOAD

ZCDP = Budget(epsilon=1.0, delta=1e-9)
SIGNED = Unit(signed=True)
WAYS = pytest.mark.parametrize(
    ("neighbours", "unit", "squared"),
    [("add-remove", EVENT, 1), ("add-remove", SIGNED, 1), ("replace-one", EVENT, 2), ("replace-one", SIGNED, 4)],
)


def mechanism(
    *,
    horizon: int | None = 9,
    neighbours: Neighbours = "add-remove",
    unit: Unit = EVENT,
    growth: float = 2.0,
    weights: tuple[float, ...] | None = None,
    early: int = 0,
) -> Refreshed:
    common = {"workload": WORKLOAD, "budget": ZCDP, "horizon": horizon, "neighbours": neighbours, "unit": unit}
    return Refreshed(**common, growth=growth, weights=weights, early=early)  # type: ignore[arg-type]


def run(m: Refreshed, stream: list[IntArray], gate: Gate) -> list[Measured]:
    """All measurements of a stream of counts."""
    state, out = m.init(), []
    for counts in stream:
        state, measured = m.step(state, counts, gate)
        out.append(measured)
    return out


def shown(releases: list[Measured]) -> list[int]:
    """Ticks at which larger tables were measured."""
    return [known.tick for known in releases if known.values.size == WORKLOAD.cells]


def at(cell: int, weight: int = 1) -> IntArray:
    """Counts of one row: the cells of the workload that hold it."""
    row = np.array([divmod(cell, 3)], dtype=np.int32)
    return WORKLOAD.count(row, np.array([weight], dtype=np.int64))


NOTHING = np.zeros(WORKLOAD.cells, dtype=np.int64)
# So many rows that they stand out of any noise of the total here.
BURST = at(0) * 100_000


@WAYS
@pytest.mark.parametrize("horizon", [2, 9, 300, None])
def test_the_claim_is_the_formula_of_the_theorem_and_spends_the_budget(
    neighbours: Neighbours, unit: Unit, squared: int, horizon: int | None
) -> None:
    m = mechanism(horizon=horizon, neighbours=neighbours, unit=unit)
    drawn = [float(v) for v in (*m.at_ticks, *m.at_refreshes) if v > 0]
    assert len(drawn) == 6  # total, two tables of one column twice, the pair
    assert m.claim().rho == sum(squared / (2 * Fraction(v) ** 2) for v in drawn)
    assert m.claim().fits(ZCDP)
    assert float(m.claim().rho / ZCDP.rho) > 1 - 1e-9


def test_without_larger_tables_there_is_nothing_to_share_by_size() -> None:
    """What is refused then is refused in words alone, without warnings of a library."""
    assert by_size(Workload.all_up_to(1, sizes=(2, 3))).tolist() == [1.0, 1.0, 1.0]


def test_large_tables_get_more_and_others_lose_little() -> None:
    """Of tables beyond the mean number of cells, the more the larger they are."""
    workload = Workload.all_up_to(2, sizes=(2, 2, 2, 3, 20, 40))
    now = Refreshed(workload=workload, budget=ZCDP, horizon=9)
    before = replace(now, weights=(1.0,) * workload.order.size)
    assert now.claim().fits(ZCDP)
    ratio = (now.at_refreshes[workload.order == 2] / before.at_refreshes[workload.order == 2]) ** 2
    cells = workload.lengths[workload.order == 2]
    small = cells <= cells.mean()
    assert small.any()
    assert ratio[small] == pytest.approx(ratio[0])
    assert 1 < ratio[0] < 1.05 + 1e-6
    order = np.argsort(cells[~small])
    assert np.all(np.diff(ratio[~small][order]) <= 1e-12)
    assert ratio.min() < 0.9
    assert now.at_ticks == pytest.approx(before.at_ticks, rel=1e-3)


@pytest.mark.parametrize(
    "sizes", [(3, 3), (2, 2, 2), (2, 200), (2, 3, 40, 41), (2,) * 19 + (13, 29, 43), (5, 5, 5, 60)]
)
def test_no_table_loses_more_than_a_twentieth_of_its_share(sizes: tuple[int, ...]) -> None:
    workload = Workload.all_up_to(2, sizes=sizes)
    times = by_size(workload)
    assert times.min() == 1
    assert times[workload.order == 2].mean() <= 1.05 + 1e-6
    assert np.all(times[workload.order < 2] == 1)


def test_what_is_told_at_every_tick_is_about_as_exact_as_if_all_tables_were() -> None:
    """Where there are eight columns or more; with fewer, refreshes cost more of it."""
    for columns, most in ((2, 1.57), (4, 1.35), (6, 1.15), (8, 1.05), (14, 1.05)):
        common = {"workload": Workload.all_up_to(2, sizes=(6,) * columns), "budget": ZCDP, "horizon": 245}
        now, then = Refreshed(**common), Marginals(**common, split="equal")  # type: ignore[arg-type]
        often = now.workload.order == 1
        worst = max((now.variance(t) / then.variance(t))[often].max() for t in range(30, 245, 9))
        assert most / 1.1 < worst**0.5 < most


def test_grids_of_a_place_lose_nothing_at_refreshes_where_tables_are_few() -> None:
    workload = Workload.all_up_to(2, sizes=(3, 3, 16))
    (_, plain), (_, grids) = (
        at_refreshes(workload, weights=weights) for weights in ((1.0,) * 7, (1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0))
    )
    singles = workload.order == 1
    assert plain[singles].sum() == pytest.approx(0.13)
    assert grids[singles].sum() == pytest.approx(0.22)


@pytest.mark.sparing(5)
@WAYS
@pytest.mark.parametrize(
    ("weights", "early"),
    [(None, 0), ((1.0, 0.2, 3.0, 0.5), 0), (None, 2)],
    ids=["even", "weighted", "bursts"],
)
def test_worst_path_cost_on_exhaustive_neighbours_equals_the_claim(
    neighbours: Neighbours, unit: Unit, squared: int, weights: tuple[float, ...] | None, early: int
) -> None:
    """Given the same answers, one event at any tick costs at most the claim, and nearly that much somewhere."""
    m, worst = mechanism(neighbours=neighbours, unit=unit, weights=weights, early=early), Fraction(0)
    weights = (1, -1) if unit.signed else (1,)
    events = [at(cell, weight) for cell in range(6) for weight in weights]
    bursts = [BURST * {3: early, 7: 2 * early, 8: 9 * early}.get(t, 0) for t in range(9)]
    for tick, first in itertools.product(range(9), (NOTHING, events[0])):
        quiet, one = [at(t % 6) + bursts[t] for t in range(9)], first + bursts[tick]
        stream = [*quiet[:tick], one, *quiet[tick + 1 :]]
        others = [one + event for event in events] if neighbours == "add-remove" else []
        if neighbours == "replace-one" and first.any():
            others = [event + bursts[tick] for event in events]
        tracing = TracingGate(SeededGate(1))
        releases = run(m, stream, tracing)
        assert shown(releases) == ([0, 1, 2, 3, 7, 8] if early else [0, 1, 2, 5, 8])
        for other in others:
            replaying = ReplayingGate(tracing.trace)
            again = run(m, [*stream[:tick], other, *stream[tick + 1 :]], replaying)
            assert all(np.array_equal(a.values, b.values) for a, b in zip(releases, again, strict=True))
            worst = max(worst, path_cost(tracing.trace, replaying.trace)[0])
    assert worst <= m.claim().rho
    # Of tables in which a replaced row moves two cells, the total is none.
    spare = 0.045 if (neighbours, unit) == ("replace-one", EVENT) else 0.003
    assert float(worst) > (1 - spare) * float(m.claim().rho)


def test_small_tables_are_known_at_every_tick_and_larger_ones_at_refreshes() -> None:
    m, rng = mechanism(), np.random.default_rng(0)
    stream = [
        WORKLOAD.count(rng.integers(0, (2, 3), size=(n, 2)).astype(np.int32)) for n in (5, 0, 9, 1, 4, 2, 0, 8, 3)
    ]
    exact = np.cumsum(stream, axis=0)
    assert [t for t in range(9) if m.times.comes(t)] == [0, 1, 2, 5, 8]
    for tick, measured in enumerate(run(m, stream, ExactGate())):
        assert measured.workload.marginals == (WORKLOAD.marginals if m.times.comes(tick) else WORKLOAD.marginals[:3])
        assert np.allclose(measured.values, exact[tick][: measured.values.size], atol=m.resolution)
        assert np.array_equal(measured.variance, m.variance(tick)[: len(measured.variance)])


def test_bursts_bring_refreshes_early_and_no_more_than_there_is_room_for() -> None:
    """A tick is a burst if the total, which is exact here, moves by more than a half of itself."""
    m = mechanism(horizon=64, growth=1.5, early=2)
    planned = [0, 1, 2, 4, 6, 9, 14, 22, 34, 51, 63]
    assert [t for t in range(64) if m.times.comes(t)] == list(m.times.up_to(63).ticks) == planned

    def ticks(bursts: dict[int, int], how: Refreshed = m) -> list[int]:
        return shown(run(how, [at(1) * (1 + bursts.get(t, 0)) for t in range(64)], ExactGate()))

    assert ticks({}) == planned
    assert ticks({30: 100_000}) == [*planned[:8], 30, 51, 63]  # not again after 34
    assert ticks({30: 100_000, 40: 40_000}) == [*planned[:8], 30, 51, 63]  # the second one is less than half
    assert ticks({30: 100_000, 40: -60_000}) == [*planned[:8], 30, 40, 63]  # what goes is a burst, too
    assert ticks({30: -100_000, 40: -40_000}) == [*planned[:8], 30, 51, 63]
    many = {30: 100_000, 31: 200_000, 32: 400_000, 33: 800_000, 50: 3_000_000}
    assert ticks(many) == [*planned[:8], 30, 31, 50, 63]  # there is room again, as one was due after 34
    assert ticks(many, mechanism(horizon=64, growth=1.5)) == planned
    assert len(m.larger.weights) == len(planned) + 2
    assert mechanism(horizon=9, growth=1.1, early=2).times.spare == 0  # every tick has a refresh
    endless = run(mechanism(horizon=None, early=2), [at(1) + BURST * (t == 9) for t in range(20)], ExactGate())
    assert shown(endless) == [0, 1, 3, 7, 9]  # not after 15, as 9 came in its place


def test_whether_tables_are_refreshed_depends_on_answers_alone() -> None:
    """The same answers to other counts: the same questions come at the same ticks."""
    m = mechanism(horizon=30, early=2)
    tracing = TracingGate(SeededGate(2))
    releases = run(m, [at(t % 6) + BURST * (t in (12, 25)) for t in range(30)], tracing)
    assert {12, 25} < {*shown(releases)}
    replayed = run(m, [BURST * (t in (8, 17)) for t in range(30)], ReplayingGate(tracing.trace))
    assert [a.values.tolist() for a in replayed] == [b.values.tolist() for b in releases]


def test_noise_after_a_burst_is_as_stated() -> None:
    """Of values before and after it, and between two ticks, with refreshes as they came."""
    wide = Workload(sizes=(3000, 2), marginals=((), (0,), (1,), (0, 1)))
    m = Refreshed(workload=wide, budget=ZCDP, horizon=40, growth=1.5, early=2)
    state, gate, zeros, values, pairs = m.init(), SeededGate(4), np.zeros(wide.cells, dtype=np.int64), [], {}
    burst = zeros.copy()
    burst[0] = 10**6  # the total alone: no other cell has anything but noise
    for tick in range(40):
        state, measured = m.step(state, burst if tick == 22 else zeros, gate)
        values.append(measured.marginal((0,))[0])
        if measured.values.size == wide.cells:
            pairs[tick] = measured.marginal((0, 1))[0].reshape(-1)
        assert measured.refreshed is not None
    came = Refreshes(tuple(np.asarray(measured.refreshed).tolist()))
    assert 22 in came.ticks != m.times.up_to(39).ticks
    for s, t in ((20, 22), (22, 22), (25, 39), (39, 39)):
        assert np.mean(values[s] * values[t]) == pytest.approx(m.covariance(s, t, came)[1], rel=0.12)
    assert np.mean(pairs[22] ** 2) == pytest.approx(m.variance(22, came)[3], rel=0.08)
    assert np.array_equal(measured.variance, m.variance(39, came)[: len(measured.variance)])


@pytest.mark.parametrize("horizon", [9, None])
def test_counts_go_on_over_every_refresh_of_a_long_stream(horizon: int | None) -> None:
    ticks = 100 if horizon else 180
    m = mechanism(horizon=horizon and ticks, growth=1.02)
    for tick, measured in enumerate(run(m, [at(1)] * ticks, ExactGate())):
        assert measured.values[0] == pytest.approx(tick + 1, abs=2 * m.resolution)
        if m.times.comes(tick):
            assert measured.values[-6:] == pytest.approx(at(1)[-6:] * (tick + 1), abs=2 * m.resolution)
    assert horizon or sum(m.times.comes(t) for t in range(ticks)) > len(m.larger.weights)  # it has begun anew


@WAYS
@pytest.mark.parametrize("early", [0, 2])
def test_without_end_an_event_is_paid_for_in_one_block_of_refreshes(
    monkeypatch: pytest.MonkeyPatch, neighbours: Neighbours, unit: Unit, squared: int, early: int
) -> None:
    """Wherever it lies beside the refreshes at which the counters begin anew: no path costs more than the claim."""
    monkeypatch.setattr("synthstream.strategies.times._ENDLESS", 3)
    m, worst = mechanism(horizon=None, neighbours=neighbours, unit=unit, growth=1.3, early=early), Fraction(0)
    stream = [at(t % 6) + BURST * (3**t if t in {6, 8, 12} else 0) for t in range(16)]
    tracing = TracingGate(SeededGate(1))
    releases = run(m, stream, tracing)
    begun = [0, 1, 2, 3, 5, 6, 8, 12] if early else [0, 1, 2, 3, 5, 7, 10, 14]  # anew with the fourth and the seventh
    assert shown(releases) == begun
    for tick in range(16):
        change = at(5) if neighbours == "add-remove" else at(5) - at(tick % 6)
        change = change - at(tick % 6) - at(5) if (neighbours, unit) == ("replace-one", SIGNED) else change
        replaying = ReplayingGate(tracing.trace)
        run(m, [*stream[:tick], stream[tick] + change, *stream[tick + 1 :]], replaying)
        worst = max(worst, path_cost(tracing.trace, replaying.trace)[0])
    assert float(m.claim().rho) * 0.5 < worst <= m.claim().rho


class _OneDraw(ExactGate):
    """No noise, but ``amount`` added to one cell of one call."""

    def __init__(self, call: int, cell: int, amount: int) -> None:
        self._left, self._cell, self._amount = call, cell, amount
        self.scale = 0.0

    def answer(self, question: Question) -> IntArray:
        drawn = question.noiseless()
        if self._left == 0:
            drawn[self._cell] += self._amount
            self.scale = float(np.broadcast_to(question.scale, question.size)[self._cell])
        self._left -= 1
        return drawn


def test_covariance_is_that_of_the_implementation() -> None:
    """From what one unit of noise in each draw does to each value, with the scale of that draw."""
    m, amount = mechanism(horizon=9), 2**40
    calls = 9 + 2 * sum(m.times.comes(tick) for tick in range(9))
    for marginal in ((), (0, 1)):  # each is first in the calls that draw it
        effect = np.zeros((9, calls))
        for call in range(calls):
            gate = _OneDraw(call, 0, amount)
            for tick, measured in enumerate(run(m, [NOTHING] * 9, gate)):
                if marginal in measured.workload.marginals:
                    values = measured.marginal(marginal)[0].reshape(-1)
                    effect[tick, call] = values[0] / amount * gate.scale
        q = WORKLOAD.marginals.index(marginal)
        for s, t in itertools.product([0, 1, 2, 5, 8] if q else range(9), repeat=2):
            assert effect[s] @ effect[t] == pytest.approx(m.covariance(s, t)[q], rel=1e-3)


@pytest.mark.parametrize("horizon", [40, None])
def test_released_values_vary_as_stated(horizon: int | None) -> None:
    """Also of tables of one column, whose values between refreshes join two counters."""
    wide = Workload(sizes=(4000, 2), marginals=((), (0,), (1,), (0, 1)))
    m = Refreshed(workload=wide, budget=ZCDP, horizon=horizon, growth=1.5)
    state, gate, zeros, values = m.init(), SeededGate(3), np.zeros(wide.cells, dtype=np.int64), []
    for _ in range(40):
        state, measured = m.step(state, zeros, gate)
        values.append(measured.marginal((0,))[0])
    for s, t in ((0, 0), (20, 20), (36, 38), (38, 38), (39, 39)):
        assert np.mean(values[s] * values[t]) == pytest.approx(m.covariance(s, t)[1], rel=0.12)


@pytest.mark.parametrize(("horizon", "most"), [(250, 1.7), (1000, 1.35), (1500, 1.25), (5000, 1.25)])
def test_early_refreshes_of_a_long_horizon_are_not_left_to_noise(horizon: int, most: float) -> None:
    """The first hundredth of the ticks would have three times the standard error of the last ones."""
    m, pair = mechanism(horizon=horizon, growth=1.1), WORKLOAD.place[(0, 1)]
    errors = [float(np.sqrt(m.variance(t)[pair])) for t in (1, 9, horizon // 4, horizon - 2)]
    assert max(errors[:2]) < most * min(errors[2:])


def test_a_refresh_makes_numbers_at_every_tick_more_exact() -> None:
    """The budget of small tables at refreshes is not lost between them."""
    m = mechanism(horizon=100, growth=1.1)
    for tick in (0, 30, 99):
        alone = m.counter.variance(tick, multiplier=float(m.at_ticks[1]))
        assert m.variance(tick)[1] < alone * (0.75 if m.times.comes(tick) else 0.9)


def test_a_fingerprint_is_of_what_decides_how_values_are_encoded() -> None:
    m = mechanism()
    others = [
        replace(m, budget=Budget(epsilon=1.1, delta=1e-9)),
        replace(m, growth=1.9),
        replace(m, early=2),
        replace(m, horizon=10),
        replace(m, horizon=None),
        replace(m, unit=SIGNED),
        replace(m, neighbours="replace-one"),
        replace(m, workload=Workload.all_up_to(2, sizes=(3, 2))),
    ]
    assert len({m.fingerprint(), *(other.fingerprint() for other in others)}) == 9
    assert m.fingerprint() == mechanism().fingerprint()


def test_the_last_refresh_of_a_stream_is_at_its_end() -> None:
    for horizon in (1, 2, 10, 100):
        m = mechanism(horizon=horizon, growth=1.1)
        assert m.times.comes(0)
        assert m.times.comes(horizon - 1)


def test_the_closing_refresh_costs_others_little(monkeypatch: pytest.MonkeyPatch) -> None:
    m = mechanism(horizon=245, growth=1.1)
    without, pair = replace(m), WORKLOAD.place[(0, 1)]
    with monkeypatch.context() as patch:
        patch.setattr("synthstream.strategies.times._CLOSING", 0.0)
        vars(without)["times"] = replace(m.times)
        assert without.variance(0).all()  # it is decided
    ratios = [np.sqrt(m.variance(t)[pair] / without.variance(t)[pair]) for t in (0, 20, 100, 200, 244)]
    assert max(ratios[:-1]) < 1.02
    assert ratios[-1] < 1.05
    assert m.variance(244)[1] < 0.55 * m.variance(243)[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"budget": Budget(epsilon=1.0, delta=0.0)}, "delta must be above 0"),
        ({"growth": 1.0}, "growth must be above 1"),
        ({"workload": Workload.all_up_to(1, sizes=(2, 3))}, "two columns or more"),
        ({"workload": Workload(sizes=(2, 3), marginals=((0, 1),))}, "total"),
        ({"budget": Budget(epsilon=1e-6, delta=1e-12), "horizon": 10**5}, "too small"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(mechanism(), **arguments)  # type: ignore[arg-type]
