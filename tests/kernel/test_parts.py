"""Parts of epochs: when they end, what an event costs whatever is released, and privacy bugs that must be told."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.measured import Measured
from synthstream.privacy import Budget, Neighbours, Unit
from synthstream.strategies.shares import EpochShares
from synthstream.strategies.variances import joint_variance, laplace_variance
from synthstream.synthesizers.contract import DrawTarget
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.simulation import tables
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Candidates, CodeArray, FloatArray, IntArray, Workload
from tests.support.epochs import PURE, WORKLOAD, uniform
from tests.support.gates import ExactGate, ReplayingGate, TraceMismatch, TracingGate, path_cost

TICKS = 19
ROWS = [np.array(row, dtype=np.int32) for row in itertools.product((0, 1), repeat=3)]


@dataclass
class Adaptive:
    """A plan that leans on everything that was released, as a plan may."""

    released: list[float] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    workload: Workload = WORKLOAD

    def parts(self) -> int:
        self.asked.append(len(self.released))
        return 1 + int(abs(sum(self.released))) % 5  # five is one more than there may be

    def guess(self, events: float, singles: FloatArray) -> FloatArray:
        return uniform(self.workload, events + float(np.abs(singles).sum()))

    def number(self, scales: Mapping[int, FloatArray], events: float, shown: FloatArray, *, whole: bool) -> int:
        return int(abs(sum(self.released)) + events + shown.sum()) % 9  # also what there may not be

    def shown(self, found: Mapping[int, FloatArray], guessed: FloatArray, scales: FloatArray) -> FloatArray:
        looked = guessed.sum() + 7 * scales.sum() + sum(float(table.sum()) for table in found.values())
        return np.array([len(found), round(float(looked)), 0])


def mechanism(*, signed: bool = False, neighbours: Neighbours = "add-remove", **settings: Any) -> Epochs:
    facts = {"workload": WORKLOAD, "budget": PURE, "horizon": TICKS, "picks": 2, "unit": Unit(signed=signed)}
    return Epochs(**{**facts, "neighbours": neighbours, **settings})


def run(m: Epochs, stream: list[IntArray], gate: Gate, plan: Adaptive | None = None) -> list[Measured]:
    """One released value after another; counts have the rows of either sign behind them if these are counted."""
    state, out, adaptive = m.init(), list[Measured](), plan or Adaptive()
    for counts in stream:
        state, measured = m.step(state, counts, gate, adaptive)
        adaptive.released += measured.values.tolist()
        out.append(measured)
    return out


def counted(m: Epochs, rows: Sequence[CodeArray], signs: list[int]) -> IntArray:
    made = InEpochs(mechanism=m)
    codes = np.array(rows, dtype=np.int32).reshape(-1, 3)
    weights = np.array(signs, dtype=np.int64) if m.unit.signed else None
    return made.count(codes, weights).dense(made.cells)


def background(m: Epochs) -> list[IntArray]:
    """Some rows at every tick, and many at some, so that parts end early where they follow the rows."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 90, TICKS)
    numbers[[5, 12]] += 0 if m.unit.signed else [3000, 9000]
    return [counted(m, [ROWS[i] for i in rng.integers(0, 8, n)], rng.choice([1, -1], n).tolist()) for n in numbers]


def worst_path_cost(
    *, signed: bool, neighbours: Neighbours = "add-remove", seeds: int = 4
) -> tuple[Fraction, Fraction]:
    """Over an event at every tick and several paths of answers: the largest cost, and the claim."""
    m = mechanism(signed=signed, neighbours=neighbours)
    claim = m.claim().pure
    assert claim is not None
    worst, stream, early = Fraction(0), background(m), False
    for tick, seed in itertools.product(range(TICKS), range(seeds)):
        for before, after in ([], [(ROWS[5], 1)]), ([(ROWS[0], 1)], [(ROWS[7], 1)]), ([(ROWS[0], 1)], [(ROWS[0], -1)]):
            if bool(before) != (neighbours == "replace-one") or (not signed and (*after, (0, 1))[0][1] < 0):
                continue
            here, there = (
                [c + (t == tick) * counted(m, [r for r, _ in own], [s for _, s in own]) for t, c in enumerate(stream)]
                for own in (before, after)
            )
            tracing = TracingGate(SeededGate(seed))
            released = run(m, here, tracing)
            replaying = ReplayingGate(tracing.trace)
            again = run(m, there, replaying)
            assert all(np.array_equal(a.values, b.values) for a, b in zip(released, again, strict=True))
            worst = max(worst, path_cost(tracing.trace, replaying.trace)[1])
            early |= any(len(r.values) > 1 and not m.times.part_ends(r.tick, 4) for r in released)
    assert early  # some part ended by its rows
    return worst, claim


