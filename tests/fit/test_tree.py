"""The fit of a tree: exact readings come back, noise is shrunk away, change between epochs is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from synthstream.fit.alone import alone
from synthstream.fit.halving import blended
from synthstream.fit.tree import Estimate, NodeReading, Span, masses
from synthstream.workload import FloatArray

DEPTH = 8


def span(
    counts: FloatArray, variance: float, rng: np.random.Generator, *, depth: int = DEPTH, read: float = 1.0
) -> Span:
    """Readings of all levels down to a depth, with normal noise, when a share of the events had come."""
    readings = {}
    for level in range(depth):
        nodes = counts.reshape(2 ** (level + 1), -1).sum(axis=1) * read
        noise = np.sqrt(variance) * rng.standard_normal(2**level)
        readings[level] = NodeReading(nodes[0::2] - nodes[1::2] + noise, variance, float(counts.sum()) * read)
    return Span(events=float(counts.sum()), readings=readings)


def clustered(rng: np.random.Generator, events: int = 20_000, at: float = 0.3) -> FloatArray:
    points = np.clip(at + 0.05 * rng.standard_normal(events), 0, 1 - 1e-9)
    return np.bincount((points * 2**DEPTH).astype(int), minlength=2**DEPTH).astype(np.float64)


def off(found: FloatArray, true: FloatArray) -> float:
    """W1 on the line, in widths, of masses to counts."""
    return float(np.abs(np.cumsum(found / found.sum() - true / true.sum())).mean())


def elsewhere(found: FloatArray, true: FloatArray) -> float:
    """Share of masses in other cells than counts."""
    return float(np.abs(found / found.sum() - true / true.sum()).sum() / 2)


@pytest.mark.parametrize("shrink", [True, False])
def test_readings_without_noise_come_back(shrink: bool) -> None:
    rng = np.random.default_rng(0)
    parts = [clustered(rng, events) for events in (500, 1000, 2000)]
    found = masses([span(p, 1e-9, rng) for p in parts], depth=DEPTH, dimension=1, shrink=shrink)
    assert np.allclose(found.masses, sum(parts), atol=0.01)
    assert found.errors.shape == (2**DEPTH,)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_masses_are_never_negative_and_add_up(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    for spans in ([], [0.0], [0.0, 100.0], [5.0, 0.0, 50.0]):
        made = [span(rng.random(2**DEPTH) * events / 2**DEPTH, 1e4, rng, depth=3 + k) for k, events in enumerate(spans)]
        made.append(Span(events=7.0, readings={}))
        found = masses(made, depth=DEPTH, dimension=dimension)
        assert found.masses.min() >= 0
        assert found.masses.sum() == pytest.approx(sum(s.events for s in made))
        assert np.isfinite(found.errors).all()
        assert found.moving >= 0


def test_readings_that_are_not_bounded_count_also_where_there_is_no_mass() -> None:
    readings = {0: NodeReading(np.array([10.0]), 1.0, 10.0), 1: NodeReading(np.array([12.0, 4.0]), 1.0, 10.0)}
    for bounded, expected in ((True, [10.0, 0.0, 0.0, 0.0]), (False, [11.0, -1.0, 2.0, -2.0])):
        found = masses([Span(events=10.0, readings=readings)], depth=2, dimension=1, shrink=False, bounded=bounded)
        assert found.masses == pytest.approx(expected, abs=1e-9)
        assert found.errors.tolist() == [0.0, 1.0, 1.0, 1.0]


def test_noise_alone_is_shrunk_to_nothing() -> None:
    rng = np.random.default_rng(1)
    even = np.full(2**DEPTH, 40.0)
    made = [span(even, 900.0, rng) for _ in range(3)]
    shrunk, plain = (masses(made, depth=DEPTH, dimension=1, shrink=s).masses for s in (True, False))
    assert elsewhere(shrunk, even) < elsewhere(plain, even) / 4
    assert off(shrunk, even) < off(plain, even)
    # The deepest levels are halves and nothing else.
    assert np.mean(np.abs(shrunk[0::2] - shrunk[1::2])) < 0.15 * np.mean(np.abs(plain[0::2] - plain[1::2]))


def test_structure_is_kept_and_epochs_help_each_other() -> None:
    rng = np.random.default_rng(2)
    parts = [clustered(rng) for _ in range(4)]
    true = np.sum(parts, axis=0)

    def error(spans: Sequence[Span], shrink: bool = True) -> float:
        return elsewhere(masses(spans, depth=DEPTH, dimension=1, shrink=shrink).masses, true)

    made = [span(p, 400.0**2, rng) for p in parts]
    assert error(made) < 0.6 * error(made, shrink=False)
    # An epoch that has no reading yet looks like those before it.
    unread = [*made[:3], Span(events=float(parts[3].sum()), readings={})]
    assert error(unread) < 1.3 * error(made)


def test_epochs_are_nearer_together_than_each_by_itself() -> None:
    together = apart = 0.0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        parts = [clustered(rng) for _ in range(4)]
        true, made = np.sum(parts, axis=0), [span(p, 400.0**2, rng) for p in parts]
        together += elsewhere(masses(made, depth=DEPTH, dimension=1).masses, true)
        apart += elsewhere(np.sum([masses([one], depth=DEPTH, dimension=1).masses for one in made], axis=0), true)
    assert together < 0.8 * apart


def estimated(made: list[Span], sided: bool, monkeypatch: pytest.MonkeyPatch) -> Estimate:
    """With nodes that may have all in one half, or without."""
    with monkeypatch.context() as patch:
        if not sided:
            patch.setattr("synthstream.fit.tree.alone", lambda y, *_: np.zeros((2, y.shape[1])))
        return masses(made, depth=DEPTH, dimension=1)


@pytest.mark.parametrize(("cloud", "most"), [(clustered, 0.85), (lambda rng: rng.poisson(80.0, 2**DEPTH) * 1.0, 1.05)])
def test_events_are_kept_out_of_empty_halves(
    cloud: Callable[..., FloatArray], most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where there is none, it is no worse."""
    missed = {True: 0.0, False: 0.0}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        parts = [cloud(rng) for _ in range(3)]
        made = [span(part, 100.0**2, rng) for part in parts]
        for sided in missed:
            found = estimated(made, sided, monkeypatch)
            missed[sided] += off(found.masses, np.sum(parts, axis=0))
    assert missed[True] < most * missed[False]


