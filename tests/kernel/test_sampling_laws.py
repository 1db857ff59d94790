"""The laws of the samplers on real random bytes. Each test also shows that it rejects a law that is slightly wrong.

A right sampler fails one of these tests with probability below 1e-12.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from synthstream.kernel.gate import SystemGate
from synthstream.kernel.sampling import discrete_gaussian, discrete_laplace
from synthstream.strategies.variances import gaussian_variance, laplace_variance
from synthstream.workload import FloatArray, IntArray
from tests.support.laws import gaussian_law, laplace_law, p_value

RIGHT, WRONG = 1e-13, 1e-20
Law = Callable[[float], tuple[IntArray, FloatArray]]


def check(samples: IntArray, law: Law, scale: float, *, wrong: float) -> None:
    """The law fits at its own scale, and at no scale that is wrong by the given share."""
    assert p_value(samples, law(scale)) > RIGHT
    assert p_value(samples, law(scale * (1 + wrong))) < WRONG
    assert p_value(samples, law(scale * (1 - wrong))) < WRONG


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5, 30.0, 1024.0])
def test_laplace_law(scale: float) -> None:
    check(discrete_laplace(scale, 1_000_000, entropy=os.urandom), laplace_law, scale, wrong=0.03)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 2.7, 30.0, 1024.0])
def test_gaussian_law(sigma: float) -> None:
    check(discrete_gaussian(sigma, 1_000_000, entropy=os.urandom), gaussian_law, sigma, wrong=0.02)


def test_laws_with_a_scale_for_each_element() -> None:
    scales = np.tile([0.5, 3.0, 40.0], 400_000)
    laplace = discrete_laplace(scales, scales.size, entropy=os.urandom)
    gaussian = discrete_gaussian(scales, scales.size, entropy=os.urandom)
    for i, scale in enumerate((0.5, 3.0, 40.0)):
        check(laplace[i::3], laplace_law, scale, wrong=0.05)
        check(gaussian[i::3], gaussian_law, scale, wrong=0.05)


def test_the_gate_adds_these_laws() -> None:
    value = np.full(300_000, 77, dtype=np.int64)
    check(SystemGate().laplace(value, scale=9.0) - value, laplace_law, 9.0, wrong=0.05)
    check(SystemGate().gaussian(value, sigma=9.0) - value, gaussian_law, 9.0, wrong=0.05)


@pytest.mark.sparing(0)
@pytest.mark.parametrize("sigma", [2.0**27, 2.0**36])
def test_wide_gaussians(sigma: float) -> None:
    """Moments, and the normal law, which at this width is the same to one part in sigma."""
    n = 1_000_000
    x = discrete_gaussian(sigma, n, entropy=os.urandom) / sigma
    assert abs(x.mean()) < 7.5 / math.sqrt(n)
    assert abs(x.var() - gaussian_variance(sigma) / sigma**2) < 7.5 * math.sqrt(2 / n)
    assert abs(x.var() - 1.02**2) > 7.5 * math.sqrt(2 / n)
    assert stats.kstest(x, stats.norm.cdf).pvalue > RIGHT
    assert stats.kstest(x * 1.03, stats.norm.cdf).pvalue < WRONG


@pytest.mark.sparing(0)
@pytest.mark.parametrize("scale", [2.0**20, 2.0**36])
def test_wide_laplaces(scale: float) -> None:
    n = 1_000_000
    x = discrete_laplace(scale, n, entropy=os.urandom) / scale
    assert abs(x.mean()) < 7.5 * math.sqrt(2 / n)
    assert abs(x.var() - laplace_variance(scale) / scale**2) < 7.5 * math.sqrt(20 / n)
    assert stats.kstest(x, stats.laplace.cdf).pvalue > RIGHT
    assert stats.kstest(x * 1.03, stats.laplace.cdf).pvalue < WRONG


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_samples_are_independent(sampler: Callable[..., IntArray]) -> None:
    """No correlation between neighbours, in sign or in size; a sample in a hundred that is repeated would show."""
    n = 1_000_000

    def correlations(x: IntArray) -> list[float]:
        sizes = np.abs(x) - np.abs(x).mean()
        return [float(np.corrcoef(y[lag:], y[:-lag])[0, 1]) for y in (np.sign(x), sizes) for lag in (1, 2, 3)]

    x = sampler(1000.0, n, entropy=os.urandom)
    assert max(map(abs, correlations(x))) < 7.5 / math.sqrt(n)
    repeated = np.arange(n) % 100 == 1
    x[repeated] = x[np.flatnonzero(repeated) - 1]
    assert max(correlations(x)) > 7.5 / math.sqrt(n)


# -- OpenDP as the oracle -------------------------------------------------------------------------------------------


def opendp_samples(kind: str, scale: float, n: int) -> IntArray:
    """The same law from an independent implementation."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int), size=n)
    if kind == "laplace":
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=scale)
    else:
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=int), scale=scale)
    return np.array(measurement([0] * n), dtype=np.int64)


def two_sample_p_value(a: IntArray, b: IntArray) -> float:
    """Chi-square that two samples of equal size come from one law, over 50 bins of their common quantiles."""
    edges = np.unique(np.quantile(np.concatenate([a, b]), np.linspace(0, 1, 51)[1:-1]))
    table = np.array([np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in (a, b)])
    table = table[:, table.sum(axis=0) >= 50]
    return float(stats.chi2_contingency(table).pvalue)


@pytest.mark.sparing(0, 2)
@pytest.mark.parametrize("scale", [0.7, 1.0, 5.3, 1000.0, 2.0**20])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_opendp_draws_the_same_law(kind: str, scale: float) -> None:
    n = 200_000
    sampler = discrete_laplace if kind == "laplace" else discrete_gaussian
    oracle = opendp_samples(kind, scale, n)
    assert two_sample_p_value(sampler(scale, n, entropy=os.urandom), oracle) > RIGHT
    assert two_sample_p_value(sampler(scale * 1.05, n, entropy=os.urandom), oracle) < WRONG


@pytest.mark.parametrize(
    ("n", "wrong"),
    [pytest.param(4_000_000, 0.01, marks=pytest.mark.slow), pytest.param(15_000_000, 0.005, marks=pytest.mark.soak)],
)
@pytest.mark.parametrize("scale", [0.05, 0.5, 1.0, 7.0, 60.0])
def test_laws_on_many_samples(scale: float, n: int, wrong: float) -> None:
    """A scale that is wrong by 1 % is rejected, and one wrong by 0.5 % with more samples."""
    laplace = discrete_laplace(scale, n, entropy=os.urandom)
    gaussian = discrete_gaussian(scale, n, entropy=os.urandom)
    if scale == 0.05:  # hardly anything but zeros
        ones, chance = np.count_nonzero(laplace), 2 / (math.exp(20) + 1)
        assert ones <= stats.poisson.isf(RIGHT, n * chance)
        assert not gaussian.any()
    else:
        check(laplace, laplace_law, scale, wrong=wrong)
        check(gaussian, gaussian_law, scale, wrong=wrong)