@pytest.mark.sparing(1, 2)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_an_event_costs_no_more_than_the_claim_on_any_path(neighbours: Neighbours, signed: bool) -> None:
    worst, claim = worst_path_cost(signed=signed, neighbours=neighbours)
    assert claim * Fraction(3, 4) < worst <= claim * (1 + Fraction(1, 10**12))


# -- planted bugs: what is wrong with them, and what tells ------------------------------------------------------


Patch = pytest.MonkeyPatch


def part_drawn_twice(patch: Patch) -> None:
    """Each table of one column gets two answers."""
    honest = Epochs._drawn

    def broken(self: Epochs, *asked: Any) -> Any:
        honest(self, *asked)
        return honest(self, *asked)

    patch.setattr(Epochs, "_drawn", broken)


def table_in_two_groups(patch: Patch) -> None:
    """A table gets noise together with others, and once more alone."""
    honest: Any = Epochs._drawn

    def broken(self: Epochs, groups: Any, *asked: Any) -> Any:
        return honest(self, [*groups, (1,)] if groups is self.groups else groups, *asked)

    patch.setattr(Epochs, "_drawn", broken)


def groups_paid_once(patch: Patch) -> None:
    """Two groups cost what the first one does."""
    patch.setattr(Epochs, "groups", property(lambda self: [(1, 2), (3,)]))
    honest, claim = Epochs.groups, Epochs.claim

    def claimed(self: Epochs) -> Any:
        with patch.context() as inner:
            inner.setattr(Epochs, "groups", property(lambda self: honest.__get__(self)[:1]))
            return claim(self)

    patch.setattr(Epochs, "claim", claimed)


def table_of_another_length(patch: Patch) -> None:
    """The cells of all tables of a group are taken for one."""
    honest = Gate.joint
    patch.setattr(Gate, "joint", lambda self, value, cells, scale: honest(self, value, cells=[sum(cells)], scale=scale))


