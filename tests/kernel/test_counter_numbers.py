"""The numbers that each counter states, against what its definition says: a running stream stays with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from benchmarks.least_error import above, least

from synthstream.kernel import counters
from synthstream.kernel.counters import Blt, Counter, Kary, Restarted, Simple, Toeplitz, counter, restarted
from synthstream.kernel.counters.base import LAST_TICK, clip, root_above, rounded_up
from synthstream.kernel.counters.dense import Dense
from synthstream.kernel.counters.toeplitz import ToeplitzCounter
from synthstream.kernel.leaky import advance
from synthstream.kernel.sampling import LARGEST_SCALE
from synthstream.papers.counters import Binary, Block, Hybrid
from synthstream.papers.counters.nodes import NodeCounter, Span
from synthstream.strategies import matrices
from synthstream.strategies.blt_parameters import PARAMETERS
from tests.support.counters import COUNTERS, T, name

NODES: list[NodeCounter] = [c for c in COUNTERS if isinstance(c, NodeCounter)]
TOEPLITZ: list[ToeplitzCounter] = [c for c in COUNTERS if isinstance(c, ToeplitzCounter)]

every = pytest.mark.parametrize("c", COUNTERS, ids=name)
nodes = pytest.mark.parametrize("c", NODES, ids=name)


@pytest.fixture
def _short_gaussian_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(restarted, "LONGEST", 16)
    restarted._inner.cache_clear()
    yield
    restarted._inner.cache_clear()


# -- what all have in common ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_short_gaussian_segments")
@every
def test_what_decides_how_counts_are_encoded(c: Counter) -> None:
    grid = 20 if isinstance(c, Toeplitz | Blt) or (isinstance(c, Restarted) and c.noise == "gaussian") else 0
    grid = 12 if isinstance(c, Dense) else grid
    assert c.grid_bits == grid
    assert c.facts()[:5] == [type(c).__name__, c.horizon, c.noise, grid, c.sensitivity(0)]
    assert len({c.sensitivity(t) for t in range(10)}) == 1


@every
def test_noise_is_asked_about_up_to_the_last_tick(c: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def reach(_: Counter, last: int) -> float:
        asked.append(last)
        return 1.0

    monkeypatch.setattr(type(c), "reach", reach)
    assert c.draws(1.0)
    assert asked == [LAST_TICK if c.horizon is None else T - 1]


@every
def test_no_error_is_below_the_least_and_the_best_are_near_it(c: Counter) -> None:
    singular = np.linalg.svd(np.tril(np.ones((T, T))), compute_uv=False)
    assert least(T) == pytest.approx(singular.mean(), rel=1e-12)
    assert math.log(2 * T + 1) / math.pi <= least(T)
    assert above(c, min(T, c.horizon or 13)) >= 1
    if isinstance(c, Toeplitz | Blt):
        assert above(c, T) < 1.1


@dataclass(frozen=True, kw_only=True)
class Uneven(Simple):
    """An event moves more, or less, the later it is."""

    growth: float

    def sensitivity(self, t: int = 0) -> float:
        return 10.0 + self.growth * t


@pytest.mark.parametrize(("growth", "reach"), [(-0.5, 10.0), (0.5, 13.5)])
def test_the_widest_draw_is_at_an_end_of_the_stream(growth: float, reach: float) -> None:
    c = Uneven(horizon=8, growth=growth)
    assert c.reach(7) == reach
    assert c.facts() == ["Uneven", 8, "laplace", 0, 10.0]
    assert c.widest(4, multiplier=7.0) == pytest.approx(7 * max(10, 10 + 4 * growth), rel=1e-14)


def test_a_draw_may_be_as_wide_as_the_widest() -> None:
    c = Simple(horizon=T)
    assert rounded_up(np.array(LARGEST_SCALE * (1 - 2.0**-50))) == LARGEST_SCALE
    assert c.draws(LARGEST_SCALE * (1 - 2.0**-50))
    assert not c.draws(LARGEST_SCALE)


def test_scales_are_rounded_up_by_a_little() -> None:
    assert rounded_up(np.array([1.0, 3.0])).tolist() == [1 + 2**-50, 3 + 3 * 2**-50]


@pytest.mark.parametrize("square", [Fraction(n, d) for n in range(12) for d in (1, 7)], ids=str)
def test_a_root_is_the_next_number_above(square: Fraction) -> None:
    """The least multiple of 2^-64 above it."""
    unit = Fraction(1, 2**64)
    found = root_above(square)
    assert (found / unit).denominator == 1
    assert (found - unit) ** 2 <= square + unit**2  # the square is rounded up, too
    assert square < found**2


def test_counts_are_clipped_at_two_to_the_31() -> None:
    counts = np.array([2**31 + 1, 2**31, 2**31 - 1, -(2**31) + 1, -(2**31), -(2**40)])
    assert clip(counts).tolist() == [2**31, 2**31, 2**31 - 1, -(2**31) + 1, -(2**31), -(2**31)]


def test_what_is_below_a_grid_step_is_cut_off() -> None:
    """A weight one unit of 2^-64 below a step of the grid, and the next one."""
    for weight, expected in ((2**44 - 1, 0), (2**44, 1), (3 * 2**44 - 1, 2)):
        hi, lo, value = np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1), dtype=np.uint64), np.zeros(1, dtype=np.int64)
        decay, factor = (np.array([number], dtype=np.uint64) for number in (2**63, weight))
        advance(hi, lo, decay, factor, np.array([1]), 20, value)
        assert value.tolist() == [expected]


# -- names ------------------------------------------------------------------------------------------------------


def test_a_counter_is_loaded_when_it_is_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    served = counters._SERVED["binary"]
    monkeypatch.delitem(counters._SERVED, "binary")
    loaded: list[str] = []

    def load(kind: str) -> None:
        loaded.append(kind)
        monkeypatch.setitem(counters._SERVED, kind, served)

    monkeypatch.setattr(counters, "load_counter", load)
    assert isinstance(counter("binary", horizon=4, noise="laplace"), Binary)
    assert isinstance(counter("binary", horizon=5, noise="laplace"), Binary)
    assert loaded == ["binary"]


# -- spans ------------------------------------------------------------------------------------------------------


def blocks(sizes: Iterator[int], n: int) -> list[Span]:
    """Complete blocks, and the ticks since, all with the factor 2."""
    found, start = [], 1
    for size in sizes:
        if start + size - 1 > n:
            break
        found.append(Span(start, start + size - 1, 2, settled=True))
        start += size
    return [*found, *(Span(tick, tick, 2, settled=False) for tick in range(start, n + 1))]


def test_block_spans_have_one_size_with_a_horizon() -> None:
    for horizon in range(1, 41):
        size = next(s for s in range(40, 0, -1) if s * s <= horizon)
        for n in range(horizon + 1):
            assert Block(horizon=horizon).cover(n) == blocks(iter([size] * horizon), n)


def test_block_spans_grow_without_a_horizon() -> None:
    sizes = [2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 6]
    for n in range(60):
        assert Block(horizon=None).cover(n) == blocks(iter(sizes), n)


def test_binary_spans_are_the_digits_of_a_prefix() -> None:
    for horizon, levels in ((1, 1), (7, 3), (8, 4), (40, 6)):
        for n in range(horizon + 1):
            sizes = [2**i for i in reversed(range(levels)) if n // 2**i % 2]
            ends = np.cumsum(sizes).tolist()
            spans = [Span(e - s + 1, e, levels, settled=False) for s, e in zip(sizes, ends, strict=True)]
            assert Binary(horizon=horizon).cover(n) == spans


def test_hybrid_spans_are_segments_and_a_tree_in_the_open_one() -> None:
    segments = [(1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 63)]
    for n in range(63):
        closed = [Span(start, end, 2, settled=True) for start, end in segments if end <= n]
        start = closed[-1].end + 1 if closed else 1
        tree = []
        for size in (16, 8, 4, 2, 1):
            if (n + 1 - segments[len(closed)][0]) // size % 2:
                tree.append(Span(start, start + size - 1, 2 * len(closed), settled=False))
                start += size
        assert Hybrid().cover(n) == closed + tree


@nodes
def test_the_largest_factor_is_that_of_the_spans_drawn(c: NodeCounter) -> None:
    drawn: list[int] = []
    for t in range(T):
        cover = c.cover(t + 1)
        drawn.append(cover[-1].factor)
        assert c.factor(t + 1) == c.reach(t) == max(drawn)
        assert c.widest(t, multiplier=7.0) == pytest.approx(7 * max(span.factor for span in cover), rel=1e-14)
        assert c.sensitivity(t) == 1.0


@nodes
def test_no_span_is_kept_before_the_first_tick(c: NodeCounter) -> None:
    state = c.init(3)
    assert {key: value.shape for key, value in state.items()} == {
        "t": (),
        "settled": (3,),
        "exact": (0, 3),
        "noisy": (0, 3),
    }


def test_hybrid_draws_are_as_wide_as_the_tree_of_their_segment() -> None:
    assert [Hybrid().widest(t, multiplier=7.0) / 7 for t in range(9)] == pytest.approx([2, 2, 2, 4, 4, 4, 2, 6, 6])


# -- restarted --------------------------------------------------------------------------------------------------


def test_restarted_segments_are_15_ticks_then_ten_times_as_many() -> None:
    c = Restarted(noise="laplace")
    assert [c.length(i) for i in range(4)] == [15, 150, 1500, 15000]
    assert [c.locate(t) for t in (0, 14, 15, 164, 165, 1665)] == [(0, 0), (0, 14), (1, 0), (1, 149), (2, 0), (3, 0)]
    assert [Restarted(noise="gaussian").length(i) for i in (0, 1, 2)] == [2**20] * 3


def test_restarted_facts_are_those_of_its_first_three_segments() -> None:
    inner = [Kary(horizon=horizon) for horizon in (15, 150, 1500)]
    c = Restarted(noise="laplace")
    assert c.facts() == ["Restarted", None, "laplace", 0, inner[0].sensitivity(), *(part.facts() for part in inner)]


def test_restarted_noise_is_that_of_the_closed_segments_and_the_open_one() -> None:
    c, (first, second, third) = Restarted(noise="laplace"), (Kary(horizon=h) for h in (15, 150, 1500))
    closed = [0.0, first.variance(14, multiplier=7.0), second.variance(149, multiplier=7.0)]
    for t, parts, inner, within in ((3, 1, first, 3), (14, 1, first, 14), (15, 2, second, 0), (168, 3, third, 3)):
        expected = sum(closed[:parts]) + inner.variance(within, multiplier=7.0)
        assert c.variance(t, multiplier=7.0) == pytest.approx(expected, rel=1e-12)
    assert second.variance(149, multiplier=7.0) != second.variance(148, multiplier=7.0)
    assert c.covariance(20, 168, multiplier=7.0) == pytest.approx(
        closed[1] + second.covariance(5, 149, multiplier=7.0), rel=1e-12
    )


def test_restarted_draws_are_as_wide_as_in_the_widest_segment_so_far() -> None:
    c = Restarted(noise="laplace")
    levels = [Kary(horizon=h).levels for h in (15, 150, 1500)]
    assert levels[0] < levels[1] < levels[2]
    for segment, ticks in enumerate([(0, 14), (15, 164), (165, 1664)]):
        for t in ticks:
            assert c.widest(t, multiplier=7.0) == pytest.approx(7 * levels[segment], rel=1e-14)
            assert c.sensitivity(t) == levels[segment]


def test_restarted_begins_with_the_state_of_its_first_segment() -> None:
    state, first = Restarted(noise="laplace").init(3), Kary(horizon=15).init(3)
    shapes = {"t": (), "carried": (3,), "last": (3,)} | {f"inner/{key}": value.shape for key, value in first.items()}
    assert {key: value.shape for key, value in state.items()} == shapes


def test_restarted_events_gain_nothing_from_a_third_of_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarted, "LONGEST", 9)
    c = Restarted(noise="gaussian")
    assert c.participation(3) == Blt(horizon=9).participation(3)
    assert c.participation(4) is None
    assert Restarted(noise="laplace").participation(1) is None


# -- kary -------------------------------------------------------------------------------------------------------


def signed(n: int, k: int, levels: int) -> list[int]:
    """Digits by search: from the highest, the one that leaves least."""
    found = []
    for level in reversed(range(levels)):
        most = (k**level - 1) // 2  # what the lower digits can make up
        d = next(d for d in range(-(k // 2), k // 2 + 1) if abs(n - d * k**level) <= most)
        found.append(d)
        n -= d * k**level
    return found[::-1]


@pytest.mark.parametrize("horizon", [1, 2, 12, 13, 29, 30, 40, 41, 77, 100, 509, 866, 977])
def test_kary_arity_and_levels_make_the_mean_variance_least(horizon: int) -> None:
    c = Kary(horizon=horizon)

    def levels(k: int) -> int:
        return next(h for h in range(1, 40) if sum(k // 2 * k**i for i in range(h)) >= horizon)

    def mean(k: int) -> Fraction:
        digits = [sum(map(abs, signed(n, k, levels(k)))) for n in range(1, horizon + 1)]
        return levels(k) ** 2 * Fraction(sum(digits), horizon)

    assert c.levels == levels(c.arity)
    assert mean(c.arity) == min(mean(k) for k in range(3, 60, 2))
    assert c.facts() == ["Kary", horizon, "laplace", 0, float(c.levels), c.arity, c.levels]


def test_kary_arity_is_odd_and_stays_for_long_horizons() -> None:
    """There it is the best for 4,096 evenly spread prefixes; for 77 ticks two are equally good, but for rounding."""
    assert all(Kary(horizon=horizon).arity % 2 for horizon in range(1, 100))
    for horizon, expected in ((77, (15, 2)), (1486122, (21, 5)), (79674516, (25, 6)), (137363554, (27, 6))):
        assert (Kary(horizon=horizon).arity, Kary(horizon=horizon).levels) == expected


@pytest.mark.parametrize("horizon", [13, 100, 1500])
def test_kary_nodes_make_up_a_prefix(horizon: int) -> None:
    """Node j of a level holds the ticks from j to j + 1 of its spans: added in the lower half of its parent's nodes."""
    c = Kary(horizon=horizon)
    k, wide = c.arity, 2 * c.arity**c.levels
    for n in range(1, horizon + 1, 1 + horizon // 200):
        ticks = np.zeros(wide, dtype=np.int64)
        for level, j in matrices.nodes_of_prefix(c.digits(n), c.arity):
            ticks[j * k**level : (j + 1) * k**level] += 1 if j % k < k // 2 else -1
        assert ticks.tolist() == [1] * n + [0] * (wide - n)


def test_kary_digits_are_signed_and_add_up() -> None:
    c = Kary(horizon=100)
    for n in range(1, 101):
        assert c.digits(n) == signed(n, c.arity, c.levels)


def test_kary_serves_up_to_two_to_the_40_ticks() -> None:
    arities = {1: (3, 1), 15: (31, 1), 150: (19, 2), 1500: (15, 3), 2**20: (19, 5), 2**40: (25, 9)}
    for horizon, expected in arities.items():
        assert (Kary(horizon=horizon).arity, Kary(horizon=horizon).levels) == expected
    for horizon in (0, 2**40 + 1):
        with pytest.raises(ValueError, match="between 1 and"):
            Kary(horizon=horizon)


# -- toeplitz and blt -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", TOEPLITZ, ids=name)
def test_a_toeplitz_decoder_undoes_its_encoder(c: ToeplitzCounter) -> None:
    column = np.asarray(c.coefficients, dtype=np.float64)  # type: ignore[attr-defined]
    column = column / 2**20 if isinstance(c, Toeplitz) else column
    assert np.convolve(c.decoder, column)[:T] == pytest.approx(np.ones(T), rel=1e-9)


@pytest.mark.parametrize("horizon", [1, 2, 40, 977])
def test_toeplitz_coefficients_are_those_of_the_square_root(horizon: int) -> None:
    c = Toeplitz(horizon=horizon)
    exact = [Fraction(math.comb(2 * j, j), 4**j) * 2**20 for j in range(horizon)]
    assert c.coefficients.tolist() == [round(value) for value in exact]
    assert c.facts() == ["Toeplitz", horizon, "gaussian", 20, c.sensitivity(), *c.coefficients.tolist()]
    square = sum(Fraction(round(value), 2**20) ** 2 for value in exact)
    assert square < Fraction(c.sensitivity()) ** 2 < square * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize("horizon", [1, 2, 40])
def test_toeplitz_joint_norm_is_that_of_the_summed_columns(horizon: int) -> None:
    c = Toeplitz(horizon=horizon)
    column = c.coefficients.tolist()
    for ticks in range(1, horizon + 1):
        moved = [sum(column[t - at] for at in range(ticks) if at <= t) for t in range(horizon)]
        assert c.participation(ticks) == root_above(Fraction(sum(value**2 for value in moved), 4**20))


def test_toeplitz_keeps_nothing_before_the_first_tick() -> None:
    shapes = {key: value.shape for key, value in Toeplitz(horizon=5).init(3).items()}
    assert shapes == {"t": (), "counts": (0, 3), "released": (0, 3)}


@pytest.mark.parametrize("c", TOEPLITZ, ids=name)
def test_toeplitz_horizons_begin_at_one_tick_and_end(c: ToeplitzCounter) -> None:
    longest = {Toeplitz: 2**13, Blt: 2**20}[type(c)]
    for horizon in (1, longest):
        assert type(c)(horizon=horizon).horizon == horizon
    for horizon in (0, longest + 1):
        with pytest.raises(ValueError, match=f"from 1 to {longest} ticks, not {horizon}"):
            type(c)(horizon=horizon)
    with pytest.raises(ValueError, match="must be gaussian"):
        type(c)(horizon=5, noise="laplace")


def _many_digits(c: Blt) -> list[int]:
    """The first column of the strategy in units of 2^-512, each value at most 2^20 units too small."""
    weights, decays = ([int(part) for part in parts] for parts in c._c)
    sums, column = [weight << 448 for weight in weights], []
    for _ in range(c.horizon):
        column.append(sum(sums))
        sums = [one * decay >> 64 for one, decay in zip(sums, decays, strict=True)]
    return column


@pytest.mark.parametrize("horizon", [1, 40, 977, 20_000])
def test_blt_sensitivity_is_the_norm_of_its_column_and_what_rounding_may_add(horizon: int) -> None:
    """The norm to 150 digits is below the stated one, by a billionth at most, and what rounding may add on top."""
    c = Blt(horizon=horizon)
    column = _many_digits(c)
    assert c.coefficients.tolist() == pytest.approx([value / 2**512 for value in column], rel=1e-9)
    norm = Fraction(math.isqrt(sum(value**2 for value in column)), 2**512)
    stated = Fraction(c.sensitivity() - math.sqrt(horizon) * c._slack)
    assert norm < stated < norm * (1 + Fraction(11, 10**10))
    assert c.facts() == ["Blt", horizon, "gaussian", 20, c.sensitivity(), *(part.tolist() for part in c._c)]


@pytest.mark.parametrize("horizon", [64, 2**20])
def test_blt_rounding_is_of_every_buffer_and_product_and_of_the_grid(horizon: int) -> None:
    """Each buffer is cut off below 2^-64, tick by tick, and so is its product with its weight; the sum at the grid."""
    c = Blt(horizon=horizon)
    decays = [Fraction(int(part), 2**64) for part in c._c[1]]
    cut = 2 * len(decays) * (1 / (1 - max(decays)) + 1) / 2**64
    assert float(Fraction(c._slack) - Fraction(1, 2**20)) == pytest.approx(float(cut), rel=1e-9, abs=1e-21)


@pytest.mark.parametrize("slack", [0.0, 1.0])
def test_blt_joint_norm_is_that_of_the_summed_columns_and_what_rounding_may_add(slack: float) -> None:
    c = Blt(horizon=40)
    c.__dict__["_slack"] = slack
    column = _many_digits(c)
    for ticks in (1, 2, 5, 40):
        moved = [sum(column[t - at] for at in range(ticks) if at <= t) for t in range(40)]
        norm = Fraction(math.isqrt(sum(value**2 for value in moved)), 2**512)
        found = c.participation(ticks)
        assert found is not None
        least = norm + Fraction(ticks * math.sqrt(40) * slack)
        assert least < found < least * (1 + Fraction(11, 10**10))


def test_blt_sums_must_stay_below_two_to_the_11() -> None:
    for total, fits in ((2047.9, True), (2048.0, False)):
        c = Blt(horizon=1)
        c.__dict__["coefficients"] = np.array([total])
        if fits:
            assert c.sensitivity() > total
        else:
            with pytest.raises(ArithmeticError, match="64 bits"):
                c.sensitivity()


@pytest.mark.parametrize(("decay", "sign"), [(-0.5, 1), (1.5, -1), (0.5, -1), (math.exp(-1 / 1.05223), 1)], ids=str)
def test_blt_sums_must_fade_and_weigh_more_than_nothing(
    decay: float, sign: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it came about: decays outside of 0 to 1, weights below 0, and a decay at a pole, whose weight is 0."""
    times, weights = PARAMETERS[64]
    monkeypatch.setitem(PARAMETERS, 64, (times, tuple(sign * weight for weight in weights)))
    monkeypatch.setattr(matrices, "brentq", lambda *_, **__: decay)
    with np.errstate(all="ignore"), pytest.raises(ArithmeticError, match="not completely monotone"):
        _ = Blt(horizon=64)._c


# To the last bit: a running stream goes on with the numbers that it began with, and is refused if they change.
RUNNING = {
    64: [
        [1813705088097051904, 1333193420550531840, 1091659804037121792],
        [2188127539305019904, 12195894292492609536, 17664248633801723904],
    ],
    1024: [
        [3090217366637160960, 1546946116518088960, 636497552454823936, 381258715869677376],
        [3683923917575238656, 14757104224125444096, 17874794872744470528, 18395561894792237056],
    ],
}


@pytest.mark.parametrize("horizon", RUNNING)
def test_blt_streams_that_run_can_go_on(horizon: int) -> None:
    assert [part.tolist() for part in Blt(horizon=horizon)._c] == RUNNING[horizon]
