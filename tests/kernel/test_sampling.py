"""Every decision of the samplers, compared with exact arithmetic on the same random bits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from synthstream.kernel import sampling
from synthstream.kernel.sampling import Entropy, discrete_gaussian, discrete_laplace
from synthstream.strategies.variances import gaussian_variance, laplace_variance
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray, IntArray

Sampler = Callable[..., IntArray]
SIGN = 2**63
HALF = 2**63  # as 64 fresh bits: U moves to the middle of its interval
LAPLACE_SCALES = [0.05, 0.3, 1.0, 2.5, 1 / 3, 1000.1, 2.0**20, 2.0**36]
GAUSSIAN_SCALES = [0.05, 0.5, 1.0, 3.7, 1000.1, 2.0**27, 2.0**36]


class Tape:
    """Random bytes that a test has chosen: words and coins first, fresh bits whenever a trial asks for more."""

    def __init__(self, words: Sequence[int], coins: Sequence[int] | None = None, fresh: Sequence[int] = ()) -> None:
        self.words, self.coins, self.fresh = list(words), None if coins is None else list(coins), list(fresh)
        self.refined = 0

    def __call__(self, count: int) -> bytes:
        if count == 8:
            self.refined += 1
            return (self.fresh.pop(0) if self.fresh else HALF).to_bytes(8, "big")
        trials = count // (8 if self.coins is None else 12)
        words, self.words = self.words[:trials], self.words[trials:]
        words += [2**62] * (trials - len(words))
        coins: list[int] = []
        if self.coins is not None:
            coins, self.coins = self.coins[:trials], self.coins[trials:]
            coins += [2**31] * (trials - len(coins))
        return np.array(words, dtype=np.uint64).tobytes() + np.array(coins, dtype=np.uint32).tobytes()


def words(seed: int, count: int, *, bits: int = 64) -> list[int]:
    """Random integers of so many bits."""
    entropy = SeededGate(seed).entropy
    return [int.from_bytes(entropy(8), "big") >> (64 - bits) for _ in range(count)]


def exponential(digits: int, bits: int) -> Decimal:
    """-ln of the middle of an interval of U, as a tape refines it; to 100 digits."""
    with localcontext(prec=100):
        return -((Decimal(digits) + Decimal("0.5")) / Decimal(2) ** bits).ln()


def exact_trial(word: int, coin: int | None, scale: float) -> int | None:
    """What a trial must give, if all fresh bits are ``HALF``. None: rejected."""
    with localcontext(prec=100):
        b = Decimal(scale if coin is None else int(scale) + 1)
        magnitude = int(b * exponential(word % SIGN, 63))
        if magnitude == 0 and word >= SIGN:
            return None
        if coin is not None:
            variance = Decimal(scale) ** 2
            if exponential(coin, 32) <= (magnitude - variance / b) ** 2 / (2 * variance):
                return None
    return -magnitude if word >= SIGN else magnitude


def one(sampler: Sampler, scale: float, word: int, coin: int | None = None, fresh: Sequence[int] = ()) -> int:
    tape = Tape([word], None if coin is None else [coin], fresh)
    return int(sampler(scale, 1, entropy=tape)[0])


def threshold(k: int, scale: float) -> Fraction:
    """2^63 P(E >= k / scale): below this many words the magnitude is at least k."""
    with localcontext(prec=100):
        return Fraction((Decimal(-k) / Decimal(scale)).exp() * 2**63)


def boundary_words(scale: float) -> list[int]:
    """Words at and around the thresholds between magnitudes, with both signs, and the ends of the range."""
    rates = (0.01, 0.3, 1.0, 2.0, 9.0, 30.0)
    magnitudes = sorted({1, 2, *(max(1, int(rate * scale)) for rate in rates)})
    found = [int(threshold(k, scale)) + step for k in magnitudes for step in (-2, -1, 0, 1, 2)]
    found += [1, 2, 3, 2**62, 2**63 - 1, 2**63 - 2]
    found = [word for word in found if 0 < word < SIGN]
    return found + [word + SIGN for word in found]


# -- the logarithm --------------------------------------------------------------------------------------------------


def test_the_logarithm_keeps_its_bound() -> None:
    rng = np.random.default_rng(1)
    points = [(float(word >> word % 63 or 1), 63) for word in words(1, 6_000, bits=63)]
    points += [(2.0**63 - 1024.0 * k, 63) for k in rng.integers(0, 2**20, 1_500).tolist()]
    points += [(max(1.0, float(np.nextafter(2.0**power, 0))), 63) for power in range(64)]
    roots = 2.0 ** (rng.integers(0, 63, 1_000) + 0.5) * (1 + rng.integers(-9, 9, 1_000) * 2.0**-52)
    points += [(root, 63) for root in roots.tolist()]
    points += [(float(word >> word % 32 or 1), 32) for word in words(2, 1_000, bits=32)]
    worst = 0.0
    with localcontext(prec=40):
        ln2 = Decimal(2).ln()
        for x, bits in points:
            true = bits * ln2 - Decimal(x).ln()
            error = abs(Decimal(float(sampling._minus_log(x, bits))) - true) / (1 + true)
            worst = max(worst, float(error))
    assert worst <= 2.0**-51
    assert worst > 2.0**-55  # the comparison is fine enough to see rounding


# -- decisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", LAPLACE_SCALES)
def test_laplace_decisions(scale: float) -> None:
    tried = boundary_words(scale) + words(3, 300)
    expected = [x for x in (exact_trial(word, None, scale) for word in tried) if x is not None]
    tape = Tape(tried)
    assert discrete_laplace(scale, len(expected), entropy=tape).tolist() == expected
    assert tape.refined > 0


@pytest.mark.parametrize("sigma", GAUSSIAN_SCALES)
def test_gaussian_decisions(sigma: float) -> None:
    tried = boundary_words(int(sigma) + 1) + words(4, 300)
    coins = [coin or 1 for coin in words(5, len(tried), bits=32)]
    coins[::4], coins[1::8] = [1] * len(coins[::4]), [2**32 - 1] * len(coins[1::8])
    trials = zip(tried, coins, strict=True)
    expected = [x for x in (exact_trial(word, coin, sigma) for word, coin in trials) if x is not None]
    assert discrete_gaussian(sigma, len(expected), entropy=Tape(tried, coins)).tolist() == expected


@pytest.mark.parametrize("sigma", [0.8, 1.0, 3.7, 1000.1, 2.0**27])
def test_gaussian_coins_at_the_boundary(sigma: float) -> None:
    """Coins whose 32 bits cannot decide are refined, and those beside them are decided as exact arithmetic does."""
    refined = 0
    for word in words(6, 20, bits=63):
        with localcontext(prec=100):
            scale = int(sigma) + 1
            magnitude, variance = int(scale * exponential(word, 63)), Decimal(sigma) ** 2
            chance = (-((magnitude - variance / scale) ** 2) / (2 * variance)).exp()
        for coin in (int(chance * 2**32) + step for step in (-2, -1, 0, 1, 2)):
            if 0 < coin < 2**32:
                tape = Tape([word, 2**60], [coin, 1])  # if the first trial is rejected, the second is taken
                first, second = exact_trial(word, coin, sigma), exact_trial(2**60, 1, sigma)
                assert int(discrete_gaussian(sigma, 1, entropy=tape)[0]) == (second if first is None else first)
                assert second is not None
                refined += tape.refined
    assert refined >= 10


@pytest.mark.parametrize("scale", [0.3, 1.0, 1000.1, 2.0**20])
def test_undecided_words_follow_their_further_bits(scale: float) -> None:
    """The word that holds a threshold: fresh bits on either side of it give the magnitude on either side."""
    for k in {1, 2, max(1, int(scale))}:
        exact = threshold(k, scale)
        word = int(exact)
        further = int((exact - word) * 2**64)
        assert one(discrete_laplace, scale, word, fresh=[further - 1]) == k
        assert one(discrete_laplace, scale, word, fresh=[further + 1]) == k - 1
        last = int(((exact - word) * 2**64 - further) * 2**64)
        assert one(discrete_laplace, scale, word, fresh=[further, last - 1]) == k
        assert one(discrete_laplace, scale, word, fresh=[further, last + 1]) == k - 1


def test_a_word_of_zeros_is_refined_until_a_bit_is_set() -> None:
    tape = Tape([0], fresh=[0, 0, 1])
    x = int(discrete_laplace(1.0, 1, entropy=tape)[0])
    assert tape.refined == 3
    assert x == int(exponential(1, 63 + 3 * 64)) == 176


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.7, 1000.1, 2.0**20])
def test_words_are_shared_out_as_the_law_says(scale: float) -> None:
    """Bisection over all 2^63 words: the number that gives at least k is 2^63 exp(-k / scale), to one word."""
    for k in sorted({1, 2, 3, max(1, int(scale * 0.7)), max(1, int(scale * 3))}):
        low, high = 1, SIGN - 1  # magnitude(low) >= k > magnitude(high)
        while high - low > 1:
            middle = (low + high) // 2
            if one(discrete_laplace, scale, middle) >= k:
                low = middle
            else:
                high = middle
        assert abs(high - threshold(k, scale)) <= 1


@pytest.mark.parametrize("sigma", [0.6, 1.0, 3.7])
def test_words_and_coins_together_make_the_gaussian(sigma: float) -> None:
    """(words that propose y) x (coins that accept it), in proportion to exp(-y^2 / (2 sigma^2)) for all y."""
    scale = int(sigma) + 1
    weights: list[Fraction] = []
    for y in range(int(5 * sigma) + 2):
        proposals = threshold(y, scale) - threshold(y + 1, scale)
        word = int((threshold(y, scale) + threshold(y + 1, scale)) / 2)
        low, high = 0, 2**32  # coins below are accepted
        while high - low > 1:
            middle = (low + high) // 2
            tape = Tape([word], [middle])
            discrete_gaussian(sigma, 1, entropy=tape)
            if exact_trial(word, middle, sigma) is not None:
                assert one(discrete_gaussian, sigma, word, middle) == y
                low = middle
            else:
                high = middle
        weights.append(proposals * high)
    for y, weight in enumerate(weights):
        with localcontext(prec=50):
            expected = float((-(Decimal(y) ** 2) / (2 * Decimal(sigma) ** 2)).exp())
        assert float(weight / weights[0]) == pytest.approx(expected, rel=1e-6, abs=2.0**-30)


# -- the slow path is the same sampler ------------------------------------------------------------------------------


class Count:
    """Counts the trials that floats left undecided."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        inner = sampling._exact_magnitude

        def counted(word: int, scale: Fraction, entropy: Entropy) -> int:
            self.calls += 1
            return inner(word, scale, entropy)

        monkeypatch.setattr(sampling, "_exact_magnitude", counted)


