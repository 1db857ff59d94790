"""Rows under public constraints: none violates one, joint counts are near the truth, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from synthstream.config.config import StreamConfig
from synthstream.constraints import ALL_OFFERED, Grids, Group, joined
from synthstream.fit import aims as aims_module
from synthstream.fit.aims import Earlier, aims
from synthstream.fit.blocks import blocks_of, shift
from synthstream.fit.joints import Joint, estimate, with_news
from synthstream.fit.moves import Effort
from synthstream.fit.population import Population, fit
from synthstream.measured import Measured
from synthstream.workload import CodeArray, Workload
from tests.support.configs import number, stream_toml

SIZES = (4, 3, 2, 3, 2)


def noisy(workload: Workload, rows: CodeArray, *, sigma: float, seed: int = 0) -> Measured:
    values = workload.count(rows) + np.random.default_rng(seed).normal(0, sigma, workload.cells)
    return Measured(tick=0, workload=workload, values=values, variance=np.full(len(workload.marginals), sigma**2))


def violating(rows: Population, groups: tuple[Group, ...]) -> int:
    return sum(int((group.places(rows.codes.astype(np.int32)) < 0).sum()) for group in groups)


@st.composite
def constraints(draw: st.DrawFn) -> list[Group]:
    found = []
    for columns in draw(st.lists(st.sampled_from([*combinations(range(5), 2), (0, 2, 3)]), min_size=1, max_size=3)):
        cells = list(product(*(range(SIZES[c]) for c in columns)))
        kept = draw(st.lists(st.sampled_from(cells), min_size=1, unique=True))
        # One combination is allowed by all constraints together.
        found.append(Group.of(columns, np.array([*kept, [0] * len(columns)])))
    return found


@settings(max_examples=30, deadline=None)
@given(
    constraints(),
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.06, np.inf]),
    st.booleans(),
)
def test_no_row_ever_violates_a_constraint(
    listed: list[Group], numbers: list[int], order: int, memory: float, fresh: bool
) -> None:
    groups, rng = joined(listed), np.random.default_rng(len(listed))
    workload, rows = Workload.all_up_to(order, sizes=SIZES), None
    for tick, events in enumerate(numbers):
        # The truth violates them, and so may the rows that a stream begins with.
        true = rng.integers(0, SIZES, (events, 5)).astype(np.int32)
        if rows is None and fresh:
            rows = Population.of(workload, true)
        rows = fit(noisy(workload, true, sigma=3, seed=tick), start=rows, seed=tick, memory=memory, groups=groups)
        assert violating(rows, groups) == 0


def dependent(n: int = 4000, seed: int = 0) -> CodeArray:
    """The first three columns have 7 of 24 combinations."""
    rng = np.random.default_rng(seed)
    allowed = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1], [2, 2, 0], [3, 2, 1], [3, 0, 1]])
    first = allowed[rng.choice(7, n, p=[0.3, 0.05, 0.2, 0.1, 0.15, 0.15, 0.05])]
    return np.column_stack([first, (first[:, 0] + rng.integers(0, 2, n)) % 3, rng.integers(0, 2, n)]).astype(np.int32)


THREE = Group.of((0, 1, 2), np.unique(dependent()[:, :3], axis=0))


def test_places_and_hash() -> None:
    assert THREE.number == 7
    assert THREE.possible(SIZES) == 24
    assert THREE.places(np.array([[0, 0, 0, 2, 1], [0, 2, 0, 0, 0]], dtype=np.int32)).tolist() == [0, -1]
    assert Group.of((2, 1, 0), THREE.combinations[::-1, ::-1]) == THREE


def test_joint_counts_without_noise_are_the_true_ones() -> None:
    rows, workload = dependent(), Workload.all_up_to(2, sizes=SIZES)
    (joint,) = aims(noisy(workload, rows, sigma=1e-3), groups=(THREE,)).joints
    assert np.abs(joint.counts - joint.of_rows(rows)).sum() < 0.01 * len(rows)


def test_rows_without_noise_have_the_true_tables() -> None:
    rows, workload = dependent(), Workload.all_up_to(2, sizes=SIZES)
    true, found = workload.count(rows), fit(noisy(workload, rows, sigma=1e-3), seed=1, groups=(THREE,))
    assert violating(found, (THREE,)) == 0
    assert np.abs(workload.count(found.codes.astype(np.int32)) - true).sum() < 0.01 * len(rows) * len(
        workload.marginals
    )


def test_between_refreshes_rows_follow_what_single_columns_say() -> None:
    """What has come since the larger tables were measured has another mix."""
    workload, before = Workload.all_up_to(2, sizes=SIZES), dependent(4000)
    come = dependent(12_000, seed=1)
    true = np.concatenate([before, come[come[:, 0] > 0][:3000]])
    first, now = noisy(workload, before, sigma=10), noisy(workload, true, sigma=10, seed=1)
    rows = fit(first, seed=0, fresh=True, groups=[THREE])
    then = Earlier(first, shared=np.zeros(len(workload.marginals)))
    for seed in (1, 2, 3, 4):  # a release looks at a quarter of the rows
        rows = fit(now, start=rows, seed=seed, fresh=False, then=then, groups=[THREE])
        assert violating(rows, (THREE,)) == 0
    off = [float(np.abs(rows.counts(workload) - workload.count(true))[workload.slice_of((c,))].max()) for c in range(3)]
    assert max(off) < 120


@settings(max_examples=25, deadline=None)
@given(constraints(), st.integers(0, 2**32), st.sampled_from([0.1, 5.0, 50.0]), st.booleans())
@example([Group.of((0, 1, 2), np.array([[0, 0, 0], [3, 2, 1]]))], 0, 50.0, False)
def test_between_refreshes_of_few_events_all_numbers_are_finite(
    listed: list[Group], seed: int, sigma: float, signed: bool
) -> None:
    """Noise may say that all rows have a code of which there were none, or that no combination has."""
    groups, rng, workload = joined(listed), np.random.default_rng(seed), Workload.all_up_to(2, sizes=SIZES)
    true = rng.integers(0, SIZES, (int(rng.choice([0, 1, 3, 30])), 5)).astype(np.int32)
    first, now = (noisy(workload, true, sigma=sigma, seed=seed + k) for k in range(2))
    then = Earlier(first, shared=np.zeros(len(workload.marginals)), signed=signed)
    rows = fit(first, seed=0, fresh=True, groups=groups)
    with np.errstate(all="raise", under="ignore"):
        found = aims(now, start=rows.codes.astype(np.int32), then=then, groups=groups)
    assert all(np.isfinite(margin).all() for margin in found.margins)
    assert all(joint.counts.sum() == pytest.approx(found.rows, abs=0.01) for joint in found.joints)
    assert violating(fit(now, start=rows, seed=1, fresh=False, then=then, groups=groups), tuple(groups)) == 0


def test_rare_combinations_do_not_follow_the_noise_of_a_column_that_changes() -> None:
    """Between refreshes as at them: the first code comes to hold more, and ten rare ones have noise."""
    group, workload = Group.of((0, 1), np.array([[a, a % 2] for a in range(12)])), Workload.all_up_to(2, sizes=(12, 2))
    codes = np.repeat(group.combinations, [27_000, 3_000, *[30] * 10], axis=0)
    values, change, off = workload.count(codes).astype(np.float64), np.zeros(workload.cells), []
    change[[0, 1, 13]] = 600.0
    first = Measured(tick=99, workload=workload, values=values, variance=np.full(4, 4.0))
    for seed in range(20):
        noise = np.zeros(workload.cells)
        noise[1:13] = np.random.default_rng(seed).normal(0, 140, 12)
        variance = np.array([4.0, 140.0**2, 140.0**2, 4.0])
        now = Measured(tick=100, workload=workload, values=values + change + noise, variance=variance)
        (joint,) = aims(now, then=Earlier(first, np.zeros(4), signed=True), groups=(group,)).joints
        off.append(float(np.abs(joint.counts[2:] - 30).mean()))
    assert np.mean(off) < 7


def test_where_all_is_measured_at_every_tick_coarse_grids_follow_those_who_move() -> None:
    """Events come to one half, then to the other. What moves a half drowns in the noise of each of its 128 cells."""
    grids = Group.of([0, 1], np.array([[cell // 128, cell] for cell in range(256)]), nests=[Grids((0, 1), (1, 8), 2)])
    workload, rng = Workload(sizes=(2, 256), marginals=((), (0,), (1,))), np.random.default_rng(0)
    events, rows, off = np.zeros((0, 2), dtype=np.int32), None, list[int]()
    for tick in range(40):
        cells = rng.integers(0, 128, 500) + 128 * (tick >= 20)
        events = np.concatenate([events, np.stack([cells // 128, cells], axis=1).astype(np.int32)])
        now = replace(noisy(workload, events, sigma=40, seed=tick), tick=tick)
        rows = fit(now, start=rows, seed=tick, groups=[grids])
        off.append(int((rows.codes[:, 0] == 0).sum() - (events[:, 0] == 0).sum()))
    rms = float(np.sqrt(np.mean(np.square(off[20:]))))
    assert rms < 80


def test_rows_come_nearer_to_joint_counts_than_to_tables() -> None:
    """A code decides its group, so each table tells of the other: less than the noise of both makes a row move."""
    group = Group.of([0, 1], np.array([[code, code // 2] for code in range(40)]))
    workload, rng = Workload(sizes=(40, 20), marginals=((), (0,), (1,))), np.random.default_rng(0)
    codes = rng.integers(0, 40, 8000)
    events, off, rows = np.stack([codes, codes // 2], axis=1).astype(np.int32), list[float](), None
    for tick in range(6):
        now = noisy(workload, events[: 2000 + 1000 * tick], sigma=20, seed=tick)
        aim = aims(now, groups=[group]).cells[workload.slice_of((0,))]
        rows = fit(now, start=rows, seed=tick, fresh=True, groups=[group])
        off.append(float(np.abs(rows.counts(workload)[workload.slice_of((0,))] - aim).sum()))
    assert np.mean(off[1:]) < 380


def test_of_very_many_combinations_some_are_offered() -> None:
    rng, sizes = np.random.default_rng(0), (100, 100, 3)
    end = rng.integers(0, 100, 2000)
    start = end * rng.integers(1, 4, 2000) // 3
    rows = np.column_stack([start, end, start // 34]).astype(np.int32)
    workload = Workload.all_up_to(2, sizes=sizes)
    group = Group.of((0, 1), np.argwhere(np.tri(100).T > 0))
    assert group.number > ALL_OFFERED
    true = workload.count(rows)
    known = Measured(tick=0, workload=workload, values=true.astype(float), variance=np.full(7, 0.01))
    found, free = fit(known, seed=1, groups=(group,)), fit(known, seed=1)
    assert violating(found, (group,)) == 0
    gaps = [np.abs(workload.count(rows.codes.astype(np.int32)) - true).sum() for rows in (found, free)]
    assert gaps[0] < gaps[1] < 2000 * 7


def test_noise_in_impossible_cells_is_not_believed() -> None:
    rows, workload = dependent(300), Workload.all_up_to(2, sizes=SIZES)
    true, errors = workload.count(rows), []
    for groups in ((), (THREE,)):
        gaps = [
            workload.count(fit(noisy(workload, rows, sigma=15, seed=s), seed=s, groups=groups).codes.astype(np.int32))
            - true
            for s in range(8)
        ]
        errors.append(float(np.mean(np.abs(gaps))))
    assert errors[1] < 0.8 * errors[0]


def test_a_constraint_brings_back_no_codes_that_never_occur() -> None:
    """A menu of sixty, of which half is never ordered; what it is decides its kind."""
    rng, decides = np.random.default_rng(0), np.arange(60) % 3
    names = rng.choice(30, 6000, p=np.arange(30, 0, -1) / 465)
    rows = np.column_stack([names, decides[names]]).astype(np.int32)
    workload = Workload.all_up_to(2, sizes=(60, 3))
    group = Group.of((0, 1), np.column_stack([np.arange(60), decides]))
    true, never, off = np.bincount(names, minlength=60), np.zeros(2), np.zeros(2)
    for seed in range(5):
        measured = noisy(workload, rows, sigma=30, seed=seed)
        for k, groups in enumerate([(), (group,)]):
            margin = aims(measured, groups=groups).margins[0]
            never[k] += margin[30:].sum() / 5
            off[k] += np.abs(margin - true).sum() / 5
    assert never[1] < 1.3 * never[0] < 0.1 * len(rows)
    assert off[1] < 1.1 * off[0]


@pytest.mark.parametrize("taken", [1.0, 1e-4], ids=["running counts", "epochs"])
def test_joint_counts_begin_with_counts_that_are_drawn_together(monkeypatch: pytest.MonkeyPatch, taken: float) -> None:
    """And with the noise that these have, which of epochs is not the one that is handed in."""
    rows = np.column_stack([np.arange(6000) % 60, np.arange(6000) % 3]).astype(np.int32)
    workload = Workload.all_up_to(2, sizes=(60, 3))
    group = Group.of((0, 1), np.column_stack([np.arange(60), np.arange(60) % 3]))
    measured = noisy(workload, rows, sigma=30, seed=0)
    begun, news = Mock(wraps=estimate), Mock(wraps=with_news)
    monkeypatch.setattr(aims_module, "estimate", begun)
    monkeypatch.setattr(aims_module, "with_news", news)
    aims(replace(measured, variance=taken * measured.variance), groups=(group,), taken=taken)
    errors, (counts, noise) = begun.call_args.args[5], news.call_args.args[1][0]
    assert counts.std() < 15
    assert noise == pytest.approx(errors[0] / taken)
    assert noise < 0.3 * 30**2


def test_rows_and_targets_follow_from_the_arguments_alone() -> None:
    rows, workload = dependent(), Workload.all_up_to(2, sizes=SIZES)
    known = noisy(workload, rows, sigma=5)
    one, two = (fit(known, seed=3, groups=(THREE,)) for _ in range(2))
    assert np.array_equal(one.codes, two.codes)
    later = [fit(noisy(workload, rows, sigma=5, seed=9), start=p, seed=4, groups=(THREE,)).codes for p in (one, two)]
    assert np.array_equal(later[0], later[1])


def test_rows_move_little_from_tick_to_tick() -> None:
    rows, workload = dependent(), Workload.all_up_to(2, sizes=SIZES)
    one = fit(noisy(workload, rows, sigma=5), seed=1, groups=(THREE,))
    two = fit(noisy(workload, rows, sigma=5, seed=0), start=one, seed=2, groups=(THREE,))
    assert two.moved_from(one) < 0.1


def test_no_rows_at_all() -> None:
    workload = Workload.all_up_to(2, sizes=SIZES)
    known = Measured(
        tick=0, workload=workload, values=np.full(workload.cells, -5.0), variance=np.ones(len(workload.marginals))
    )
    assert fit(known, seed=0, groups=(THREE,)).number == 0


def test_too_many_combinations_are_refused() -> None:
    wide = [Group.of((a, a + 1), np.array(list(product(range(20), repeat=2)))) for a in range(4)]
    with pytest.raises(ValueError, match=r"3,200,000|more than 1,000,000"):
        joined(wide)


@pytest.mark.parametrize("kind", ["number", "integer", "datetime"])
def test_an_order_holds_within_bins(kind: str, tmp_path: Path) -> None:
    low, high = ("2026-01-01", "2026-01-11") if kind == "datetime" else (0, 10)
    columns = [
        number(name, f"bins = {bins}", kind=kind, low=low, high=high)
        for name, bins in (("start", 4), ("middle", 3), ("end", 5))
    ]
    orders = [f'[[constraints]]\nless_or_equal = ["{a}", "{b}"]\n' for a, b in (("start", "middle"), ("middle", "end"))]
    text = stream_toml(*columns, *orders, column=None, until=None)
    config = StreamConfig.from_toml(text, base=tmp_path)
    (group,) = config.constraints.groups
    codes = np.repeat(group.combinations, 20, axis=0)
    rows = config.schema.decode(codes, np.random.default_rng(0))
    start, middle, end = (rows[name] for name in ("start", "middle", "end"))
    for before, after in ((start, middle), (middle, end), (start, end)):
        assert (before <= after).fill_null(value=True).all()
    assert np.array_equal(config.schema.encode(rows), codes)
    assert 0 < (start == middle).sum() < 0.3 * rows.height


@pytest.mark.parametrize("table", [(0,), (1,), (0, 1)])
def test_a_combination_must_gain_more_than_the_noise_of_every_table_that_it_changes(table: tuple[int, ...]) -> None:
    workload = Workload.all_up_to(2, sizes=(2, 2))
    group, q = Group.of([0, 1], np.array(list(product(range(2), repeat=2)))), workload.place[table]
    blocks = blocks_of([Joint(group=group, counts=np.full(4, 2.5), noise=1.0)], workload)
    weights = np.where(np.arange(len(workload.marginals)) == q, 1.0, 0.0)
    residual = np.zeros(workload.cells)  # rows over targets: all but the first cell of the table have too many
    residual[workload.slice_of(table)] = [-20.0, *[20.0] * (int(workload.lengths[q]) - 1)]
    effort, gain = Effort(gain=1.0, lean=0.0, still=0.1, blocks=1), 40.0 - 1.0
    for noise, moves in ((0.99 * gain**2, True), (1.01 * gain**2, False)):
        codes = np.ones((2, 1), dtype=np.int32)
        noises = weights * noise
        _, moved = shift(0, 0, 1, codes, residual.copy(), weights, blocks, effort, noises, np.uint64(1))
        assert bool(moved) is moves