def _after(change: Callable[[Any, Any, IntArray], Any]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        honest = Epochs.step

        def broken(self: Epochs, state: Any, counts: IntArray, gate: Gate, plan: Any) -> Any:
            after, measured = honest(self, state, counts, gate, plan)
            return after | change(state, after, counts), measured

        patch.setattr(Epochs, "step", broken)

    return plant


def open_kept_after_a_part(patch: Patch) -> None:
    """Counts of a part are measured again in the next ones of its epoch."""

    def change(state: Any, after: Any, counts: IntArray) -> Any:
        singles = np.repeat([len(m) == 1 for m in WORKLOAD.marginals], WORKLOAD.lengths)
        kept = np.where(singles, state["open"] + counts[: WORKLOAD.cells], after["open"])
        return {"open": kept if np.any(after["open"]) else after["open"]}

    _after(change)(patch)


def larger_tables_kept_after_an_epoch(patch: Patch) -> None:
    """Larger tables are never cleared."""

    def change(state: Any, after: Any, counts: IntArray) -> Any:
        larger = np.repeat([len(m) == 2 for m in WORKLOAD.marginals], WORKLOAD.lengths)
        return {"open": np.where(larger, state["open"] + counts[: WORKLOAD.cells], after["open"])}

    _after(change)(patch)


def parts_from_exact_counts(patch: Patch) -> None:
    """The number of parts looks at the rows of the epoch before."""
    _after(lambda state, after, counts: {"parts": np.array(1 + int(counts.sum()) % 4)})(patch)


def end_by_exact_rows(patch: Patch) -> None:
    """A part ends when there are enough rows in truth."""
    _after(lambda state, after, counts: {"rows": after["rows"] - 200 * (counts[-1] % 2)})(patch)


def end_by_exact_events(patch: Patch) -> None:
    """The same of events without a sign: of the total."""
    _after(lambda state, after, counts: {"rows": after["rows"] - 2000 * (counts[0] % 2)})(patch)


def rows_that_nobody_pays_for(patch: Patch) -> None:
    """The claim leaves out the rows of either sign."""
    honest = Epochs.claim

    def broken(self: Epochs) -> Any:
        claim = honest(self)
        return replace(claim, pure=(claim.pure or 0) - self.changed / Fraction(float(self.running[1])))

    patch.setattr(Epochs, "claim", broken)


def singles_drawn_again_at_the_end(patch: Patch) -> None:
    """At the end of an epoch tables of one column are measured over all of it, beside their parts."""
    honest = Epochs._larger

    def broken(self: Epochs, *asked: Any) -> IntArray:
        return np.concatenate([np.flatnonzero(self.order == 1), honest(self, *asked)])

    patch.setattr(Epochs, "_larger", broken)


BUGS = [
    (part_drawn_twice, False),
    (table_in_two_groups, False),
    (groups_paid_once, False),
    (table_of_another_length, False),
    (open_kept_after_a_part, False),
    (larger_tables_kept_after_an_epoch, False),
    (parts_from_exact_counts, False),
    (end_by_exact_rows, True),
    (end_by_exact_events, False),
    (rows_that_nobody_pays_for, True),
    (singles_drawn_again_at_the_end, False),
]


@pytest.mark.sparing(4)
@pytest.mark.parametrize(("plant", "signed"), BUGS, ids=lambda bug: getattr(bug, "__name__", ""))
def test_a_planted_bug_costs_more_than_the_claim_or_shows(
    monkeypatch: Patch, plant: Callable[[Patch], None], signed: bool
) -> None:
    plant(monkeypatch)
    try:
        worst, claim = worst_path_cost(signed=signed, seeds=2)
    except TraceMismatch:
        return
    assert worst > claim * (1 + Fraction(1, 10**6))


# -- how many larger tables an epoch measures -----------------------------------------------------------------------

FOUR = Workload.all_up_to(2, sizes=(2, 2, 2, 2))  # six pairs


def cost_of_numbers(neighbours: Neighbours, *, signed: bool = False) -> tuple[Fraction, Fraction, set[int]]:
    """The largest cost over an event at some ticks and paths, the claim, and how many larger tables were measured."""
    m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS, neighbours=neighbours, unit=Unit(signed=signed))
    claim, worst, seen, rng = m.claim().pure, Fraction(0), set[int](), np.random.default_rng(0)
    assert claim is not None

    def rows(codes: IntArray) -> IntArray:
        signs = rng.choice([1, 1, -1], len(codes)) if signed else None
        made = InEpochs(mechanism=m)
        return made.count(codes.astype(np.int32), signs).dense(made.cells)

    stream = [rows(rng.integers(0, 2, (n, 4))) for n in rng.integers(0, 90, TICKS)]
    one, other = (rows(np.full((1, 4), code)) for code in (0, 1))
    for tick, seed in itertools.product(range(0, TICKS, 2), range(6)):
        before = one if neighbours == "replace-one" else np.zeros_like(one)
        here, there = ([c + (t == tick) * own for t, c in enumerate(stream)] for own in (before, other))
        tracing = TracingGate(SeededGate(seed))
        released = run(m, here, tracing, Adaptive(workload=FOUR))
        again = run(m, there, replaying := ReplayingGate(tracing.trace), Adaptive(workload=FOUR))
        assert all(np.array_equal(a.values, b.values) for a, b in zip(released, again, strict=True))
        worst = max(worst, path_cost(tracing.trace, replaying.trace)[1])
        seen |= {sum(len(table) == 2 for table in found.workload.marginals) for found in released}
        for found in released:  # what was packed says how many there were, and so how much noise
            kept = InEpochs(mechanism=m).unpack(found.tick, InEpochs(mechanism=m).pack(found))
            assert np.array_equal(kept.variance, found.variance)
    return worst, claim, seen


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_any_number_of_larger_tables_costs_no_more_than_the_claim(neighbours: Neighbours, signed: bool) -> None:
    worst, claim, seen = cost_of_numbers(neighbours, signed=signed)
    assert claim * Fraction(3, 4) < worst <= claim * (1 + Fraction(1, 10**12))
    assert seen == {0, 1, 2, 3, 4, 5, 6}  # 0: parts of an epoch, and the total alone


def noise_for_the_fewest(patch: Patch) -> None:
    """Many larger tables are measured with the noise of a few."""
    honest: Any = Epochs._drawn
    patch.setattr(Epochs, "_drawn", lambda self, *asked: honest(self, *asked[:-1], self.open_to[0]))


def choices_for_the_fewest(patch: Patch) -> None:
    """Many choices cost each what one of a few does."""
    honest = Epochs.choice_epsilon
    patch.setattr(Epochs, "_larger", _choosing_with(lambda self, number: honest(self, self.open_to[0])))


def _choosing_with(cost: Callable[[Epochs, int], float]) -> Any:
    honest = Epochs._larger

    def broken(self: Epochs, exact: IntArray, guessed: FloatArray, gate: Gate, number: int) -> IntArray:
        class Dearer:
            def choose(self_, scores: IntArray, *, sensitivity: int, epsilon: float) -> int:  # noqa: N805
                return gate.choose(scores, sensitivity=sensitivity, epsilon=cost(self, number))

        return honest(self, exact, guessed, Dearer(), number)  # type: ignore[arg-type]

    return broken


def number_from_exact_counts(patch: Patch) -> None:
    """How many tables are measured looks at the rows of the epoch."""
    honest = Epochs._larger

    def broken(self: Epochs, exact: IntArray, guessed: FloatArray, gate: Gate, number: int) -> IntArray:
        return honest(self, exact, guessed, gate, 3 + int(exact[0]) % 3)

    patch.setattr(Epochs, "_larger", broken)