def test_all_at_one_place_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    one, missed = np.zeros(2**DEPTH), {True: 0.0, False: 0.0}
    one[77] = 3000.0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        made = [span(one, 400.0, rng) for _ in range(4)]
        for sided in missed:
            found = estimated(made, sided, monkeypatch)
            missed[sided] += found.masses.sum() - found.masses[77]
    assert missed[True] < 0.7 * missed[False]


def test_what_little_was_read_makes_no_half_empty() -> None:
    """Noise as large as the node, or a small half that is seen."""
    rng, few = np.random.default_rng(5), np.full((1, 500), 20.0)
    seen = alone(0.1 + rng.standard_normal(few.shape), few, few * 20.0, np.zeros_like(few), np.full(500, 0.05))
    assert seen.sum() < 0.02 * 500
    assert np.abs(seen[0] - seen[1]).max() < 0.5
    thin, events = np.full((3, 1), 0.9), np.full((3, 1), 1000.0)
    found = alone(thin, events, events, np.zeros_like(thin), np.full(1, 0.3))
    assert found.sum() < 0.01
    empty = alone(thin + 0.098, events, events, np.zeros_like(thin), np.full(1, 0.3))
    assert empty[0, 0] > 0.9
    assert empty[1, 0] < 1e-6
    moved = np.array([[1.0], [1.0], [0.8]])
    seen = alone(moved, events, events * np.array([[0.01], [0.01], [1.0]]), np.zeros_like(thin), np.full(1, 0.3))
    assert seen.sum() < 0.01  # by one epoch that has little weight
    unread = alone(thin, np.zeros_like(thin), events, np.zeros_like(thin), np.zeros(1))
    assert not unread.any()


