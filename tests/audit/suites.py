"""The checks that hold the privacy argument together, by name. Each looks at the package as it is, and asserts.

They share their parts with the tests of their topics. ``test_broken`` runs each on the healthy package, and on every
package that was broken on purpose (``broken/``).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import chisquare

from synthstream import Stream
from synthstream.accounting.zcdp import delta_for
from synthstream.errors import BudgetExceeded
from synthstream.evaluate.audit import audit
from synthstream.evaluate.lower_bounds import delta_of
from synthstream.kernel import gate
from synthstream.kernel.counters import Blt, Counter, Kary, Simple, Toeplitz
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.kernel.tables import Marginals
from synthstream.papers.counters import Binary, Block, Hybrid
from synthstream.privacy import Budget, Neighbours
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Workload
from tests.audit.deaths import durability, interrupted_ticks, redraws
from tests.audit.streams import ROWS, SIGNED, configured, extended, finished, seen
from tests.support import epochs, marginals
from tests.support.aligned import PURE, Aligned
from tests.support.audits import audit_counter
from tests.support.children import noise_of_a_child
from tests.support.choices import law as choice_law
from tests.support.counters import kary_noise_is_a_factorisation_with_the_claimed_sensitivity, run
from tests.support.gates import Call, ExactGate, ReplayingGate, TracingGate, path_cost
from tests.support.integers import exact_delta
from tests.support.laws import gaussian_law, laplace_law, p_value
from tests.support.visits import TOML, visits

# A healthy package fails a suite that draws real noise with a probability below this.
FALSE_ALARM = 1e-9
ZEROS = np.zeros(1000, dtype=np.int64)


# -- noise ------------------------------------------------------------------------------------------------------------


def lower_bound(folder: Path) -> None:
    """Auditor: no counter tells more than it claims, and all nearly as much."""
    small: list[tuple[Counter, int]] = [
        (Simple(noise="laplace"), 40_000),
        (Simple(noise="gaussian"), 8000),
        (Binary(horizon=8), 8000),
        (Block(horizon=9), 8000),
        (Hybrid(), 8000),
        (Kary(horizon=13), 8000),
        (Toeplitz(horizon=5), 8000),
    ]
    for counter, runs in small:
        finding = audit_counter(counter, multiplier=1.0, runs=runs, ticks=9, confidence=1 - FALSE_ALARM)
        assert not finding.refuted, finding.words
        assert finding.seen > 0.7, finding.words


def lower_bound_of_streams(folder: Path) -> None:
    """Auditor: no whole stream of tables tells more than it claims."""
    tables = '\n[synthesizer]\nkind = "table"\nmeasure = "always"'
    for text, runs in ((TOML, 6000), (PURE + tables, 6000), (PURE, 1500)):
        done = audit(configured(folder, text), runs=runs, confidence=1 - FALSE_ALARM)
        assert not done.refuted, done.words
        assert done.whole.seen > 0.4 * done.whole.claimed, done.words


def noise_law(folder: Path) -> None:
    """Chi-square of the gate's noise against the exact laws, 200,000 draws."""
    value = np.full(200_000, 77, dtype=np.int64)
    for scale in (1.0, 9.0):
        assert p_value(SystemGate().laplace(value, scale=scale) - value, laplace_law(scale)) > FALSE_ALARM
        assert p_value(SystemGate().gaussian(value, sigma=scale) - value, gaussian_law(scale)) > FALSE_ALARM


def law_of_choices(folder: Path) -> None:
    """Chi-square of the gate's choices against permute-and-flip at epsilon / 2."""
    scores, system = np.array([0, 3, 6]), SystemGate()
    found = [system.choose(scores, sensitivity=3, epsilon=1.0) for _ in range(6000)]
    expected = choice_law([0, 3, 6], 1 / 6) * len(found)
    assert chisquare(np.bincount(found, minlength=3), expected).pvalue > FALSE_ALARM