def one_table_more(patch: Patch) -> None:
    """One larger table more than was paid for."""
    honest = Epochs._larger

    def broken(self: Epochs, *asked: Any) -> IntArray:
        found = honest(self, *asked)
        return np.union1d(found, np.flatnonzero(self.order == 2)[: found.size + 1])

    patch.setattr(Epochs, "_larger", broken)


@pytest.mark.parametrize(
    "plant",
    [
        noise_for_the_fewest,
        choices_for_the_fewest,
        number_from_exact_counts,
        one_table_more,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_bug_in_how_many_are_measured_shows(monkeypatch: Patch, plant: Callable[[Patch], None]) -> None:
    plant(monkeypatch)
    try:
        worst, claim, _ = cost_of_numbers("add-remove")
    except TraceMismatch:
        return
    assert worst > claim * (1 + Fraction(1, 10**6))


def test_the_fingerprint_covers_every_number_there_may_be(monkeypatch: Patch) -> None:
    m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
    before, honest = m.fingerprint(), m.scales
    for number in m.open_to:
        changed = {k: scales * (1 + (k == number) / 8) for k, scales in honest.items()}
        other = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
        other.__dict__["scales"] = changed
        assert other.fingerprint() != before


def test_the_fingerprint_covers_when_parts_end(monkeypatch: Patch) -> None:
    m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
    before = m.fingerprint()
    for name, changed in (("_MOST_PARTS", 7), ("_PER", {False: 7.0}), ("_BEYOND", {False: 7.0})):
        with monkeypatch.context() as patch:
            patch.setattr(f"synthstream.kernel.epochs.{name}", changed)
            assert m.fingerprint() != before


def test_the_claim_is_that_of_the_dearest_number() -> None:
    for dear in range(1, 7):
        m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
        assert m.open_to == (1, 2, 3, 4, 5, 6)
        larger = m.order == 2
        m.__dict__["scales"] = {k: np.where(larger & (k == dear), s / 2, s) for k, s in m.scales.items()}
        assert (m.claim().pure or 0) > Fraction(11, 10)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_claim_is_the_formula_of_the_theorem_whatever_the_shares(neighbours: Neighbours) -> None:
    """Every table has a scale of its own here: the dearest part, and the dearest tables, of any number count."""
    rng, dear = np.random.default_rng(0), set[int]()
    for _ in range(30):
        m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS, neighbours=neighbours)
        m.__dict__["scales"] = {k: s * np.exp(rng.normal(size=s.size)) for k, s in m.scales.items()}
        m.__dict__["groups"] = [(1, 3), (2, 4)]
        a, costs = Fraction(m.changed), list[Fraction]()
        each = {k: [a / Fraction(b) for b in s[m.order > 0].tolist()] for k, s in m.scales.items()}
        for k, found in each.items():
            singles, larger = sum(found[:2], Fraction(0)), sorted(found[4:], reverse=True)[:k]
            choices = k * Fraction(m.choice_epsilon(k))
            costs.append(max(singles, sum(each[6][:2], Fraction(0))) + choices + sum(larger, Fraction(0)))
        assert m.claim().pure == a / Fraction(m.total_multiplier) + max(costs)
        dear.add(costs.index(max(costs)))
    assert len(dear) > 3
    assert [m.choice_epsilon(k) > 0 for k in m.open_to] == [True] * 5 + [False]


def test_noise_that_cannot_be_drawn_for_some_number_is_refused_before_the_first_draw(monkeypatch: Patch) -> None:
    m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
    widest = sorted(float(scales.max()) for scales in m.scales.values())
    for most, refused in ((widest[0] * 1.01, True), (widest[-1] * 0.99, True), (widest[-1] * 1.01, False)):
        monkeypatch.setattr("synthstream.kernel.epochs.LARGEST_SCALE", most)
        with pytest.raises(ValueError, match="too small") if refused else nullcontext():
            Epochs(workload=FOUR, budget=PURE, horizon=TICKS)


@pytest.mark.parametrize(("picks", "numbers"), [(3, (3,)), (99, (15,)), (None, (1, 2, 3, 4, 5, 6, 8, 10, 13, 15))])
def test_which_numbers_there_may_be_is_known_beforehand(picks: int | None, numbers: Any) -> None:
    six = Workload.all_up_to(2, sizes=(2,) * 6)
    m = Epochs(workload=six, budget=PURE, horizon=TICKS, picks=picks)
    assert (m.open_to, "shown" in m.init()) == (numbers, len(numbers) > 1)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 9])
