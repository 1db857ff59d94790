"""Graphical models against enumeration of all combinations of codes."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest

from synthstream.papers.fit.graphical import Graphical
from synthstream.papers.fit.junction import junction, model_megabytes
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


def test_size() -> None:
    sizes = (100, 100, 100)
    assert model_megabytes(sizes, [(0, 1), (1, 2)]) == pytest.approx(0.16)
    assert model_megabytes(sizes, [(0, 1), (1, 2), (0, 2)]) == pytest.approx(8.0)
    assert model_megabytes((10**6,) * 5, [(0, 1, 2, 3, 4)]) == pytest.approx(8e24)


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
