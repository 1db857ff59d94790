"""How far off the largest cell can be, and how many tables to pick: from public facts alone.

The bound is on noise. It holds before the fit, and says nothing about events that no measurement has counted yet.

Derivation. One draw of discrete Laplace noise of scale b has P(x) = (1 - p) / (1 + p) p^|x| with p = exp(-1 / b). Its
moment generating function is a quotient of two geometric series,

    E exp(s X) = (1 - p)^2 / ((1 - p e^s) (1 - p e^-s)) = 1 / (1 - v (cosh s - 1)),      v = 2 p / (1 - p)^2,

for v (cosh s - 1) < 1, because (1 - p e^s) (1 - p e^-s) = (1 - p)^2 - 2 p (cosh s - 1); v is the draw's variance. A
cell's noise S is a sum of independent draws, each added or taken away once, of variances v_i that sum to V, none above
v. As -log(1 - u) / u grows with u,

    log E exp(s S) = sum_i -log(1 - v_i (cosh s - 1)) <= -(V / v) log(1 - v (cosh s - 1)),

and so P(|S| >= x) <= 2 exp(-(V / v) log(1 - v (cosh s - 1)) - s x) for each such s > 0 (Chernoff). With n = V / v the
best s is that with n v sinh s = x (1 - v (cosh s - 1)), a quadratic equation in e^s. A single draw needs no bound:
P(|X| > x) = 2 p^(floor(x) + 1) / (1 + p).

Discrete Gaussian noise satisfies E exp(s X) <= exp(s^2 sigma^2 / 2): the left side is the right one times the sum of
exp(-(k - s sigma^2)^2 / (2 sigma^2)) over all integers k, by the same sum without the shift, which is the largest of
all shifts, since its Fourier series has no negative term (Canonne, Kamath, Steinke 2020). So a sum with coefficients
c_i has P(|S| >= x) <= 2 exp(-x^2 / (2 sigma^2 sum_i c_i^2)). On a fine grid the normal law itself is a bound: with Y
normal and sigma in units of the grid, P(X = k) <= exp(1 / (24 sigma^2)) P(k - 1/2 < Y < k + 1/2), because the sum of
exp(-k^2 / (2 sigma^2)) over all integers is at least sigma sqrt(2 pi) (Poisson), and the mean over the interval of
exp(-y^2 / (2 sigma^2)) is at least exp(-(k^2 + 1/12) / (2 sigma^2)) (Jensen). So for n draws each probability is at
most exp(n / (24 sigma^2)) times that of rounded normal ones, which are at most half a grid step from normal ones.

The probability that any of many cells is off is at most the sum over cells. Nothing is assumed about the data. The
bound is 1 to 1.6 times as large as what 95 % of releases of 20 cells need (docs/accuracy.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaincinv, gammaln, xlogy

from synthstream.kernel.counters import Counter
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.kinds import Noise
from synthstream.strategies.variances import gaussian_variance, laplace_variance
from synthstream.workload import FloatArray

# How often a release may break the bound that `plan` prints.
BETA = 0.05
# Stands for the number of ticks of a stream without end in rules.
LONG = 1000


@dataclass(frozen=True, kw_only=True)
class CellNoise:
    """Noise of cells that are all alike.

    Args:
        cells: how many.
        variance: of the noise of one cell; for Gaussian noise its sub-Gaussian parameter, which is at least that.
        widest: scale of its widest draw, in counts; Gaussian noise does not need it.
        noise: law of its draws.
        slack: what rounding adds to the noise at most, in events.
        excess: for Gaussian noise, its probabilities are at most this times those of the normal law of that variance.
    """

    cells: int
    variance: float
    widest: float
    noise: Noise
    slack: float = 0.0
    excess: float = math.inf

    def tail(self, x: float) -> float:
        """A bound on the probability that one cell is off by more than ``x`` events."""
        x -= self.slack
        if x <= 0:
            return 1.0
        if self.variance < 1e-100:
            return self.variance  # whole numbers, at hardly any noise: Chebyshev, P(|S| >= 1) <= E S^2
        if self.noise == "gaussian":
            square = x * x / (2 * self.variance)
            normal = math.erfc(math.sqrt(square))
            return min(1.0, 2 * math.exp(-square), 1.0 if math.isinf(self.excess) else self.excess * normal)
        largest = laplace_variance(self.widest)
        draws = self.variance / largest
        if draws <= 1 + 1e-9:
            ratio = -1 / self.widest
            return min(1.0, 2 * math.exp((math.floor(x) + 1) * ratio) / (1 + math.exp(ratio)))
        return min(1.0, 2 * math.exp(_log_chernoff(x, draws, largest)))


@dataclass(frozen=True, kw_only=True)
class Together:
    """Noise of the cells of a table that gets it together with others (theorem ``joint-laplace``).

    Args:
        cells, whole: how many the table has, and all tables of its group.
        widest: scale of the noise.
    """

    cells: int
    whole: int
    widest: float

    def tail(self, x: float) -> float:
        """The probability that one cell is off by more than ``x`` events, as over real numbers at one event less.

        Over real numbers the radius, in units of the scale, has the Gamma law of order ``whole + 1``, and a cell is
        beyond x within a radius r with probability (1 - x / r)^cells. Whole numbers were found to be more often beyond
        x than real ones beyond x - 1 only where the scale is 1 or less, with probabilities below 1e-5.
        """
        radius, weight = _radii(self.whole)
        share = np.clip(1 - (x - 1) / np.maximum(self.widest * radius, 1e-300), 0.0, 1.0)
        return min(1.0, float(weight @ share**self.cells))


@lru_cache(maxsize=64)
def _radii(whole: int) -> tuple[FloatArray, FloatArray]:
    """Radii and their weights, which add up to 1: Gauss-Legendre over all that the Gamma law has, but for 1e-15."""
    low, high = (float(gammaincinv(whole + 1, share)) for share in (1e-15, 1 - 1e-15))
    nodes, weights = np.polynomial.legendre.leggauss(200)
    radii = low + (high - low) * (nodes + 1) / 2
    density = weights * np.exp(xlogy(whole, radii) - radii - gammaln(whole + 1))
    return radii, density / density.sum()


def of_running_counts(mechanism: Marginals, tick: int, *, beta: float = BETA) -> float:
    """What no cell of any running count after a tick is off by, with probability 1 - ``beta``, in events.

    Before the fit.

    Args:
        mechanism: what measures.
        tick: 0-based.
        beta: probability of failure, for this tick alone, between 0 and 1.

    Raises:
        ValueError: beta is out of range.
    """
    lengths, multipliers = mechanism.workload.lengths, mechanism.multipliers
    alike = [
        noise_of(mechanism.counter, tick, float(m), int(lengths[multipliers == m].sum()), mechanism.resolution / 2)
        for m in np.unique(multipliers)
    ]
    return bound(alike, beta=beta)


def of_refreshed(mechanism: Refreshed, tick: int, *, beta: float = BETA) -> float:
    """As :func:`of_running_counts`: of every count as it is known after a tick."""
    variance, slack = mechanism.covariance(tick, tick), mechanism.resolution / 2
    alike = [
        CellNoise(cells=int(cells), variance=float(known), widest=math.sqrt(known), noise="gaussian", slack=slack)
        for cells, known in zip(mechanism.workload.lengths, variance, strict=True)
    ]
    return bound(alike, beta=beta)


def of_an_epoch(mechanism: Epochs, tick: int, *, beta: float = BETA) -> float:
    """As :func:`of_running_counts`: of the running total, and of the other tables over the one epoch that ends.

    Earlier epochs have errors of their own, and which tables are chosen is left open. How many are: ``nearest``.
    """
    alike: list[CellNoise | Together] = [noise_of(mechanism.counter, tick, mechanism.total_multiplier, 1)]
    lengths = mechanism.workload.lengths
    larger = np.sort(lengths[mechanism.order == 2])[::-1][: mechanism.nearest()]
    scales = mechanism.scales[mechanism.nearest()]
    found = [(float(scales[group[0]]), int(lengths[group[0]])) for group in mechanism.groups if len(group) == 1]
    for group in (group for group in mechanism.groups if len(group) > 1):
        sizes = lengths[list(group)].tolist()
        alike += [Together(cells=n, whole=sum(sizes), widest=float(scales[group[0]])) for n in sizes]
    if larger.size:
        # Which tables are chosen is open; they all have the same scale, and at most the cells of the largest.
        found.append((float(scales[mechanism.order == 2].max()), int(larger.sum())))
    alike += [
        CellNoise(cells=cells, variance=laplace_variance(scale), widest=scale, noise="laplace")
        for scale, cells in found
    ]
    return bound(alike, beta=beta)


def bound(alike: Sequence[CellNoise | Together], *, beta: float) -> float:
    """The smallest x, to 1 part in 10^6, for which the tails of all cells at x add up to at most ``beta``.

    Raises ``ValueError`` if beta is not between 0 and 1.
    """
    if not 0 < beta < 1:
        raise ValueError(f"beta must be between 0 and 1, not {beta}")

    def failure(x: float) -> float:
        return sum(noise.cells * noise.tail(x) for noise in alike)

    low, high = 0.0, 1.0
    while failure(high) > beta:
        low, high = high, 2 * high
    while high - low > 1e-6 * high and high > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if failure(middle) > beta else (low, middle)
    return high


def picks_rule(
    sizes: Sequence[int], *, queries: int, events: float, ticks: int, epsilon: float, beta: float = BETA
) -> int:
    """How many queries to measure in a tick: k* = (a / 2b)^(2/3), where a / sqrt(k) + b k is the bound of Theorem 5.1.

    Few picks leave the data unknown, many picks share out the budget; k* makes the bound smallest. The number of ticks
    enters by its logarithm alone. All arguments are public expectations; never put in a count of the private data.

    Args:
        sizes: number of codes of each column; |X| is their product.
        queries: |Q|, queries that may be picked.
        events: events that a tick brings.
        ticks: T.
        epsilon: of the whole stream.
        beta: probability of failure.

    Returns:
        k* rounded to a whole number, at least 1 and at most ``queries``.

    Raises:
        ValueError: an argument is not above 0, or beta not below 1.

    Example:
        >>> picks_rule((2,) * 10, queries=45, events=50, ticks=977, epsilon=1.0)
        1
        >>> picks_rule((2,) * 10, queries=45, events=5000, ticks=50, epsilon=1.0)
        29

    Source: Kumar, Strohmer, Vershynin, end of appendix A.
    """
    near, far = theorem_5_1(sizes, queries, events, ticks, epsilon, beta)
    return int(min(max(1, round((near / (2 * far)) ** (2 / 3))), queries))


def theorem_5_1(
    sizes: Sequence[int], queries: int, events: float, ticks: int, epsilon: float, beta: float
) -> tuple[float, float]:
    """Theorem 5.1 before its last step: a and b of a / sqrt(k) + b k, below which all queries' errors stay.

    2 |f| sqrt(ln |X| / k) + (6 k T / epsilon) ln(2 T |Q|^(5/3) / beta), in events, at the last tick, with probability
    1 - beta, for StreamingMWEM with k choices that cost epsilon / 2k each and k counts of noise 2k / epsilon. It takes
    |f| as known. Arguments as of :func:`picks_rule`. Source: Kumar, Strohmer, Vershynin, appendix A.
    """
    if not (min(sizes) >= 1 and queries >= 1 and events > 0 and ticks >= 1 and epsilon > 0 and 0 < beta < 1):
        raise ValueError("sizes, queries, events, ticks and epsilon must be above 0, and beta between 0 and 1")
    near = 2 * events * ticks * math.sqrt(sum(math.log(size) for size in sizes))
    far = 6 * ticks / epsilon * math.log(2 * ticks * queries ** (5 / 3) / beta)
    return near, far


def _log_chernoff(x: float, draws: float, variance: float) -> float:
    """Log of the bound on P(S >= x) for a sum of ``draws`` draws of a variance; any s is a proof, the best is used."""
    root = math.sqrt(x * x * (1 + 2 * variance) + (draws * variance) ** 2)
    above = (x + x * x * (1 + 2 * variance) / (root + variance * draws)) / (variance * (draws + x))
    s = math.log1p(above) * (1 - 1e-9)  # stays below the end of the interval in spite of rounding
    inside = variance * 2 * math.sinh(s / 2) ** 2
    if not inside < 1:
        return 0.0
    return min(0.0, -draws * math.log1p(-inside) - s * x)


def noise_of(counter: Counter, tick: int, multiplier: float, cells: int, slack: float = 0.0) -> CellNoise:
    """Noise of ``cells`` alike cells of a counter after a tick, 0-based. ``slack``: in events, as for the result."""
    variance = counter.variance(tick, multiplier=multiplier)
    widest = counter.widest(tick, multiplier=multiplier)
    excess = math.inf
    if counter.grid_bits:
        # Fixed point and rounding: at most 2^(1 - bits) a tick before decoding; Cauchy and Schwarz bound the sum.
        norm = math.sqrt(variance) / widest
        slack += 2.0 ** (1 - counter.grid_bits) * math.sqrt(tick + 1) * norm
        excess = math.exp(min((tick + 1) / (24 * (widest * 2.0**counter.grid_bits) ** 2), 100.0))
    elif counter.noise == "gaussian" and variance > 0:
        variance *= widest**2 / gaussian_variance(widest)
    return CellNoise(cells=cells, variance=variance, widest=widest, noise=counter.noise, slack=slack, excess=excess)