def test_whatever_number_is_measured_the_budget_is_spent_and_no_more(columns: int, neighbours: Neighbours) -> None:
    workload = Workload.all_up_to(2, sizes=(2, 3, 4)[: min(columns, 3)] + (2,) * (columns - 3))
    for signed in (False, True):
        m = Epochs(workload=workload, budget=PURE, horizon=TICKS, neighbours=neighbours, unit=Unit(signed=signed))
        assert 1 - 1e-9 < float(m.claim().pure or 0) <= 1


def test_the_claim_counts_a_part_at_the_price_of_the_largest_number(monkeypatch: Patch) -> None:
    """Its tables of one column are measured before a smaller number can be named, and with the noise of the largest."""
    singles, larger = (np.where(FOUR.order == order, 1.0, 0.0) for order in (1, 2))
    for dear, claimed in ((0.1, 0.1 + 0.1 + 0.05 + 0.5), (0.2, 0.1 + 0.2 + 0.05 + 0.5)):
        shares = {1: EpochShares(0.1, 0.05, 0.1 * singles + 0.5 * larger)}
        shares |= {6: EpochShares(0.1, 0.0, dear * singles + 0.01 * larger)}
        monkeypatch.setattr("synthstream.kernel.epochs.in_epochs", lambda *_, found=shares, **__: found)
        m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
        assert float(m.claim().pure or 0) == pytest.approx(claimed)
        tracing = TracingGate(ExactGate())
        run(m, [FOUR.count(np.zeros((9, 4), dtype=np.int32))] * TICKS, tracing, Told(pieces=2, workload=FOUR))
        drawn = [call for call in tracing.trace if call.kind == "joint"]
        assert {round(1 / float(np.max(call.scale)), 6) for call in drawn} == {0.1, dear}


def test_what_an_epoch_showed_is_kept_for_the_next() -> None:
    m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
    state, _ = m.step(m.init(), FOUR.count(np.zeros((50, 4), dtype=np.int32)), SeededGate("0"), Adaptive(workload=FOUR))
    assert state["shown"][0] in m.open_to


def test_two_numbers_are_open_where_there_are_two_larger_tables() -> None:
    two = Workload(sizes=(2, 2, 2), marginals=((), (0,), (0, 1), (1, 2)))
    m, plan = Epochs(workload=two, budget=PURE, horizon=1), Told(workload=two)
    assert m.open_to == (1, 2)
    run(m, [two.count(np.zeros((9, 3), dtype=np.int32))], ExactGate(), plan)
    assert plan.showed == [[0.0] * 3]


def test_a_plan_is_told_the_events_of_the_epoch_alone() -> None:
    """By the released total, and with what was guessed, and with the scales of the number that was measured."""
    m, told = Epochs(workload=FOUR, budget=PURE, horizon=TICKS), list[tuple[float, float]]()
    wholes, parts = list[bool](), list[bool]()

    @dataclass
    class Telling(Adaptive):
        def number(self, scales: Mapping[int, FloatArray], events: float, shown: FloatArray, *, whole: bool) -> int:
            assert scales is m.spreads
            self.released.append(events)
            wholes.append(whole)
            return 1 + len(told) % 6

        def shown(self, found: Mapping[int, FloatArray], guessed: FloatArray, scales: FloatArray) -> FloatArray:
            assert np.array_equal(scales, m.spreads[len(found)])
            told.append((self.released[-1], float(guessed[FOUR.slice_of(())][0])))
            return np.zeros(3)

    plan, state, row = Telling(workload=FOUR), m.init(), FOUR.count(np.zeros((1, 4), dtype=np.int32))
    for tick in range(TICKS):
        state, measured = m.step(state, row * (tick + 1), ExactGate(), plan)
        parts += [int(measured.since[1]) > m.times.begin(tick)] if m.times.ends(tick) else []
    assert wholes == [not several for several in parts]
    assert {*parts} == {False, True}
    ends = np.array([0, *m.times.ended(TICKS)])
    expected = np.diff(ends * (ends + 1) // 2).tolist()
    # The guess of this plan adds the last part of its four tables of one column.
    assert [number for number, _ in told] == expected
    assert all(guessed > events for (_, guessed), events in zip(told, expected, strict=True))


def test_choices_expect_the_noise_that_is_drawn(monkeypatch: Patch) -> None:
    honest, seen = Candidates.expected_distances, list[FloatArray]()

    def noted(self: Candidates, guess: FloatArray, noise: FloatArray, **how: Any) -> Any:
        seen.append(noise)
        return honest(self, guess, noise, **how)

    monkeypatch.setattr(Candidates, "expected_distances", noted)
    m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
    run(m, [FOUR.count(np.zeros((9, 4), dtype=np.int32))] * TICKS, ExactGate(), Told(workload=FOUR))
    assert len(seen) == 2 * len(m.times.ended(TICKS))
    for noise in seen:  # the mean size of Laplace noise is its scale, but for whole numbers
        assert noise == pytest.approx([math.sqrt(laplace_variance(b) / 2) for b in m.scales[2][m.order == 2]])


@pytest.mark.parametrize("seed", range(3))
def test_the_noise_of_a_table_is_told_as_it_was_drawn(seed: int) -> None:
    m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS)
    stream = [FOUR.count(np.zeros((10, 4), dtype=np.int32))] * TICKS
    found = run(m, stream, tracing := TracingGate(SeededGate(seed)), Adaptive(workload=FOUR))
    drawn = iter(
        [call for call in tracing.trace if call.kind == "joint" or (call.kind, call.value.size) == ("laplace", 4)]
    )
    for measured in found:
        if (0,) in measured.workload.marginals:
            together = joint_variance(np.full(4, 2), float(np.max(next(drawn).scale)))
            assert measured.variance[measured.workload.order == 1] == pytest.approx(together)
        for q in np.flatnonzero(measured.workload.order == 2):
            scale = float(np.max(next(drawn).scale))
            assert measured.variance[q] == pytest.approx(m.counter.noise_variance(scale))
        total = m.counter.variance(measured.tick, multiplier=m.total_multiplier)
        assert measured.variance[measured.workload.place[()]] == total
    assert next(drawn, None) is None


