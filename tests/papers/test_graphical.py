"""Graphical models against enumeration of all combinations of codes."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from synthstream.papers.fit import exact, solving
from synthstream.papers.fit.graphical import Graphical, ModelTooLarge, fit_graphical, model_megabytes
from synthstream.papers.fit.junction import junction
from synthstream.workload import FloatArray, Workload

Clique = tuple[int, ...]


def joint(model: Graphical) -> FloatArray:
    """Expected counts of all combinations, by enumeration."""
    log = np.zeros(model.sizes)
    for clique, potential in zip(model.cliques, model.potentials, strict=True):
        log = log + potential.reshape([n if c in clique else 1 for c, n in enumerate(model.sizes)])
    table = np.exp(log - log.max())
    return np.asarray(table / table.sum() * model.total)


def sums(table: FloatArray, columns: Sequence[int]) -> FloatArray:
    """A marginal by enumeration, its columns in the given order."""
    kept = sorted(columns)
    part = table.sum(axis=tuple(c for c in range(table.ndim) if c not in kept))
    return np.asarray(part.transpose([kept.index(c) for c in columns]))


def random_model(rng: np.random.Generator, sizes: tuple[int, ...], spread: float = 2.0) -> Graphical:
    cliques = random_cliques(rng, len(sizes), 5)
    unique = tuple(dict.fromkeys(tuple(sorted(c)) for c in cliques if c))
    potentials = tuple(rng.normal(0, spread, [sizes[c] for c in clique]) for clique in unique)
    return Graphical(sizes=sizes, total=50.0, cliques=unique, potentials=potentials)


def random_cliques(rng: np.random.Generator, columns: int, most: int) -> list[Clique]:
    orders = rng.integers(0, min(columns, 3) + 1, size=int(rng.integers(1, most + 1)))
    return [tuple(rng.choice(columns, size=k, replace=False).tolist()) for k in orders]


def random_problem(
    seed: int, noise: float
) -> tuple[tuple[int, ...], list[Clique], list[FloatArray], FloatArray, float]:
    """Column sizes, cliques in any order, noisy tables, weights and total."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(1, 5, size=int(rng.integers(1, 6))))
    cliques = random_cliques(rng, len(sizes), 7)
    total = 200.0
    truth = rng.dirichlet(np.full(math.prod(sizes), 0.5)).reshape(sizes) * total
    values = [sums(truth, c) + rng.normal(0, noise, [sizes[k] for k in c]) for c in cliques]
    return sizes, cliques, values, rng.uniform(0.1, 3.0, len(cliques)), total


def loss(model: Graphical, cliques: Sequence[Clique], values: Sequence[FloatArray], weights: FloatArray) -> float:
    terms = zip(cliques, values, weights, strict=True)
    return float(sum(w * np.sum((model.table(c) - v) ** 2) for c, v, w in terms))


