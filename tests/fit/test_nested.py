"""Tables that cross nested grids: they say one thing on all grids, and nothing where there is but noise."""

from __future__ import annotations

import numpy as np
import pytest

from synthstream.constraints import Grids, Group, joined
from synthstream.fit.aims import Targets, aims
from synthstream.fit.nested import nests_of
from synthstream.fit.ordered import Shrunk
from synthstream.fit.population import Population, fit
from synthstream.fit.strengths import Noisy, moments, shrunk_together
from synthstream.fit.targets import independent_counts
from synthstream.measured import Measured
from synthstream.workload import CodeArray, FloatArray, Workload

# Ten flags, then grids of 4, 16 and 64 cells.
FLAGS, GRIDS, EVENTS = 10, (10, 11, 12), 6000
SIZES = (*[2] * FLAGS, 4, 16, 64)
NEST = Group.of(
    GRIDS,
    np.stack([np.arange(64) // 16, np.arange(64) // 4, np.arange(64)], axis=1),
    nests=[Grids(GRIDS, (2, 4, 6), 2)],
)
CROSSED = tuple((flag, grid) for flag in range(FLAGS) for grid in GRIDS)
WORKLOAD = Workload(sizes=SIZES, marginals=((), *((c,) for c in range(13)), *CROSSED))


def events(seed: int, strength: float) -> CodeArray:
    """The first flag is commoner in some districts, and in them in some blocks; the others are rare and everywhere."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(0, 64, EVENTS)
    chance = np.full((EVENTS, FLAGS), 0.05)
    chance[:, 0] = 0.5 + strength * (np.where(cell // 16 < 2, 0.25, -0.25) + np.where(cell % 2, 0.2, -0.2))
    flags = rng.random((EVENTS, FLAGS)) < chance
    return np.column_stack([flags, cell // 16, cell // 4, cell]).astype(np.int32)


def aimed(rows: CodeArray, sigma: float, *, groups: tuple[Group, ...] = (NEST,), seed: int = 7) -> Targets:
    values = WORKLOAD.count(rows) + np.random.default_rng(seed).normal(0, sigma, WORKLOAD.cells)
    variance = np.where(WORKLOAD.order < 2, 1.0, sigma**2)
    single = np.repeat(WORKLOAD.order < 2, WORKLOAD.lengths)  # which are well known here
    values = np.where(single, WORKLOAD.count(rows), values)
    return aims(Measured(tick=0, workload=WORKLOAD, values=values, variance=variance), groups=groups)


def beyond(cells: FloatArray, pair: tuple[int, int]) -> FloatArray:
    """What a table holds beyond independent columns."""
    table = cells[WORKLOAD.slice_of(pair)].reshape([SIZES[c] for c in pair])
    return table - independent_counts([table.sum(axis=1), table.sum(axis=0)], round(table.sum()))


@pytest.mark.parametrize("sigma", [0.1, 20.0, 100.0])
def test_finer_grids_add_up_to_coarser_ones(sigma: float) -> None:
    aim = aimed(events(0, 1.0), sigma)
    for flag in range(FLAGS):
        for coarse, fine, cells in ((10, 11, 4), (11, 12, 4), (10, 12, 16)):
            summed = beyond(aim.cells, (flag, fine)).reshape(2, -1, cells).sum(axis=2)
            assert np.abs(summed - beyond(aim.cells, (flag, coarse))).max() < 0.01 * sigma + 1


def test_without_noise_they_are_the_true_tables() -> None:
    rows = events(1, 1.0)
    assert np.abs(aimed(rows, 0.1).cells - WORKLOAD.count(rows)).max() < 1


def test_beside_a_column_of_one_code_a_grid_holds_what_it_does_alone() -> None:
    grids = Group.of((1, 2), np.stack([np.arange(16) // 4, np.arange(16)], axis=1), nests=[Grids((1, 2), (2, 4), 2)])
    workload = Workload(sizes=(1, 4, 16), marginals=((), (0,), (1,), (2,), (0, 1), (0, 2)))
    values = np.random.default_rng(1).normal(100, 20, workload.cells)
    cells = aims(Measured(tick=0, workload=workload, values=values, variance=np.full(6, 400.0)), groups=(grids,)).cells
    for grid in (1, 2):
        assert cells[workload.slice_of((0, grid))] == pytest.approx(cells[workload.slice_of((grid,))])


@pytest.mark.parametrize("sigma", [20.0, 100.0])
def test_no_cell_holds_less_than_nothing_and_all_values_together_hold_what_the_grid_does(sigma: float) -> None:
    cells = aimed(events(0, 1.0), sigma).cells
    for flag, grid in CROSSED:
        table = cells[WORKLOAD.slice_of((flag, grid))].reshape(2, -1)
        assert table.min() > -1e-6
        assert np.abs(table.sum(axis=0) - cells[WORKLOAD.slice_of((grid,))]).max() < 0.01 * sigma


def test_a_rare_value_is_seen_beside_frequent_ones() -> None:
    """One of 1,000 events, in one quarter alone, and nine flags of half of all that are everywhere."""
    rng = np.random.default_rng(3)
    cell = rng.integers(0, 64, EVENTS * 10)
    chance = np.full((EVENTS * 10, FLAGS), 0.5)
    chance[:, 0] = np.where(cell // 16 == 1, 0.004, 0.0)
    codes = np.column_stack([rng.random(chance.shape) < chance, cell // 16, cell // 4, cell]).astype(np.int32)
    true = WORKLOAD.count(codes).astype(np.float64)
    found = aimed(codes, 1.0).cells
    assert beyond(found, (0, 10))[1, 1] > 0.8 * beyond(true, (0, 10))[1, 1] > 10


def test_errors_are_those_that_are_told() -> None:
    """Of strong associations hardly anything is shrunk: what is left of noise, on all grids."""
    rng = np.random.default_rng(6)
    cell = rng.integers(0, 64, EVENTS * 10)
    flags = rng.random((cell.size, FLAGS)) < rng.uniform(0.2, 0.8, (64, FLAGS))[cell]
    codes = np.column_stack([flags, cell // 16, cell // 4, cell]).astype(np.int32)
    aims_of = [aimed(codes, 10.0, seed=seed) for seed in range(8)]
    true = WORKLOAD.count(codes).astype(np.float64)
    for grid in GRIDS:
        pairs = [(flag, grid) for flag in range(FLAGS)]
        off = np.mean([(beyond(aim.cells, pair) - beyond(true, pair)) ** 2 for aim in aims_of for pair in pairs])
        told = np.mean([aims_of[0].errors[WORKLOAD.marginals.index(pair)] for pair in pairs])
        assert off == pytest.approx(told, rel=0.15), grid


def test_details_of_noise_alone_vary_as_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """On each grid what is added to the coarser one has as many free cells, and as much noise, as strengths take it."""
    seen, rows = dict[int, list[Noisy]](), events(5, 0.0)

    def spied(tables: dict[tuple[int, ...], Noisy], left: float) -> dict[int, Shrunk]:
        for (q,), table in tables.items():
            seen.setdefault(q, []).append(table)
        return shrunk_together(tables, left)

    monkeypatch.setattr("synthstream.fit.nested.shrunk_together", spied)
    for seed in range(60):
        aimed(rows, 300.0, seed=seed)
    for grid in GRIDS:
        tables = [table for (q, m) in enumerate(WORKLOAD.marginals) if len(m) > 1 and grid in m for table in seen[q]]
        mean, variance = (found[:, 0] for found in moments(tables, np.array([0.0])))
        z = np.concatenate([table.square for table in tables]) / mean
        assert np.mean(z) == pytest.approx(1, abs=0.1), grid
        assert np.var(z) == pytest.approx(np.mean(variance / mean**2), rel=0.25), grid


def error(rows: CodeArray, sigma: float, *, nested: bool) -> float:
    """Root mean square over all crossed tables, and a few draws of noise."""
    groups = (NEST if nested else Group.of(NEST.columns, NEST.combinations),)
    true = WORKLOAD.count(rows).astype(np.float64)
    squares = []
    for seed in range(4):
        cells = aimed(rows, sigma, groups=groups, seed=seed).cells
        squares += [np.mean((beyond(cells, pair) - beyond(true, pair)) ** 2) for pair in CROSSED]
    return float(np.sqrt(np.mean(squares)))


@pytest.mark.parametrize("sigma", [100.0, 30.0])
def test_together_tables_are_nearer_the_truth_than_each_on_its_own(sigma: float) -> None:
    """With a strong association of a single column."""
    rows = events(2, 1.0)
    assert error(rows, sigma, nested=True) < 0.8 * error(rows, sigma, nested=False)


def test_without_an_association_hardly_any_noise_is_left() -> None:
    assert error(events(2, 0.0), 100.0, nested=True) < 10


def test_what_goes_with_many_events_is_kept_and_noise_of_few_is_not() -> None:
    """Three flags of many events are alike in how they depend on the quarter; of the seven rare ones none does."""
    often, rare, kept, followed = [(f, 10) for f in range(3)], [(f, 10) for f in range(3, 10)], [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        cell = rng.integers(0, 64, EVENTS)
        chance = np.full((EVENTS, FLAGS), 0.03)
        chance[:, :3] = 0.3 + np.where(cell[:, None] // 16 % 2, 0.06, -0.06)
        rows = np.column_stack([rng.random((EVENTS, FLAGS)) < chance, cell // 16, cell // 4, cell]).astype(np.int32)
        found, true = aimed(rows, 120.0, seed=seed).cells, WORKLOAD.count(rows).astype(np.float64)
        kept += [np.mean((beyond(found, pair) - beyond(true, pair)) ** 2) for pair in often]
        kept[-3:] = [x / np.mean(beyond(true, pair) ** 2) for x, pair in zip(kept[-3:], often, strict=True)]
        followed += [np.mean(beyond(found, pair) ** 2) for pair in rare]
    assert np.mean(kept) < 0.7
    assert np.sqrt(np.mean(followed)) < 12


def test_rows_leave_what_was_shrunk_to_nothing() -> None:
    """All rows of a flag were in one half by chance; its table is drowned in noise, so it is aimed at all places."""
    rng = np.random.default_rng(4)
    cell = rng.integers(0, 64, EVENTS)
    flags = np.zeros((EVENTS, FLAGS), dtype=np.int32)
    flags[np.flatnonzero(cell < 32)[:1500], 0] = 1
    codes = np.column_stack([flags, cell // 16, cell // 4, cell]).astype(np.int32)
    even = codes.copy()
    even[:, 0] = rng.permutation(codes[:, 0])
    variance = np.where(WORKLOAD.order < 2, 50.0, 150.0) ** 2
    values = WORKLOAD.count(even) + np.repeat(np.sqrt(variance), WORKLOAD.lengths) * rng.normal(size=WORKLOAD.cells)
    known = Measured(tick=9, workload=WORKLOAD, values=values, variance=variance)
    start = Population.of(WORKLOAD, codes)
    found = fit(known, start=start, seed=1, groups=[NEST], fresh=True, memory=0.0)
    where = found.counts(WORKLOAD)[WORKLOAD.slice_of((0, 10))].reshape(2, 4)[1]
    assert where[2:].sum() > 0.25 * 1500


@pytest.mark.parametrize("taken", [1.0, 1e-4])
def test_empty_cells_of_a_fine_grid_do_not_raise_its_coarse_ones(taken: float) -> None:
    """Amounts of money: nearly all lie in one of four cells. None of 1,000 finer ones may fall below 0, and so those
    that hold nothing were raised by noise, and whole coarse cells with them.
    """
    fine = np.arange(1024)
    grids = Group.of((0, 1), np.stack([fine // 256, fine], axis=1), nests=[Grids((0, 1), (2, 10), 1)])
    workload = Workload(sizes=(4, 1024), marginals=((), (0,), (1,)))
    rng = np.random.default_rng(3)
    cell = np.minimum(rng.exponential(60, 30_000), 1023).astype(np.int32)
    true = workload.count(np.column_stack([cell // 256, cell]).astype(np.int32))
    values = true + rng.normal(0, 20, workload.cells)
    measured = Measured(tick=0, workload=workload, values=values, variance=np.full(3, taken * 400.0))
    coarse, finest = (workload.slice_of((c,)) for c in (0, 1))
    noise = np.abs(values - true)[finest].sum()
    off = np.abs(aims(measured, groups=(grids,), taken=taken).cells - true)
    assert off[coarse].max() < 50
    assert off[finest].sum() < noise / 3


def test_ends_of_trips_go_together_in_rows() -> None:
    """Two places, each of 4 and 16 cells, crossed at 4: a trip goes to the next quarter."""
    rng = np.random.default_rng(5)
    begin = rng.integers(0, 16, 4000)
    end = (begin // 4 + 1) % 4 * 4 + rng.integers(0, 4, 4000)
    rows = np.column_stack([begin // 4, begin, end // 4, end]).astype(np.int32)
    nests = [
        Group.of((c, c + 1), np.array([[k // 4, k] for k in range(16)]), nests=[Grids((c, c + 1), (2, 4), 2)])
        for c in (0, 2)
    ]
    workload = Workload(sizes=(4, 16, 4, 16), marginals=((), (0,), (1,), (2,), (3,), (0, 2)))
    noisy = workload.count(rows) + rng.normal(0, 10, workload.cells)
    known = Measured(tick=0, workload=workload, values=noisy, variance=np.full(6, 100.0))
    found = fit(known, seed=1, groups=nests).codes
    assert all((group.places(found.astype(np.int32)) >= 0).all() for group in nests)
    assert np.mean(found[:, 2] == (found[:, 0] + 1) % 4) > 0.95


def test_columns_that_a_grid_is_crossed_with_together_keep_what_they_have_in_common() -> None:
    """In tables of three columns: two flags that mostly agree, everywhere alike."""
    rng = np.random.default_rng(2)
    flag, cell = rng.integers(0, 2, EVENTS), rng.integers(0, 16, EVENTS)
    both = np.where(rng.random(EVENTS) < 0.9, flag, 1 - flag)
    codes = np.column_stack([flag, both, cell // 4, cell]).astype(np.int32)
    grids = Group.of((2, 3), np.stack([np.arange(16) // 4, np.arange(16)], axis=1), nests=[Grids((2, 3), (2, 4), 2)])
    workload = Workload(sizes=(2, 2, 4, 16), marginals=((), (0,), (1,), (2,), (3,), (0, 1), (0, 1, 2), (0, 1, 3)))
    true = workload.count(codes)
    noisy = true + rng.normal(0, 5, workload.cells)
    cells = aims(Measured(tick=0, workload=workload, values=noisy, variance=np.full(8, 25.0)), groups=(grids,)).cells
    for table in ((0, 1, 2), (0, 1, 3)):
        part = workload.slice_of(table)
        assert np.abs((cells - true)[part].reshape(4, -1).sum(axis=1)).max() < 50, table


def test_a_constraint_that_joins_a_nest_keeps_it() -> None:
    wards = Group.of((0, 10), np.array([[f, w] for f in range(2) for w in range(4)]))
    (both,) = joined([wards, NEST])
    assert both.nests == NEST.nests
    assert nests_of(WORKLOAD, [both])[0].columns == GRIDS
    assert both.columns == (0, *GRIDS)