def precision(folder: Path) -> None:
    """Answers are whole numbers, and any that one value gives, its neighbour can give too."""
    for answers in (
        [SystemGate().laplace(ZEROS + value, scale=2.0) for value in (0, 1)],
        [SystemGate().gaussian(ZEROS + value, sigma=2.0) for value in (0, 1)],
    ):
        finer = [float(np.mean(answer.astype(np.float64) * 2.0**53 % 1 != 0)) for answer in answers]
        assert finer == [0.0, 0.0], f"finer than 2^-53 for one value and its neighbour: {finer}"
        assert all(answer.dtype == np.int64 for answer in answers)


def freshness(folder: Path) -> None:
    """Noise is another one in every call, cell and process."""
    wide = SystemGate()
    first, second = wide.laplace(ZEROS, scale=1e9), wide.laplace(ZEROS, scale=1e9)
    assert np.unique(np.concatenate([first, second])).size > 1990
    again, other = SystemGate().gaussian(ZEROS, sigma=1e9), SystemGate().gaussian(ZEROS, sigma=1e9)
    assert np.unique(np.concatenate([again, other])).size > 1990
    children = [noise_of_a_child(lambda: wide.gaussian(ZEROS[:8], sigma=1e9)) for _ in range(2)]
    assert children[0] != children[1]


def stamps(folder: Path) -> None:
    """A release made with noise that has a seed says that it is not private."""
    with Stream(configured(folder), gates=lambda tick: SeededGate(tick)) as stream:
        release = stream.release()
    assert "warning" in release.manifest()