def best_tables(
    sizes: tuple[int, ...], cliques: Sequence[Clique], values: Sequence[FloatArray], weights: FloatArray, total: float
) -> list[FloatArray]:
    """Tables at the optimum, by non-negative least squares over all combinations; the total as a very heavy row."""
    cells = math.prod(sizes)
    units = np.eye(cells).reshape(cells, *sizes)
    blocks = [np.stack([sums(u, c).reshape(-1) for u in units], axis=1) for c in cliques]
    rows = [np.sqrt(w) * b for w, b in zip(weights, blocks, strict=True)]
    aims = [np.sqrt(w) * v.reshape(-1) for w, v in zip(weights, values, strict=True)]
    solution, _ = nnls(np.vstack([*rows, 1e4 * np.ones(cells)]), np.concatenate([*aims, [1e4 * total]]))
    return [(b @ solution).reshape(v.shape) for b, v in zip(blocks, values, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_tables_and_answers_are_those_of_the_joint(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(1, 5, size=int(rng.integers(1, 7))))
    model = random_model(rng, sizes)
    full = joint(model)
    workload = Workload.all_up_to(min(3, len(sizes)), sizes=sizes)
    answers = model.answers(workload)
    for marginal in workload.marginals:
        table = sums(full, marginal)
        np.testing.assert_allclose(answers[workload.slice_of(marginal)], table.reshape(-1), atol=1e-11)
        turned = marginal[::-1]
        np.testing.assert_allclose(model.table(turned), sums(full, turned), atol=1e-11)


def test_large_potentials_survive() -> None:
    rng = np.random.default_rng(0)
    cliques = ((0, 1), (1, 2), (2, 3), (0, 3))
    potentials = tuple(rng.uniform(-50, 50, (3, 3)) for _ in cliques)
    model = Graphical(sizes=(3, 3, 3, 3), total=1.0, cliques=cliques, potentials=potentials)
    np.testing.assert_allclose(model.table((0, 2)), sums(joint(model), (0, 2)), atol=1e-12)
    far = Graphical(
        sizes=(2, 2),
        total=1.0,
        cliques=((0,), (1,), (0, 1)),
        potentials=(np.array([0.0, -2000.0]), np.array([-2000.0, 0.0]), np.array([[0.0, -3000.0], [0.0, 0.0]])),
    )
    np.testing.assert_allclose(far.table((0, 1)), joint(far), atol=1e-12)


@pytest.mark.parametrize("noise", [1.0, 20.0])
@pytest.mark.parametrize("seed", range(12))
def test_the_fit_is_the_optimum(seed: int, noise: float) -> None:
    sizes, cliques, values, weights, total = random_problem(seed, noise)
    model = fit_graphical(sizes, cliques, values, weights, total)
    best = best_tables(sizes, cliques, values, weights, total)
    for clique, table in zip(cliques, best, strict=True):
        np.testing.assert_allclose(model.table(clique), table, atol=1e-6 * total)


@pytest.mark.sparing(2)
@pytest.mark.parametrize("seed", range(6))
def test_the_general_method_finds_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(seed, 5.0)
    model = fit_graphical(*problem)
    monkeypatch.setattr(solving, "MOST", 0)
    general = fit_graphical(*problem, iterations=3000, tolerance=1e-12)
    sizes, cliques, values, weights, total = problem
    assert loss(general, cliques, values, weights) <= loss(model, cliques, values, weights) * (1 + 1e-4) + 1e-6
    for clique in cliques:
        np.testing.assert_allclose(general.table(clique), model.table(clique), atol=2e-3 * total)
    del sizes


def test_unmeasured_tables_have_maximum_entropy() -> None:
    # With a cycle no table follows from independence alone; at the optimum entropy grows in no feasible direction.
    rng = np.random.default_rng(3)
    sizes, cliques = (2, 3, 2, 3), [(0, 1), (1, 2), (2, 3), (0, 3)]
    truth = rng.dirichlet(np.full(36, 2.0)).reshape(sizes) * 100
    values = [sums(truth, c) for c in cliques]
    model = fit_graphical(sizes, cliques, values, np.ones(4), 100.0, tolerance=1e-12)
    for clique, value in zip(cliques, values, strict=True):
        np.testing.assert_allclose(model.table(clique), value, atol=1e-6)
    full = joint(model)
    units = np.eye(36).reshape(36, *sizes)
    rows = np.vstack([np.stack([sums(u, c).reshape(-1) for u in units], axis=1) for c in cliques])
    _, _, basis = np.linalg.svd(rows)
    free = basis[np.linalg.matrix_rank(rows) :]
    np.testing.assert_allclose(free @ np.log(full.reshape(-1)), 0, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_a_warm_start_finds_the_same(seed: int) -> None:
    sizes, cliques, values, weights, total = random_problem(seed, 5.0)
    start = fit_graphical(sizes, cliques[::-1], [v * 0.7 + 3 for v in values[::-1]], weights[::-1], 150.0)
    cold = fit_graphical(sizes, cliques, values, weights, total)
    warm = fit_graphical(sizes, cliques, values, weights, total, start=start)
    workload = Workload.all_up_to(2 if len(sizes) > 1 else 1, sizes=sizes)
    np.testing.assert_allclose(warm.answers(workload), cold.answers(workload), atol=1e-5 * total)


def test_keep_moves_only_what_is_measured() -> None:
    rng = np.random.default_rng(5)
    sizes = (3, 2, 4)
    start = fit_graphical(sizes, [(0, 1), (1, 2)], [rng.uniform(1, 9, (3, 2)), rng.uniform(1, 9, (2, 4))], [1, 1], 60.0)
    aim = np.array([10.0, 20.0, 70.0])
    kept = fit_graphical(sizes, [(0,)], [aim], [1.0], 100.0, start=start, keep=True)
    before, after = joint(start.scaled(100.0)), joint(kept)
    # The nearest distribution with another margin keeps everything given that column.
    expected = before / sums(before, (0,))[:, None, None] * aim[:, None, None]
    np.testing.assert_allclose(after, expected, atol=1e-6)
    assert set(kept.cliques) == {(0,), (0, 1), (1, 2)}
    dropped = fit_graphical(sizes, [(0,)], [aim], [1.0], 100.0, start=start)
    np.testing.assert_allclose(dropped.table((0, 1, 2)), np.ones(sizes) * aim[:, None, None] / 8, atol=1e-6)


def test_keep_works_with_cycles_and_stays_below_the_cap() -> None:
    rng = np.random.default_rng(6)
    sizes = (4, 4, 4)
    start = random_model(rng, sizes, 1.0)
    start = Graphical(sizes=sizes, total=50.0, cliques=((0, 1), (1, 2)), potentials=tuple(rng.normal(size=(2, 4, 4))))
    aim = sums(rng.dirichlet(np.ones(64)).reshape(sizes), (0, 2)) * 50
    model = fit_graphical(sizes, [(0, 2)], [aim], [1.0], 50.0, start=start, keep=True)
    before = joint(start)
    np.testing.assert_allclose(joint(model), before * (aim / sums(before, (0, 2)))[:, None, :], atol=1e-5)
    small = fit_graphical(sizes, [(0, 2)], [aim], [1.0], 50.0, start=start, keep=True, cap_mb=0.0003)
    assert small.cliques == ((0, 2), (0, 1))


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_rounded_down_the_tree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = (4, 3, 5, 2)
    cliques = ((0, 1), (1, 2), (2, 3))
    model = Graphical(
        sizes=sizes,
        total=10.0,
        cliques=cliques,
        potentials=tuple(rng.normal(size=[sizes[c] for c in q]) for q in cliques),
    )
    n = 5000
    rows = model.rows(n, rng)
    assert rows.shape == (n, 4)
    assert rows.dtype == np.int32
    assert np.all((rows >= 0) & (rows < sizes))
    root = junction(sizes, cliques).cliques[0]
    workload = Workload(sizes=sizes, marginals=cliques)
    counts, expected = workload.count(rows), model.scaled(n).answers(workload)
    for clique in cliques:
        part = workload.slice_of(clique)
        # One for a table's own rounding; what is shared is off by at most the sum over the root's cells.
        bound = 1.0 if clique == root else 1.0 + 2 * max(sizes)
        assert np.abs(counts[part] - expected[part]).max() <= bound + 1e-9
    assert np.array_equal(model.rows(200, np.random.default_rng(1)), model.rows(200, np.random.default_rng(1)))


def test_rows_have_the_expected_mean_and_no_order() -> None:
    model = Graphical(
        sizes=(2, 3), total=1.0, cliques=((0, 1),), potentials=(np.log([[0.1, 0.2, 0.05], [0.3, 0.15, 0.2]]),)
    )
    rng = np.random.default_rng(0)
    mean = (
        sum(np.bincount(r[:, 0] * 3 + r[:, 1], minlength=6) for r in (model.rows(3, rng) for _ in range(4000))) / 4000
    )
    np.testing.assert_allclose(mean, model.scaled(3).table((0, 1)).reshape(-1), atol=0.04)
    rows = model.rows(10_000, rng)
    assert abs(rows[:5000, 0].mean() - rows[5000:, 0].mean()) < 0.05


@pytest.mark.parametrize("total", [0.0, -5.0])
def test_no_rows_at_all(total: float) -> None:
    model = fit_graphical((2, 3), [(0, 1)], [np.full((2, 3), -4.0)], [1.0], total)
    assert model.total == 0.0
    assert np.array_equal(model.table((0, 1)), np.zeros((2, 3)))
    assert np.array_equal(model.answers(Workload.all_up_to(2, sizes=(2, 3))), np.zeros(12))
    assert model.rows(5, np.random.default_rng(0)).shape == (0, 2)
    assert model.scaled(6.0).table((0,)).sum() == pytest.approx(6.0)


@pytest.mark.parametrize("value", [0.0, -1e9, 1e12])
def test_values_out_of_all_proportion(value: float) -> None:
    values = [np.full((3, 2), value), np.array([value, 0.0])]
    model = fit_graphical((3, 2, 4), [(0, 1), (1,)], values, [1.0, 2.0], 30.0)
    table = model.table((0, 1, 2))
    assert np.all(np.isfinite(table))
    assert table.sum() == pytest.approx(30.0)
    np.testing.assert_allclose(table.sum(axis=(1, 2)), [10.0] * 3, atol=1e-4)
    wild = np.random.default_rng(0).normal(size=(3, 2)) * 1e9
    model = fit_graphical((3, 2), [(0, 1)], [wild], [1.0], 30.0)
    best = np.unravel_index(wild.argmax(), wild.shape)
    assert model.table((0, 1))[best] == pytest.approx(30.0)


def test_columns_with_one_value() -> None:
    model = fit_graphical(
        (1, 3, 1),
        [(0, 1), (1, 2), (0,), ()],
        [np.array([[1.0, 2.0, 3.0]]), np.array([[1.0], [2.0], [3.0]]), np.array([7.0]), np.array(9.0)],
        [1.0, 1.0, 1.0, 1.0],
        6.0,
    )
    np.testing.assert_allclose(model.table((1, 0)), [[1.0], [2.0], [3.0]], atol=1e-6)
    assert model.rows(6, np.random.default_rng(0))[:, 1].tolist().count(2) == 3


def test_the_same_input_gives_the_same_bits() -> None:
    problem = random_problem(11, 20.0)
    first, second = fit_graphical(*problem), fit_graphical(*problem)
    for a, b in zip(first.potentials, second.potentials, strict=True):
        assert np.array_equal(a, b)


def test_size_and_cap() -> None:
    sizes = (100, 100, 100)
    assert model_megabytes(sizes, [(0, 1), (1, 2)]) == pytest.approx(0.16)
    assert model_megabytes(sizes, [(0, 1), (1, 2), (0, 2)]) == pytest.approx(8.0)
    assert model_megabytes((10**6,) * 5, [(0, 1, 2, 3, 4)]) == pytest.approx(8e24)
    values = [np.zeros((100, 100))] * 3
    with pytest.raises(ModelTooLarge, match=r"\(0, 1\), \(1, 2\), \(0, 2\).* 8\.0 MB.* 7 MB"):
        fit_graphical(sizes, [(0, 1), (1, 2), (0, 2)], values, [1, 1, 1], 1.0, cap_mb=7)


def test_arrays_round_trip() -> None:
    model = random_model(np.random.default_rng(1), (2, 3, 4))
    for m in (model, Graphical.uniform((2, 3, 4), 5.0)):
        file = io.BytesIO()
        np.savez(file, **m.arrays())  # type: ignore[arg-type]  # the stubs take keywords for allow_pickle
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            again = Graphical.from_arrays(m.sizes, stored)
        assert (again.total, again.cliques) == (m.total, m.cliques)
        assert all(np.array_equal(a, b) for a, b in zip(again.potentials, m.potentials, strict=True))
    with pytest.raises(ValueError, match="cells"):
        Graphical.from_arrays((2, 3, 5), model.arrays())
    with pytest.raises(ValueError, match="column"):
        Graphical.from_arrays((2,), {**model.arrays()})


BAD: list[tuple[dict[str, Any], str]] = [
    ({"cliques": [(0, 2)]}, "cliques"),
    ({"cliques": [(0, 0)]}, "cliques"),
    ({"values": [np.zeros((3, 2))]}, "shape"),
    ({"values": [np.full((2, 3), np.nan)]}, "finite"),
    ({"weights": [0.0]}, "weights"),
    ({"weights": [np.inf]}, "weights"),
    ({"weights": [1.0, 1.0]}, "fit"),
    ({"total": math.nan}, "total"),
    ({"sizes": ()}, "sizes"),
    ({"start": Graphical.uniform((2, 2), 1.0)}, "start"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_wrong_input_is_refused(change: dict[str, Any], message: str) -> None:
    good = {"sizes": (2, 3), "cliques": [(0, 1)], "values": [np.zeros((2, 3))], "weights": [1.0], "total": 5.0}
    with pytest.raises(ValueError, match=message):
        fit_graphical(**{**good, **change})


def test_wrong_questions_are_refused() -> None:
    model = Graphical.uniform((2, 3), 6.0)
    with pytest.raises(ValueError, match="columns"):
        model.table((0, 0))
    with pytest.raises(ValueError, match="columns"):
        model.table((2,))
    with pytest.raises(ValueError, match="sizes"):
        model.answers(Workload.all_up_to(1, sizes=(2, 2)))
    with pytest.raises(ValueError, match="n:"):
        model.rows(-1, np.random.default_rng(0))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), noise=st.sampled_from([0.0, 1.0, 30.0, 3000.0]))
def test_properties_of_any_fit(seed: int, noise: float) -> None:
    sizes, cliques, values, weights, total = random_problem(seed, noise)
    model = fit_graphical(sizes, cliques, values, weights, total)
    full = joint(model)
    assert full.sum() == pytest.approx(total)
    # No combination of codes has a gradient below the mean: that is what makes it the optimum.
    gradient = np.zeros(sizes)
    for clique, value, weight in zip(cliques, values, weights, strict=True):
        back = [n if c in clique else 1 for c, n in enumerate(sizes)]
        residual = 2 * weight * (model.table(clique) - value)
        gradient = gradient + np.transpose(residual, sorted(range(len(clique)), key=clique.__getitem__)).reshape(back)
    scale = float(np.abs(gradient).max()) + total
    assert (gradient * full).sum() / total <= gradient.min() + 1e-5 * scale
    assert model.rows(17, np.random.default_rng(seed)).shape == (17, len(sizes))


def test_the_exact_method_says_when_it_did_not_get_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_NEWTON", 0)
    sizes, cliques = (3, 4, 2), [(0, 1), (1, 2)]
    rng = np.random.default_rng(0)
    values = [rng.uniform(0, 9, (3, 4)), rng.uniform(0, 9, (4, 2))]
    model = fit_graphical(sizes, cliques, values, [1.0, 2.0], 50.0)
    monkeypatch.undo()
    again = fit_graphical(sizes, cliques, values, [1.0, 2.0], 50.0)
    np.testing.assert_allclose(model.table((0, 1)), again.table((0, 1)), atol=0.05)