def test_thin_tails_are_not_called_empty() -> None:
    """Where many nodes hold three standard errors on one side; where many hold nothing there, they are."""
    rng, events, known = np.random.default_rng(6), np.full((1, 200), 1000.0), np.full(200, 0.3)
    for far, most in ((3.0, 0.1), (0.0, 1.0)):
        read = 1 - 0.03 * far + 0.03 * rng.standard_normal(events.shape)
        chance = alone(read, events, 0.03**2 * events**2, np.zeros_like(events), known)[0].mean()
        assert most - 0.2 < chance < most


def test_what_is_not_decided_is_an_error() -> None:
    one, none = np.ones((1, 1)), np.zeros(1)
    r, error = blended(0.9 * one, 0.9 * one, 100 * one, 0 * one, np.inf * one, none, none, np.array([[0.5], [0.0]]))
    assert r[0, 0] == pytest.approx(0.95)
    assert error[0] == pytest.approx(100 + 100**2 * (0.5 * 0.05**2 + 0.5 * 0.05**2))


def test_a_shape_that_moves_is_followed() -> None:
    rng = np.random.default_rng(3)
    parts = [clustered(rng, at=at) for at in (0.2, 0.5, 0.8)]
    found = masses([span(p, 30.0**2, rng) for p in parts], depth=DEPTH, dimension=1)
    assert off(found.masses, np.sum(parts, axis=0)) < 0.005
    assert found.moving > 0.1
    still = masses([span(clustered(rng), 30.0**2, rng) for _ in range(3)], depth=DEPTH, dimension=1)
    assert still.moving < 0.02


def test_epochs_before_inform_those_that_count() -> None:
    rng = np.random.default_rng(6)
    parts = [clustered(rng) for _ in range(4)]
    made = [span(p, 400.0**2, rng) for p in parts]
    unread = Span(events=float(parts[3].sum()), readings={})
    found = masses([*made[:3], unread], depth=DEPTH, dimension=1, since=3).masses
    assert found.sum() == pytest.approx(parts[3].sum())
    assert elsewhere(found, parts[3]) < 0.1
    assert elsewhere(masses([unread], depth=DEPTH, dimension=1).masses, parts[3]) > 0.5
    whole, plain = (masses(made, depth=DEPTH, dimension=1, shrink=False, since=k).masses for k in (0, 2))
    assert np.allclose(whole - masses(made[:2], depth=DEPTH, dimension=1, shrink=False).masses, plain)