def lint(folder: Path) -> None:
    """No part of the kernel draws from anything but the operating system, or from floats."""
    for path, text in kernel_sources().items():
        nodes = list(ast.walk(ast.parse(text)))
        reached = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        imported = {
            alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
        }
        modules = {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        banned = {"random", "secrets", "default_rng", "numpy.random"} & (reached | imported | modules)
        assert not banned, f"{path} draws from {banned}"
        assert ("urandom" in reached) == (path == "gate.py"), f"{path}: noise has one source, in gate.py"


def kernel_sources() -> dict[str, str]:
    """Text of every file of the kernel by its path."""
    root = Path(gate.__file__).parent
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py")}


# -- sensitivity ------------------------------------------------------------------------------------------------------


def sensitivity_of_counters(folder: Path) -> None:
    """One event more, with the same answers: the same releases, at no more than the claimed cost, exactly."""
    listed: list[Counter] = [
        Simple(noise="laplace"),
        Simple(noise="gaussian"),
        *(Block(horizon=9), Binary(horizon=8), Hybrid()),
        *(Toeplitz(horizon=h) for h in (3, 8, 13)),
        Blt(horizon=12),
    ]
    for counter in listed:
        ticks = counter.horizon or 9
        quiet = np.zeros((ticks, 1), dtype=np.int64)
        for stream in (quiet, quiet + np.arange(ticks)[:, None]):
            tracing = TracingGate(SeededGate(4))
            releases = run(counter, stream, tracing, multiplier=2.0)
            for at in range(ticks):
                neighbour = stream.copy()
                neighbour[at] += 1
                replaying = ReplayingGate(tracing.trace)
                again = run(counter, neighbour, replaying, multiplier=2.0)
                assert np.array_equal(again, releases), "something passes beside the gate"
                rho, epsilon = path_cost(tracing.trace, replaying.trace)
                assert epsilon <= Fraction(1, 2)
                assert rho <= Fraction(1, 8)
    kary_noise_is_a_factorisation_with_the_claimed_sensitivity(13)
    kary_noise_is_a_factorisation_with_the_claimed_sensitivity(40)


def sensitivity_of_tables(folder: Path) -> None:
    """The same for all tables together, for a row that comes and for one that is replaced."""
    kinds: tuple[Neighbours, ...] = ("add-remove", "replace-one")
    for neighbours in kinds:
        epochs.worst_path_cost_on_exhaustive_neighbours(neighbours, 2)
        for budget in (Budget(epsilon=1.0, delta=0.0), Budget(epsilon=1.0, delta=1e-9)):
            m = marginals.mechanism(budget, neighbours=neighbours)
            claim = m.claim()
            traces: list[list[Call]] = []
            for row in ([], [[0, 1]]) if neighbours == "add-remove" else ([[0, 1]], [[1, 2]]):
                batch, none = np.array(row, dtype=np.int64).reshape(-1, 2), np.zeros((0, 2), dtype=np.int64)
                tracing = TracingGate(ExactGate())
                marginals.run(m, [batch, none, none, none], tracing)
                traces.append(tracing.trace)
            rho, epsilon = path_cost(*traces)
            assert epsilon <= (claim.pure or 0)
            assert rho <= claim.rho


def sensitivity_of_streams(folder: Path) -> None:
    """The same from files to releases: whatever stands in a row, it counts once, in one cell of each table."""
    base = extended(ROWS)
    odd = {"plain": (2, "A", 30.0, "1"), "weighty": (2, "B", 30.0, "1000"), "taking": (3, "B", 9.0, "-1000"),
           "far": (4, "C", 1e308, None), "empty": (1, None, None, "")}  # fmt: skip
    aligned = Aligned()
    finished(folder / "base", base, aligned.record, text=SIGNED)
    for name, row in odd.items():
        replayed: dict[int, ReplayingGate] = {}

        def replay(tick: int, replayed: dict[int, ReplayingGate] = replayed) -> Gate:
            # The constructor asks for the gate of tick 0 once, to see whether it is secure.
            replayed[tick] = ReplayingGate(aligned.traces[tick])
            return replayed[tick]

        claim = finished(folder / name, pl.concat([base, extended([row])]), replay, text=SIGNED)
        costs = [path_cost(aligned.traces[tick], replayed[tick].trace)[0] for tick in range(5)]
        assert 0 < sum(costs) <= claim.rho, name


def limits_of_persons(folder: Path) -> None:
    """Of one person no more than is charged for counts in a whole life, however the rows come; of others, as before."""
    text = TOML.replace('unit = "event"', 'unit = { person = "id", max_events = 3 }')
    others = visits([1, 2, 2, 5]).with_columns(id=pl.Series(["a", "b", "c", "a"]))
    busy = visits([day for day in range(1, 6) for _ in range(4)]).with_columns(id=pl.lit("busy"))
    for name, come in {
        "first": [busy, others],
        "last": [others, busy],
        "between": [others[:2], busy, others[2:]],
    }.items():
        totals = []
        for part, frames in {"with": come, "without": [f for f in come if f is not busy]}.items():
            config, counted = configured(folder / name / part, text), []
            for day in range(5):
                with Stream(config, gates=lambda tick: ExactGate()) as stream:
                    for frame in frames:
                        stream.update(frame.filter(pl.col("when").dt.day() == day + 1))
                    counted.append(round(float(stream.release().measured.values[0])))
            totals.append(counted)
        more = [b - a for a, b in zip(*totals[::-1], strict=True)]
        assert 0 < max(more) <= 3
        assert totals[1][-1] == len(others)


# -- accounting -------------------------------------------------------------------------------------------------------


def accounting(folder: Path) -> None:
    """Claims stay within the budget, the ledger refuses before any draw, and a stream is charged once for its life."""
    workload = Workload.all_up_to(2, sizes=(2, 3, 4))
    pairs = ((1.0, 0.0), (1.0, 1e-9), (4.0, 1e-6))
    budgets = [Budget(epsilon=epsilon, delta=delta, exact=True) for epsilon, delta in pairs]
    for budget in budgets:
        claim = Marginals(workload=workload, budget=budget, horizon=40).claim()
        assert claim.fits(budget)
        budget.charge(claim)
        more = Fraction(1001, 1000)
        with pytest.raises(BudgetExceeded):
            budget.charge(replace(claim, rho=claim.rho * more, pure=claim.pure and claim.pure * more))
    config, asked = configured(folder), []

    def counted(tick: int) -> Gate:
        asked.append(tick)
        return ExactGate()

    for _ in range(2):
        with Stream(config, gates=counted) as stream:
            stream.release()
            stream.release()
            assert len(stream.status()["spent"]) == 1
    assert asked == [0, 0, 1, 0, 2, 3]


def conversion(folder: Path) -> None:
    """rho of a budget: the Gaussian mechanism of that rho, whose delta is known exactly, keeps (epsilon, delta)."""
    for epsilon, delta, unit in ((1.0, 1e-9, 10.0), (2.583, 1e-9, 0.5), (1.0, 1e-3, 0.5)):
        rho = float(Budget(epsilon=epsilon, delta=delta, exact=True).spendable(Fraction(unit)))
        assert delta_of(sqrt(2 * rho), epsilon) <= delta
        assert exact_delta(unit / rho, 1, max(1, round(2 * unit)), epsilon) <= delta
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-9), (1.0, 1e-5), (8.0, 1e-9)):
        rho = float(Budget(epsilon=epsilon, delta=delta).rho)
        assert delta_of(sqrt(2 * rho), epsilon) <= delta
        assert delta_of(sqrt(2 * rho), epsilon) <= delta_for(rho, epsilon=epsilon)