@pytest.mark.sparing(4)
@pytest.mark.parametrize(
    ("sampler", "scale"),
    [(discrete_laplace, s) for s in LAPLACE_SCALES] + [(discrete_gaussian, s) for s in GAUSSIAN_SCALES],
)
def test_without_floats_the_samples_are_the_same(
    sampler: Sampler, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 600
    fast = sampler(scale, size, entropy=SeededGate(5).entropy)
    count = Count(monkeypatch)
    monkeypatch.setattr(sampling, "_BAND", 1e300)
    assert np.array_equal(sampler(scale, size, entropy=SeededGate(5).entropy), fast)
    assert count.calls >= size


@pytest.mark.parametrize(("sampler", "scale"), [(discrete_laplace, 2.0**20), (discrete_gaussian, 2.0**27)])
def test_floats_decide_nearly_always(sampler: Sampler, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Count(monkeypatch)
    sampler(scale, 300_000, entropy=os.urandom)
    assert count.calls < 100


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_a_band_that_is_too_narrow_is_seen(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: trust floats blindly, at a scale where they are visibly wrong."""
    size, scale = 3000, 2.0**36
    honest = sampler(scale, size, entropy=SeededGate(6).entropy)
    monkeypatch.setattr(sampling, "_BAND", -1e-9)
    assert not np.array_equal(sampler(scale, size, entropy=SeededGate(6).entropy), honest)


# -- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), 2.0**36 * (1 + 2.0**-52)])
def test_scales_out_of_range_are_refused_by_name(bad: float) -> None:
    for value in (bad, np.array([1.0, bad, 1.0])):
        with pytest.raises(ValueError, match=r"^scale:"):
            discrete_laplace(value, 3, entropy=os.urandom)
        with pytest.raises(ValueError, match=r"^sigma:"):
            discrete_gaussian(value, 3, entropy=os.urandom)


@pytest.mark.parametrize("shape", [(2,), (4,), (1,), (3, 1), (0,)])
def test_scales_of_the_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^scale: one number, or one for each of 3"):
        discrete_laplace(np.ones(shape), 3, entropy=os.urandom)


def test_sizes() -> None:
    assert discrete_laplace(1.0, 0, entropy=os.urandom).shape == (0,)
    assert discrete_gaussian(np.ones(0), 0, entropy=os.urandom).shape == (0,)
    assert discrete_gaussian(1.0, 70_000, entropy=os.urandom).shape == (70_000,)
    with pytest.raises(ValueError, match="size"):
        discrete_laplace(1.0, -1, entropy=os.urandom)


@pytest.mark.parametrize("short", [lambda count: b"", lambda count: bytes(count - 1), lambda count: bytes(count + 8)])
def test_a_source_that_fails_stops_the_sampler(short: Entropy) -> None:
    with pytest.raises(OSError, match="random bytes"):
        discrete_laplace(1.0, 5, entropy=short)


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-160, 1e-9])
def test_tiny_scales_give_zero(tiny: float) -> None:
    assert not discrete_laplace(tiny, 300, entropy=SeededGate(1).entropy).any()
    assert not discrete_gaussian(tiny, 300, entropy=SeededGate(1).entropy).any()


def test_scales_may_differ_by_element() -> None:
    """The i-th sample has the i-th scale, however many trials the ones before it took."""
    scales: FloatArray = np.tile([1e-3, 2.0**30, 1.0], 5000)
    for sampler in (discrete_laplace, discrete_gaussian):
        samples = np.abs(sampler(scales, scales.size, entropy=SeededGate(2).entropy)).reshape(-1, 3)
        assert not samples[:, 0].any()
        assert np.median(samples[:, 1]) > 2**28
        assert 0 < samples[:, 2].max() < 60


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_scales_may_differ_by_element_without_floats(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    scales: FloatArray = np.tile([1e-3, 2.0**30, 1.0, 77.7], 100)
    fast = sampler(scales, scales.size, entropy=SeededGate(2).entropy)
    monkeypatch.setattr(sampling, "_BAND", 1e300)
    assert np.array_equal(sampler(scales, scales.size, entropy=SeededGate(2).entropy), fast)


def test_the_largest_scale_stays_far_from_overflow() -> None:
    for sampler in (discrete_laplace, discrete_gaussian):
        assert np.abs(sampler(2.0**36, 20_000, entropy=os.urandom)).max() < 2**43


def test_only_the_bytes_of_this_call_are_asked_for() -> None:
    asked: list[int] = []

    def entropy(count: int) -> bytes:
        asked.append(count)
        return os.urandom(count)

    for size in (1, 10, 100_000):
        asked.clear()
        discrete_gaussian(50.0, size, entropy=entropy)
        assert 12 * size < sum(asked) < 12 * (1.6 * size + 100)


# -- variances ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 2.0, 17.3, 400.0])
def test_variances_are_those_of_the_laws(scale: float) -> None:
    x = np.arange(-60_000, 60_001, dtype=np.float64)
    laplace, gaussian = np.exp(-np.abs(x) / scale), np.exp(-(x**2) / (2 * scale**2))
    assert laplace_variance(scale) == pytest.approx(float((laplace * x**2).sum() / laplace.sum()), rel=1e-12)
    assert gaussian_variance(scale) == pytest.approx(float((gaussian * x**2).sum() / gaussian.sum()), rel=1e-12)
    assert gaussian_variance(scale) <= scale**2


def test_variances_at_the_ends() -> None:
    assert laplace_variance(2.0**36) == pytest.approx(2.0**73, rel=1e-12)
    assert gaussian_variance(2.0**36) == 2.0**72
    assert laplace_variance(1e-300) == gaussian_variance(1e-300) == 0.0
    assert gaussian_variance(np.nextafter(2.0, 0)) == pytest.approx(gaussian_variance(2.0), rel=1e-14)