# -- when parts end ---------------------------------------------------------------------------------------------


@dataclass
class Fixed(Adaptive):
    """A plan with always as many parts."""

    pieces: int = 1

    def parts(self) -> int:
        self.asked.append(self.pieces)
        return self.pieces


@pytest.mark.parametrize(
    ("number", "ends"),
    [
        (-3, [11, 17, 26]),
        (0, [11, 17, 26]),
        (1, [11, 17, 26]),
        (2, [11, 14, 17, 22, 26]),
        (9, [11, 13, 14, 16, 17, 20, 22, 24, 26]),
    ],
)
def test_parts_of_an_epoch_are_even_and_their_number_is_asked_for_once(number: int, ends: list[int]) -> None:
    m, plan, found = mechanism(horizon=None), Fixed(pieces=number), list[int]()
    state = m.init()
    row = WORKLOAD.count(ROWS[3].reshape(1, 3))
    for tick in range(27):
        state, measured = m.step(state, row, ExactGate(), plan)
        if len(measured.values) > 1:
            since = dict(zip(measured.workload.marginals, measured.since.tolist(), strict=True))
            assert measured.marginal((0,))[0].sum() == tick + 1 - since[(0,)]
            assert since[(0,)] == (found[-1] + 1 if found else 0)
            assert ((0, 1) in since or (0, 2) in since or (1, 2) in since) == m.times.ends(tick)
            assert {begun for table, begun in since.items() if len(table) == 2} <= {m.times.begin(tick)}
            found.append(tick)
    assert found[-len(ends) :] == ends
    assert len(plan.asked) == sum(m.times.begin(tick) == tick for tick in range(27))


