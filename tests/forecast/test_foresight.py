"""Simulations for forecasts: shapes, distances, and errors of streams whose errors are known."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.distances import histogram

from synthstream.config.config import StreamConfig
from synthstream.evaluate.wasserstein import w1_grid
from synthstream.fit.population import Population
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.points import Points
from synthstream.kernel.tables import Marginals
from synthstream.measured import Measured
from synthstream.partition import Partition
from synthstream.privacy import Budget
from synthstream.strategies.levels import Schedule
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.contract import Expected
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.points import FromNodes
from synthstream.synthesizers.simulation import points, tables
from synthstream.synthesizers.simulation.shapes import Clusters, LatentClasses
from synthstream.synthesizers.simulation.transport import w1
from synthstream.synthesizers.tables import Continual
from synthstream.workload import Workload
from tests.support.configs import category, stream_toml
from tests.support.gates import ExactGate
from tests.support.streams import text_of

SIZES = (6, 5, 2, 9)


def shape(sizes: tuple[int, ...] = SIZES) -> LatentClasses:
    return LatentClasses(sizes, [0] * len(sizes), np.random.default_rng(0))


def test_rows_of_a_shape_stay_in_their_codes_and_repeat() -> None:
    one = shape().rows(5000, np.random.default_rng(1))
    assert np.array_equal(one, shape().rows(5000, np.random.default_rng(1)))
    assert one.min() == 0
    assert (one.max(axis=0) < SIZES).all()
    # Columns are related: the joint counts are not the product of the margins.
    table = np.histogram2d(one[:, 0], one[:, 3], bins=(6, 9))[0]
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / len(one)
    assert np.sum((table - expected) ** 2 / np.maximum(expected, 1)) > 3 * table.size


def test_cells_of_their_own_hold_little() -> None:
    rows = LatentClasses([12], [2], np.random.default_rng(0)).rows(20_000, np.random.default_rng(0))
    share = np.bincount(rows[:, 0], minlength=12) / len(rows)
    assert np.allclose(share[-2:], 0.01, atol=0.004)
    assert (LatentClasses([1], [1], np.random.default_rng(0)).rows(9, np.random.default_rng(0)) == 0).all()


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_points_of_clusters_lie_in_the_cube(dimension: int) -> None:
    clusters = Clusters(dimension, np.random.default_rng(0))
    first = clusters.points(2000)
    for _ in range(30):
        clusters.wander(1.0)
    last = clusters.points(2000)
    for found in (first, last):
        assert found.shape == (2000, dimension)
        assert found.min() >= 0
        assert found.max() < 1
    # Bursts and wandering: what comes later lies elsewhere.
    bins = 16
    before, after = (np.histogram(p[:, 0], bins=bins, range=(0, 1))[0] for p in (first, last))
    assert np.abs(before - after).sum() > 600


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("side", [8, 32])
def test_the_distance_is_that_of_an_exact_program(seed: int, side: int) -> None:
    rng = np.random.default_rng(seed)
    clusters = Clusters(2, rng)
    a = histogram(clusters.points(3000), side)
    clusters.wander(1.0)
    b = [histogram(clusters.points(3000), side), a + rng.random(a.shape) / a.size / 10][seed % 2]
    assert w1(a, b) == pytest.approx(w1_grid(a, b), rel=0.12)


def test_distances_that_are_known() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(64), rng.random(64)
    line = np.abs(np.cumsum(a / a.sum() - b / b.sum())).sum() / 64
    assert w1(a, b) == pytest.approx(line)
    one, other = np.zeros((2, 8, 8, 8))
    one[0, 0, 0], other[7, 3, 0] = 1, 2
    assert w1(one, other) == pytest.approx(7 / 8, rel=0.1)
    assert w1(one, 5 * one) == 0
    assert w1(one, 0 * one) == 1


def test_boxes_and_tables_of_a_gap_that_is_known() -> None:
    workload = Workload.all_up_to(2, sizes=(4, 4))
    errors = tables.errors_of(workload, np.full(workload.cells, -3.0))
    assert errors.table_error == {1: 12.0, 2: 48.0}
    assert errors.box == 12.0  # 2 x 2 cells of 3 events
    assert np.isnan(tables.box_variance(workload, np.full(4, np.nan)))
    alone = Workload.all_up_to(1, sizes=(4,))
    assert tables.box_variance(alone, np.array([1.0, 7.0])) == 14.0


def test_random_boxes_of_independent_noise_have_the_variance_of_the_formula() -> None:
    workload, rng = Workload.all_up_to(2, sizes=(5, 8, 3)), np.random.default_rng(0)
    squares = [tables.errors_of(workload, rng.normal(size=workload.cells)).box ** 2 for _ in range(300)]
    formula = tables.box_variance(workload, np.ones(len(workload.marginals)))
    assert np.mean(squares) == pytest.approx(formula, rel=0.1)


def always(epsilon: float = 1.0) -> Marginals:
    return Marginals(
        workload=Workload.all_up_to(2, sizes=SIZES), budget=Budget(epsilon=epsilon, delta=1e-9), horizon=200
    )


def test_what_is_simulated_in_proportion_agrees_with_what_is_simulated_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    full = tables.at_every_tick(always(), shape(), tick=99, events=16_000)
    monkeypatch.setattr(tables, "_MOST_ROWS", 4_000)
    part = tables.at_every_tick(always(), shape(), tick=99, events=16_000)
    assert part != full
    for k in (1, 2):
        assert part.table_error[k] == pytest.approx(full.table_error[k], rel=0.3)


def test_a_stream_that_is_run_has_the_errors_of_its_rows_that_are_forecast() -> None:
    """The real synthesizer, tick by tick, on rows of the assumed shape."""
    from synthstream.synthesizers.simulation.seeded import SeededGate

    made, rng = Continual(mechanism=always()), np.random.default_rng(5)
    workload, found = made.mechanism.workload, []
    for seed in range(3):
        state, last, history = made.mechanism.init(), None, {}
        true = np.zeros(workload.cells, dtype=np.int64)
        for tick in range(60):
            codes = shape().rows(40, rng)
            true += workload.count(codes)
            state, history[tick], _ = made.step(state, made.count(codes, None), SeededGate(f"{seed}/{tick}"), last, {})
            last = made.fit(tick, history.__getitem__, last, {}, seed=tick)
        assert last is not None
        gap = np.asarray(workload.count(last.codes.astype(np.int32)) - true, dtype=np.float64)
        found.append(tables.errors_of(workload, gap))
    forecast, measured = (
        tables.at_every_tick(always(), shape(), tick=59, events=2400, draws=8),
        tables.mean_of(found),
    )
    for k in (1, 2):
        assert forecast.table_error[k] == pytest.approx(measured.table_error[k], rel=0.35)
    assert forecast.box == pytest.approx(measured.box, rel=0.5)


def test_without_noise_rows_are_what_they_were() -> None:
    loud = tables.at_every_tick(always(1e5), shape(), tick=9, events=2000)
    assert loud.table_error[1] < 0.02 * 2000
    assert tables.at_every_tick(always(), shape(), tick=0, events=0.2).table_error[1] >= 0


def test_epochs_are_stepped_at_their_ends_and_their_errors_fall_with_the_budget() -> None:
    mechanism = Epochs(
        workload=Workload.all_up_to(2, sizes=SIZES), budget=Budget(epsilon=0.3, delta=0.0), horizon=None, picks=3
    )
    assert mechanism.times.ended(100) == [t + 1 for t in range(100) if mechanism.times.ends(t)]
    found = tables.in_epochs(InEpochs(mechanism=mechanism), shape(), ticks=[1, 10, 100], events_per_tick=100)
    assert sorted(found) == [1, 10, 100]
    louder = replace(mechanism, budget=Budget(epsilon=4.0, delta=0.0))
    better = tables.in_epochs(InEpochs(mechanism=louder), shape(), ticks=[100], events_per_tick=100)
    assert better[100].table_error[1] < 0.6 * found[100].table_error[1]


def test_rows_in_epochs_are_forecast_without_what_their_shape_does_not_know() -> None:
    """Grids of a place lie in each other, and the rows of a shape do not: no fit could come near to them."""
    config = StreamConfig.from_toml(text_of("places").replace("delta = 1e-09", "delta = 0"))
    assert config.constraints.groups
    made = synthesizer_of(config)
    own = tables._shape(config.schema)
    found = tables.in_epochs(made, own, ticks=[8], events_per_tick=1000)
    assert found[8].table_error[1] < 0.1 * 8000


def test_the_first_epoch_is_forecast_with_as_many_tables_as_it_measures() -> None:
    columns = "".join(category(name, "u", "v", "w") for name in "abcdefghij")
    made = synthesizer_of(StreamConfig.from_toml(stream_toml(columns, delta=0, epsilon=1.0, horizon=12)))
    assert isinstance(made, InEpochs)
    counts = made.count(np.random.default_rng(0).integers(0, 3, (2000, 10)).astype(np.int32), None)
    _, measured, _ = made.step(made.mechanism.init(), counts, ExactGate(), None, {})
    drawn = sum(len(marginal) == 2 for marginal in measured.workload.marginals)
    assert drawn > made.mechanism.nearest()
    assert made._number(0, 1, 2000.0) == drawn


def test_the_expected_variance_of_epochs_is_that_of_walking_every_tick() -> None:
    mechanism = Epochs(
        workload=Workload.all_up_to(1, sizes=SIZES), budget=Budget(epsilon=1.0, delta=0.0), horizon=None, picks=3
    )
    for tick in (0, 1, 4, 5, 100, 777):
        ends = [t + 1 for t in range(tick + 1) if mechanism.times.ends(t)]
        weight = float(np.sum(np.diff([0, *ends]) ** 2)) / (tick + 1) ** 2
        assert InEpochs(mechanism=mechanism).expected_variance(tick)[1] == pytest.approx(
            mechanism.variance(tick)[1] / weight
        )


def test_few_events_are_forecast_with_the_fewer_tables_that_an_epoch_of_them_measures() -> None:
    """And so with less noise in tables of one column; where a number is set, events say nothing."""
    workload = Workload.all_up_to(2, sizes=(5,) * 10)
    mechanism = Epochs(workload=workload, budget=Budget(epsilon=1.0, delta=0.0), horizon=50)
    made = InEpochs(mechanism=mechanism)
    variances = [made.expected_variance(49, rate)[1] for rate in (1.0, 30.0, 1e5)]
    assert variances == sorted(variances)
    least = InEpochs(mechanism=replace(mechanism, picks=1))
    weight, one = float(np.sum(np.diff([0, *mechanism.times.ended(50)]) ** 2)) / 50**2, mechanism.variance(49, 1)
    assert variances[0] == pytest.approx(1 / weight / (1 / one[1] + 9 / 45 / (5 * one[-1])))
    assert variances[-1] > 1.5 * variances[0]
    assert least.expected_variance(49, 1.0).tolist() == least.expected_variance(49, 1e5).tolist()


@pytest.mark.parametrize(("picks", "measured"), [(None, 10), (3, 3), (15, 15), (99, 15)])
def test_a_larger_table_is_expected_to_be_measured_in_its_share_of_the_epochs(picks: int | None, measured: int) -> None:
    """Of 15. A whole number of epochs later it has as many times the variance as there are epochs to one of its own."""
    workload, budget = Workload.all_up_to(2, sizes=(2,) * 6), Budget(epsilon=1.0, delta=0.0)
    made = InEpochs(mechanism=Epochs(workload=workload, budget=budget, horizon=100, picks=picks))
    one, later = made.mechanism.variance(99), made.expected_variance(99)
    weight = float(np.sum(np.diff([0, *made.mechanism.times.ended(100)]) ** 2)) / 100**2
    larger = made.mechanism.order == 2
    assert later[larger] == pytest.approx(one[larger] / weight * 15 / measured)
    # Each column is in 5 of the 15, and each sum of two cells of one of them tells of a cell of it.
    single = one[made.mechanism.order == 1]
    assert later[made.mechanism.order == 1] == pytest.approx(
        1 / weight / (1 / single + measured / 15 * 5 / (2 * one[larger][0]))
    )
    assert made.chooses == (measured < 15)
    assert ("as many as gain most" in made.caveat) == (picks is None)


def test_a_row_that_stands_for_many_varies_like_many() -> None:
    """What lies in the newest, unmeasured ticks is guessed by past shares; more events vary less, in proportion."""
    mechanism = Epochs(
        workload=Workload.all_up_to(1, sizes=SIZES), budget=Budget(epsilon=100.0, delta=0.0), horizon=None, picks=1
    )
    # 315 is the end of an epoch, 400 is not.
    some, many = (
        np.mean(
            [
                tables.in_epochs(InEpochs(mechanism=mechanism), shape(), ticks=[400], events_per_tick=n, seed=s)[
                    400
                ].table_error[1]
                for s in range(4)
            ]
        )
        for n in (40.0, 1000.0)
    )
    # 25 times the events, 5 times the error; drawing afresh the rows that stand for them would make it 22 times.
    assert 2.5 * some < many < 12 * some


def test_seconds_are_measured() -> None:
    config = StreamConfig.from_toml(text_of("always"))
    assert 0 < (synthesizer_of(config).seconds(Expected(config.schema, [300], 10.0)) or 0) < 20


def made_of(kind: str, depth: int = 12) -> FromNodes:
    text = text_of(kind).replace("horizon = 12", "horizon = 4000").replace("depth = 8", f"depth = {depth}")
    made = synthesizer_of(StreamConfig.from_toml(text))
    assert isinstance(made, FromNodes)
    return made


def test_grids_keep_mass_and_place() -> None:
    rng = np.random.default_rng(0)
    for dimension, level in ((1, 6), (2, 5), (2, 14), (3, 7), (5, 9)):
        masses = rng.random(2**level)
        grid = points.grid_of(masses, dimension)
        assert grid.shape == (2 ** points.digits_of(dimension),) * dimension
        assert grid.sum() == pytest.approx(masses.sum())
        half = grid.shape[0] // 2
        assert grid[:half].sum() == pytest.approx(masses[: masses.size // 2].sum())  # the first split is along x


@pytest.mark.parametrize("kind", ["points", "points-zcdp"])
def test_points_in_proportion_agree_with_points_in_full(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mean() -> float:
        runs = [points.Run(made_of(kind), ticks=[100], events_per_tick=200, seed=s) for s in range(4)]
        return float(np.mean([run.errors()[100].distance or 0.0 for run in runs]))

    full = mean()
    monkeypatch.setattr(points, "_MOST_EVENTS", 5_000)
    assert mean() == pytest.approx(full, rel=0.35)


def test_ticks_are_grouped_so_that_runs_show_their_beginning() -> None:
    assert tables.groups_of([1, 10, 100], 5.0) == [[1, 10, 100]]
    assert tables.groups_of([1, 30, 365, 3650], 1e5) == [[1, 30], [365, 3650]]


def test_the_forecast_ends_the_last_epoch_of_points_with_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, stepped = dict[int, bool](), Points.step

    def step(self: Points, *args: Any) -> Any:
        after, measured = stepped(self, *args)
        seen[measured.tick] = measured.closing
        return after, measured

    monkeypatch.setattr(Points, "step", step)
    box, schedule = Partition(dimension=2, depth=8), Schedule(dimension=2)
    budget = Budget(epsilon=1.0, delta=0.0)
    mechanism = Points(partition=box, budget=budget, horizon=30, schedule=schedule)
    points.Run(FromNodes(mechanism=mechanism), ticks=[29, 30], events_per_tick=90.0).errors()
    assert list(seen)[-2:] == [28, 29]
    assert [seen[28], seen[29]] == [False, True]


@pytest.mark.slow
def test_the_error_of_points_falls_with_epsilon() -> None:
    """Takes seconds: eight simulated streams for each of four budgets."""
    found, schema = [], StreamConfig.from_toml(text_of("points")).schema
    for epsilon in (0.25, 0.5, 1.0, 2.0):
        partition, budget = Partition(dimension=2, depth=12), Budget(epsilon=epsilon, delta=0.0)
        made = FromNodes(
            mechanism=Points(partition=partition, budget=budget, horizon=50, schedule=Schedule(dimension=2))
        )
        (piece,) = made.simulations(Expected(schema, [50], 100.0))
        found.append(piece()[50])
    boxes, distances = [one.box for one in found], [one.distance or 0.0 for one in found]
    assert boxes == sorted(boxes, reverse=True)
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] > 0


def test_a_release_of_many_tables_is_not_told_as_if_rows_took_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def takes(measured: Measured, *, start: Population, seed: int) -> None:
        now[0] += 10 + len(start.codes) / 10_000

    monkeypatch.setattr(tables, "fit", takes)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    config = StreamConfig.from_toml(text_of("always"))
    found = synthesizer_of(config).seconds(Expected(config.schema, [1, 300], 2000.0))
    assert found == pytest.approx(10 + 60, rel=0.1)