@pytest.mark.parametrize("shrink", [True, False])
def test_nodes_that_nobody_read_are_as_if_read_with_noise_without_end(
    shrink: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synthstream.fit.tree.leant", lambda cells, *_: cells)  # they would lean to fuller ones
    rng = np.random.default_rng(7)
    made, dense = list[Span](), list[Span]()
    for part in (clustered(rng, 500), clustered(rng), clustered(rng)):
        all_read, some, nearly = span(part, 9.0, rng), dict[int, NodeReading](), dict[int, NodeReading]()
        for level, (values, _, events, _) in all_read.readings.items():
            read = part.reshape(2**level, -1).sum(axis=1) > 40
            some[level] = NodeReading(np.where(read, values, 0.0), np.where(read, 9.0, np.inf), events)
            nearly[level] = NodeReading(np.where(read, values, 0.0), np.where(read, 9.0, 1e30), events)
        made.append(Span(events=all_read.events, readings=some))
        dense.append(Span(events=all_read.events, readings=nearly))
    found, expected = (masses(spans, depth=DEPTH, dimension=2, shrink=shrink, caution=0.0) for spans in (made, dense))
    assert np.allclose(found.masses, expected.masses, rtol=1e-6)
    assert found.moving == pytest.approx(expected.moving, rel=1e-6)
    assert np.isfinite(found.errors).all()


def test_an_open_epoch_stands_for_what_it_has_not_read() -> None:
    rng = np.random.default_rng(4)
    before, now = clustered(rng, at=0.3), clustered(rng, at=0.7)
    found = masses([span(before, 1.0, rng), span(now, 1.0, rng, read=0.5)], depth=DEPTH, dimension=1)
    # The half that was read is where it is; the other half goes on like it.
    assert off(found.masses, before + now) < 0.05


def test_a_reading_that_may_count_more_events_of_before_than_there_are_tells_the_unbiased_estimate_nothing() -> None:
    root, below = NodeReading(np.array([6.0]), 4.0, 20.0), NodeReading(np.array([400.0, -300.0]), 4.0, -700.0)
    spans = [Span(events=20.0, readings={0: root, 1: below}), Span(events=20.0, readings={0: root})]
    one, other = (masses([made], depth=2, dimension=1, shrink=False, bounded=False) for made in spans)
    assert one.masses == pytest.approx([6.5, 6.5, 3.5, 3.5])
    assert one.errors[1:] == pytest.approx([4.0, 13**2 * one.uneven, 7**2 * one.uneven])
    assert other.masses == pytest.approx(one.masses)


@pytest.mark.parametrize("missed", [0.0, 40.0])
def test_no_node_of_an_epoch_without_events_has_missed_more_than_all(missed: float) -> None:
    """By its counter it has none; by noise its nodes hold some. Readings may have missed some, and hold others."""
    rng = np.random.default_rng(6)
    noise = {level: NodeReading(3 * rng.standard_normal(2**level), 9.0, -missed) for level in range(DEPTH)}
    spans = [span(clustered(rng), 9.0, rng), Span(events=0.0, readings=noise)]
    errors = masses(spans, depth=DEPTH, dimension=1, shrink=False, bounded=False).errors[1:]
    # The noise of both; a reading that may count more of before than there are tells nothing.
    assert (errors >= (9 if missed else 18) - 1e-9).all()
    assert np.sqrt(errors).max() <= np.sqrt(18) + missed + 1e-9


def test_expected_errors_are_about_right() -> None:
    rng, ratios = np.random.default_rng(5), []
    for _ in range(20):
        parts = [clustered(rng) for _ in range(3)]
        true = np.sum(parts, axis=0)
        found = masses([span(p, 100.0**2, rng) for p in parts], depth=DEPTH, dimension=1)
        for level in range(6):
            got, want = (v.reshape(2 ** (level + 1), -1).sum(axis=1) for v in (found.masses, true))
            m = got[0::2] + got[1::2]
            share = np.divide(want[0::2] - want[1::2], want[0::2] + want[1::2], out=np.zeros(2**level), where=m > 500)
            error = (got[0::2] - got[1::2] - m * share)[m > 500]
            ratios.append(np.sum(error**2) / np.sum(found.errors[2**level : 2 ** (level + 1)][m > 500]))
    assert 0.4 < np.mean(ratios) < 2.0


@pytest.mark.parametrize(("addresses", "uneven"), [(None, 1 / 3), (6, 1.0)])
@pytest.mark.parametrize("noise", [1e-9, 3e5])
def test_what_nobody_read_is_as_uneven_as_what_was_read(addresses: int | None, uneven: float, noise: float) -> None:
    """Events that lie evenly, or at a few addresses, of which the last level that was read has one in a node."""
    rng, unread = np.random.default_rng(8), 2
    cells = rng.choice(16, addresses, replace=False) * 16 + rng.integers(0, 16, addresses) if addresses else 2**DEPTH
    part = np.bincount(rng.choice(cells, 20_000), minlength=2**DEPTH).astype(np.float64)
    spans = [span(part, noise, rng, depth=DEPTH - unread) for _ in range(2)]
    found = masses(spans, depth=DEPTH, dimension=1, shrink=False, bounded=False)
    assert found.uneven == pytest.approx(uneven, abs=0.1)
    nodes = found.masses.reshape(2 ** (DEPTH - 1), 2).sum(axis=1)  # of the last level, which nobody read
    assert found.errors[2 ** (DEPTH - 1) :] == pytest.approx(found.uneven * nodes**2, rel=1e-6, abs=1e-6)
    assert masses(spans[:1], depth=DEPTH - unread, dimension=1, shrink=False).uneven >= 1 / 3