@dataclass
class Told(Fixed):
    """Notes what a plan is told of each epoch that ends."""

    events: list[tuple[float, ...]] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    showed: list[list[float]] = field(default_factory=list)

    def number(self, scales: Mapping[int, FloatArray], events: float, shown: FloatArray, *, whole: bool) -> int:
        self.events.append((events,))
        self.whole.append(whole)
        self.showed.append(shown.tolist())
        return 2

    def guess(self, events: float, singles: FloatArray) -> FloatArray:
        self.events[-1] += (events, *singles.tolist())
        return uniform(self.workload, events)

    def shown(self, found: Mapping[int, FloatArray], guessed: FloatArray, scales: FloatArray) -> FloatArray:
        self.events[-1] += tuple(float(table.sum()) for table in found.values())
        return np.full(3, float(len(self.events)))


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_plan_is_told_of_the_epoch_that_ends_and_of_nothing_before_it(pieces: int) -> None:
    m, plan = Epochs(workload=FOUR, budget=PURE, horizon=TICKS), Told(pieces=pieces, workload=FOUR)
    run(m, [FOUR.count(np.zeros((10, 4), dtype=np.int32))] * TICKS, ExactGate(), plan)
    lengths = np.diff([0, *m.times.ended(TICKS)]).tolist()
    # Of single columns what the last part counts is told, four tables of it; two larger tables count the whole epoch.
    assert plan.events == [
        (10.0 * n, 10.0 * n, *[10.0 * max(n // pieces, 1), 0.0] * 4, 10.0 * n, 10.0 * n) for n in lengths
    ]
    assert plan.whole == [pieces == 1 or n == 1 for n in lengths]
    assert plan.showed == [[float(k)] * 3 for k in range(len(lengths))]


def test_a_plan_is_told_of_events_and_not_of_rows_of_either_sign() -> None:
    for signs, told in (([1] * 7 + [-1] * 3, 4.0), ([], 0.0), ([-1], -1.0)):
        m = Epochs(workload=FOUR, budget=PURE, horizon=TICKS, unit=Unit(signed=True))
        made, plan = InEpochs(mechanism=m), Told(workload=FOUR)
        counts = made.count(np.zeros((len(signs), 4), dtype=np.int32), np.array(signs, dtype=np.int64))
        run(m, [counts.dense(made.cells)] * TICKS, ExactGate(), plan)
        for n, events in zip(np.diff([0, *m.times.ended(TICKS)]), plan.events, strict=True):
            assert events[0] == events[1] == max(told * n, 1.0)
            assert events[10] == told * n


def test_equal_rows_that_come_as_one_are_as_many_rows_of_either_sign() -> None:
    m = mechanism(signed=True)
    together, apart = counted(m, ROWS[:2], [3, -2]), counted(m, [*ROWS[:1] * 3, *ROWS[1:2] * 2], [1, 1, 1, -1, -1])
    assert np.array_equal(together, apart)
    assert together[-1] == 5


def test_signed_tables_of_one_column_are_no_staler_than_a_tenth_of_all_rows() -> None:
    """Rows that move while their number stands still: parts follow the rows of either sign."""
    m = mechanism(signed=True, horizon=2000)
    plan, state, last, stale = Fixed(), m.init(), 0, []
    for tick in range(2000):
        counts = counted(m, [ROWS[0]] * 40 + [ROWS[7]] * 40, [-1] * 40 + [1] * 40)
        state, measured = m.step(state, counts, ExactGate(), plan)
        assert measured.rows == 80 * (tick + 1)
        if len(measured.values) > 1:
            last = tick + 1
        stale.append((80 * (tick + 1 - last), 80 * (tick + 1)))
    # Of a few rows so many that their number can be told; and one tick more.
    noise = 3 * np.sqrt(2 * m.counter.variance(1999, multiplier=float(m.running[1])))
    assert all(open_rows <= max(rows / 10, noise) + 80 for open_rows, rows in stale)
    assert max(open_rows / rows for open_rows, rows in stale[1000:]) < 0.101
    assert sum(open_rows == 0 for open_rows, _ in stale) < 60


@pytest.mark.parametrize(("epsilon", "gate", "some"), [(1.0, SeededGate(0), 80), (1000.0, ExactGate(), 1)])
def test_parts_of_signed_events_end_where_the_theorem_says(epsilon: float, gate: Gate, some: int) -> None:
    """By the rows of either sign as they were released, and by how far off their difference may be."""
    m = mechanism(signed=True, horizon=200, budget=Budget(epsilon=epsilon, delta=0.0))
    state, begun, ended, early, rng = m.init(), 0, 0.0, 0, np.random.default_rng(0)
    counter, multiplier, a_tenth = m.counter, float(m.running[-1]), 0
    for tick in range(200):
        counts = counted(m, [ROWS[0]] * some, rng.choice([1, -1], some).tolist())
        state, measured = m.step(state, counts, gate, Fixed())
        noise = counter.variance(tick, multiplier=multiplier)
        if begun:
            noise += counter.variance(begun - 1, multiplier=multiplier)
            noise -= 2 * counter.covariance(begun - 1, tick, multiplier=multiplier)
        more, ends = (measured.rows or 0.0) - ended, m.times.ends(tick)
        beyond = more > max(ended / 10, 3 * noise**0.5)
        assert (len(measured.values) > 1) == (ends or beyond)
        early, a_tenth = early + (beyond and not ends), a_tenth + (more == ended / 10 > 3 * noise**0.5 and not ends)
        if ends or beyond:
            begun, ended = tick + 1, measured.rows or 0.0
    assert early > 9
    assert bool(a_tenth) == (epsilon > 1)  # no more than a tenth: the part goes on


@pytest.mark.parametrize(("epsilon", "gate", "doubled"), [(1.0, SeededGate(0), False), (1000.0, ExactGate(), True)])
def test_parts_of_events_without_a_sign_end_when_the_total_has_doubled(
    epsilon: float, gate: Gate, doubled: bool
) -> None:
    """As it was released, since the begin of the part, and by more than its noise: so a stream that was quiet for long
    is not dark until the epoch ends."""
    m = mechanism(horizon=200, budget=Budget(epsilon=epsilon, delta=0.0))
    state, begun, ended, early, exactly = m.init(), 0, 0.0, list[int](), 0
    for tick in range(200):
        number = 0 if tick < 90 else 8000 if tick == 95 else 1000
        state, measured = m.step(state, counted(m, [ROWS[0]] * number, [1] * number), gate, Fixed())
        noise = m.counter.variance(tick, multiplier=m.total_multiplier)
        if begun:
            noise += m.counter.variance(begun - 1, multiplier=m.total_multiplier)
            noise -= 2 * m.counter.covariance(begun - 1, tick, multiplier=m.total_multiplier)
        total = float(measured.values[0])
        more, ends = total - ended, m.times.ends(tick)
        beyond = more > max(ended, 6 * noise**0.5)
        assert (len(measured.values) > 1) == (ends or beyond)
        exactly += more == ended > 6 * noise**0.5 and not ends
        early += [tick] if beyond and not ends else []
        if ends or beyond:
            begun, ended = tick + 1, total
    assert len(early) > 2
    assert 95 in early  # the burst is measured with its own tick
    assert bool(exactly) == doubled  # no more than twice: the part goes on


def test_no_part_of_a_steady_stream_ends_early() -> None:
    m = mechanism(horizon=200)
    released = run(m, [counted(m, [ROWS[0]] * 300, [1] * 300)] * 200, SeededGate(0), Fixed())
    assert [r.tick + 1 for r in released if len(r.values) > 1] == m.times.ended(200)


def test_a_plan_of_releases_survives_the_store() -> None:
    """What was packed is unpacked: the part's first tick, and the rows of either sign."""
    for signed in (False, True):
        m = mechanism(signed=signed)
        made = InEpochs(mechanism=m)
        for measured in run(m, background(m), SeededGate(3)):
            again = made.unpack(measured.tick, made.pack(measured))
            assert again.rows == measured.rows
            assert again.facts() == measured.facts()
            assert all(np.array_equal(a, b) for a, b in zip(again.numbers(), measured.numbers(), strict=True))
            shorter = replace(measured, rows=None)
            assert np.array_equal(shorter.numbers()[0], measured.numbers()[0]) != signed  # the chain holds the rows


def test_a_tick_that_is_taken_up_again_comes_to_the_same_state() -> None:
    """The answers that were written down are given again: same questions, same parts, same state."""
    m = mechanism(signed=True)
    state, released = m.init(), list[float]()
    for tick, counts in enumerate(background(m)):
        tracing = TracingGate(SeededGate(tick))
        after, measured = m.step(state, counts, tracing, Adaptive(list(released)))
        again, found = m.step(state, counts, ReplayingGate(tracing.trace), Adaptive(list(released)))
        assert again.keys() == after.keys()
        assert all(np.array_equal(again[name], after[name]) for name in after)
        assert np.array_equal(found.numbers()[0], measured.numbers()[0])
        kinds = [call.kind for call in tracing.trace]
        assert kinds == ["laplace"] + ["joint"] * ((0,) in measured.workload.marginals) + (
            (["choose"] * 2 + ["laplace"] * 2) if m.times.ends(tick) else []
        )
        state = after
        released += measured.values.tolist()


@pytest.mark.sparing(1)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_what_is_audited_of_signed_events_has_the_rows_of_either_sign(neighbours: Neighbours) -> None:
    m = mechanism(signed=True, neighbours=neighbours)
    targets = InEpochs(mechanism=m).audit_targets()
    assert [part.name.split(",")[0] for part in targets.parts] == [
        "the number of events",
        "the rows of either sign",
        "5 tables measured in one tick",
    ]
    drawn = targets.parts[-1]
    assert isinstance(drawn, DrawTarget)
    sides = [np.array([drawn.draw(side, SeededGate(f"{side} {run}")) for run in range(300)]) for side in (0, 1)]
    assert sides[0].shape == (300, 3)  # one group of single columns, and two larger tables
    assert np.min(sides) == 0
    assert np.max(sides) == drawn.shift[0]
    for likely, seldom in ((sides[1] == drawn.shift, sides[0] == drawn.shift), (sides[0] == 0, sides[1] == 0)):
        assert np.all(likely.mean(axis=0) > 1.5 * seldom.mean(axis=0))
    paid = 2 * m.changed / m.total_multiplier + m.nearest() * m.choice_epsilon(m.nearest())
    assert drawn.claimed + paid == pytest.approx(1)


def test_simulated_parts_of_signed_events_end_as_rows_grow() -> None:
    """Where rows come evenly: at a tenth more, as is expected of the errors that are forecast."""
    m = mechanism(signed=True, horizon=400, workload=Workload.all_up_to(1, sizes=WORKLOAD.sizes))
    stepped = tables._stepped(m, 400)
    assert set(m.times.ended(400)) < set(stepped)
    assert max(b / a for a, b in itertools.pairwise(stepped) if a > 20) < 1.16
    weights = np.diff([0, *stepped]) / 400
    expected = InEpochs(mechanism=m).expected_variance(399)
    assert expected[1] * np.sum(weights**2) == pytest.approx(m.variance(0)[1], rel=0.35)