# -- streams ----------------------------------------------------------------------------------------------------------


def coupling(folder: Path) -> None:
    """Neighbours with aligned noise: no byte of files, output, errors or exit differs."""
    base = extended(ROWS)
    odd = {"plain": (2, "A", 30.0, "1"), "unseen": (3, "Nobody", 1e308, "1"), "long": (5, "x" * 10_000, 5.0, "1"),
           "nulls": (None, None, None, None), "late": (99, "A", 1.0, "0.5")}  # fmt: skip
    aligned = Aligned()
    one = seen(folder / "base", base, aligned.record)
    assert one[3] == "", one[3]
    for name, row in odd.items():
        assert one == seen(folder / name, pl.concat([base, extended([row])]), aligned.replay), name


def clockwork(folder: Path) -> None:
    """The public clock alone closes ticks: not rows, not their number, not their time. Empty ticks are released."""
    made = {}
    days_of: dict[str, list[int]] = {"empty": [], "few": [1, 2], "many": [1] * 300}
    for name, days in days_of.items():
        calls: list[int] = []

        def gates(tick: int, calls: list[int] = calls) -> Gate:
            calls.append(tick)
            return ExactGate()

        config = configured(folder / name)
        extended([(day, "A", 30.0, None) for day in days]).write_parquet(folder / name / "visits-1.parquet")
        with Stream(config, gates=gates) as stream:
            stream.ingest()
            assert stream.due() == 5
            made[name] = (len(list(stream.run())), tuple(calls))
    assert set(made.values()) == {(5, (0, 0, 1, 2, 3, 4))}
    with Stream(configured(folder / "late"), gates=gates) as stream:
        stream.release()
        stream.release()
        before = {p: p.read_bytes() for p in (folder / "late" / "releases").rglob("*.*")}
        drawn = len(calls)
        stream.update(visits([1, 1]))
        assert len(calls) == drawn
        assert {p: p.read_bytes() for p in (folder / "late" / "releases").rglob("*.*")} == before
        assert round(float(stream.release().measured.values[0])) == 2


SUITES: dict[str, Callable[[Path], None]] = {
    "audit": lower_bound,
    "audit of streams": lower_bound_of_streams,
    "noise law": noise_law,
    "law of choices": law_of_choices,
    "precision": precision,
    "freshness": freshness,
    "stamps": stamps,
    "lint": lint,
    "sensitivity of counters": sensitivity_of_counters,
    "sensitivity of tables": sensitivity_of_tables,
    "sensitivity of streams": sensitivity_of_streams,
    "limits of persons": limits_of_persons,
    "accounting": accounting,
    "conversion": conversion,
    "coupling": coupling,
    "clockwork": clockwork,
    "redraws": redraws,
    "interrupted ticks": interrupted_ticks,
    "durability": durability,
}
