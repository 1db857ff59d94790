"""Accuracy, stability and cost of tabular streams: one JSON line for each seed.

    python -m benchmarks.tabular --data adult --order random --batch 200 --epsilon 1 --delta 1e-9 --method marginals
    python -m benchmarks.tabular --data evictions --every 1w --epsilon 1 --delta 0 --method selective --seeds 3
    python -m benchmarks.tabular --stream switch --delta 0 --seeds 3
    python -m benchmarks.tabular --stream adult-random --once --seeds 3
    python -m benchmarks.tabular --stream switch --delta 0 --set growth=1.5 --set growth=2,picks=10

Methods: ``marginals``, our default; ``selective`` and ``stream-mwem``, main algorithm and baseline of paper 2;
``independent``, columns without relations and without noise, for comparison. The number of picks follows the rule of
Theorem 5.1 (synthstream.synthesizers.bounds.picks_rule) from public facts, of ``selective`` three at most, unless
``--k`` says otherwise.

Errors over all pairs of columns (benchmarks.metrics) of what is published: of our rows; of the papers' models, the
expected tables, which leaves out the chance in drawing rows from them. They are means over the last ten ticks
(``avg_we``, ``avg_rel_l1``, ...), of the last one (``final``), over all ticks (``all_ticks``), and over the last ten
ticks up to 25, 50, 75 and 100 % of the ticks (``quarters``, with ``independent_`` for independent columns at the same
ticks; fewer than ten where a quarter has fewer). Where larger tables are measured at refreshes, or once an epoch,
``cycle`` has means over the last whole cycle: from a refresh, or the end of an epoch, to the last tick before the next
one, where the end of the stream does not cut it short. The last ten ticks may lie in its better half. ``changed_rows``
is of the last ten ticks, ``changed_second_half`` of the second half. The slowest release leaves out the first, which
starts the machinery. The horizon is declared to be the number of ticks, unless the stream says otherwise. Totals are
private.

``--set`` gives keys of [synthesizer], separated by commas; nothing, as in ``--set ''``, for the defaults. Given more
than once, each is run, and a table compares them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np

from benchmarks.beside import ratio, table
from benchmarks.data import STREAMS, Batches, adult_batches, evictions
from benchmarks.environment import environment, peak_mb
from benchmarks.metrics import table_errors
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.counts import Counts
from synthstream.fit.population import Population, changed_share
from synthstream.kernel.epochs import Epochs
from synthstream.measured import Measured
from synthstream.papers.batchwise import Batchwise
from synthstream.papers.fit.rounds import Mixture
from synthstream.papers.selective import Selective
from synthstream.privacy import Budget
from synthstream.synthesizers.assembly import synthesizer_for
from synthstream.synthesizers.contract import Models, Synthesizer
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.tables import AtRefreshes
from synthstream.workload import FloatArray, IntArray, Workload

LAST = 10
QUARTERS = (0.25, 0.5, 0.75, 1.0)
# Errors over time are taken at about so many ticks.
_POINTS = 40

Method = Literal["marginals", "selective", "stream-mwem", "independent"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One run: everything that its result depends on."""

    data: str
    order: str
    batch: int
    every: str
    epsilon: float
    delta: float
    method: str
    counter: str = "auto"
    k: int | None = None
    fit: str = "pgm"
    score: str = "corrected"
    measure: str = "auto"
    unbounded: bool = False
    seed: int = 0

    @property
    def stream(self) -> str:
        """Which stream: by its name, or in the paper's words."""
        if self.data in STREAMS:
            return self.data
        if self.data == "evictions":
            return "Eviction-weekly" if self.every == "1w" else "Eviction-bi-weekly"
        return f"Adult-{'randomized' if self.order == 'random' else 'ordered'}-bs-{self.batch}"

    @cached_property
    def batches(self) -> Batches:
        """The stream's rows."""
        if self.data in STREAMS:
            return STREAMS[self.data](self.seed)
        if self.data == "evictions":
            return evictions("1w" if self.every == "1w" else "2w")
        return adult_batches("random" if self.order == "random" else "by-row-number", self.batch, self.seed)

    def settings(self) -> SynthesizerConfig:
        """The section [synthesizer] of this run."""
        if self.method == "marginals":
            found = SynthesizerConfig(counter=self.counter, measure=self.measure)  # type: ignore[arg-type]
            return found.model_copy(update={"picks": self.k}) if self.k else found
        return SynthesizerConfig(
            kind=self.method,
            counter=self.counter,
            picks=self.k,
            events_per_tick=self.batches.expected,
            fit=self.fit,  # type: ignore[arg-type]
            score=self.score,  # type: ignore[arg-type]
        )


class Runner(Protocol):
    """A method that is fed tick by tick."""

    def step(self, counts: IntArray) -> None:
        """Close a tick."""

    def tables(self) -> FloatArray:
        """What is published, as counts of all pairs."""


class Private:
    """A synthesizer, as a stream runs it, without files."""

    def __init__(self, made: Synthesizer, pairs: Workload, seed: int) -> None:
        self.made, self._pairs, self._seed = made, pairs, seed
        self._state, self._models = made.mechanism.init(), dict[str, Any]()
        self._history: list[Measured] = []
        self.last: Population | None = None
        self._batches = np.zeros(pairs.cells)

    def step(self, counts: IntArray) -> None:
        """See :class:`Runner`."""
        tick = len(self._history)
        gate = SeededGate(f"{self._seed}/{tick}")
        after, measured, models = self.made.step(self._state, Counts.of(counts), gate, self.last, self._models)
        self._state = after
        self._models = dict(models)
        self._history.append(measured)
        if isinstance(self.made.mechanism, Batchwise):
            sign = np.sign(float(measured.marginal(())[0]))
            self._batches += sign * self._answers(models)
        elif not isinstance(self.made.mechanism, Selective):
            self.last = self._fitted(tick, models)

    def _fitted(self, tick: int, models: Models) -> Population:
        seed = self._seed * 1_000_003 + tick
        fitted: Population = self.made.fit(tick, self._history.__getitem__, self.last, models, seed=seed)
        return fitted

    def tables(self) -> FloatArray:
        """See :class:`Runner`."""
        if isinstance(self.made.mechanism, Batchwise):
            return self._batches
        if self.last is None:
            return self._answers(self._models)
        return self.last.counts(self._pairs).astype(np.float64)

    def refreshed(self) -> list[int]:
        """Ticks at whose ends larger tables were measured, but for a closing one, which cuts a cycle short; none where
        that is every tick.
        """
        if isinstance(self.made, AtRefreshes):
            came, planned = self.made.came(self._history[-1]).ticks, self.made.mechanism.times
            return list(came[:-1] if came[-1] + 1 == planned.horizon else came)
        times = self.made.mechanism.times if isinstance(self.made.mechanism, Epochs) else None
        return [end - 1 for end in times.ended(len(self._history))] if times else []

    def _answers(self, models: Models) -> FloatArray:
        """Expected counts: the mean of all rounds."""
        mixture = Mixture.from_arrays(self._pairs.sizes, models)
        return np.asarray(np.mean([model.answers(self._pairs) for model in mixture.models], axis=0))


class Independent:
    """The true tables of single columns, multiplied: no noise, no relations, not private."""

    def __init__(self, workload: Workload, pairs: Workload) -> None:
        self._workload, self._pairs = workload, pairs
        self._counts = np.zeros(workload.cells)

    def step(self, counts: IntArray) -> None:
        """See :class:`Runner`."""
        self._counts += counts

    def tables(self) -> FloatArray:
        """See :class:`Runner`."""
        single = {m[0]: self._counts[self._workload.slice_of(m)] for m in self._workload.marginals if len(m) == 1}
        events = max(self._counts[self._workload.slice_of(())][0], 1)
        return np.concatenate([np.outer(single[a], single[b]).ravel() / events for a, b in self._pairs.marginals])


def run(
    setting: Setting, *, keys: Mapping[str, Any] | None = None, curve: bool = False, once: bool = False
) -> dict[str, Any]:
    """A whole stream: the figures that the module tells of.

    Args:
        keys: keys of [synthesizer] that differ from what the setting says.
        curve: give errors over time as well.
        once: all rows come in one tick, the only one.

    Raises:
        ConfigError: a key has no effect with the others.
    """
    batches = setting.batches
    if once:
        rows_in_all = len(batches.codes)
        batches = replace(batches, ends=[rows_in_all], expected=rows_in_all, horizon=1)
    workload = Workload.all_up_to(2, sizes=batches.sizes)
    pairs = Workload(sizes=batches.sizes, marginals=tuple(m for m in workload.marginals if len(m) == 2))
    ticks = len(batches.ends)
    independent = Independent(workload, pairs)
    runner: Runner = Independent(workload, pairs)
    facts: dict[str, Any] = {"ticks": ticks}
    if setting.method != "independent":
        budget = Budget(epsilon=setting.epsilon, delta=setting.delta)
        settings = setting.settings()
        if keys:
            settings = SynthesizerConfig(**settings.model_dump(exclude_unset=True) | dict(keys))
            settings.check(budget)
        made = synthesizer_for(
            settings,
            workload=workload,
            budget=budget,
            horizon=None if setting.unbounded else batches.declared,
            groups=batches.groups if settings.kind == "table" else (),
        )
        runner = Private(made, pairs, setting.seed)
        facts["picks"] = getattr(made.mechanism, "picks", None)
        facts["how"] = made.describe()
    true = np.zeros(pairs.cells, dtype=np.int64)
    wanted = set(np.unique(np.linspace(0, ticks - 1, _POINTS).astype(int)).tolist()) if curve else set()
    spans = quarters(ticks)
    errors: list[dict[str, float]] = []
    alone: dict[int, dict[str, float]] = {}
    changed, seconds = [], []
    for tick, (begin, end) in enumerate(_spans(batches.ends)):
        rows = batches.codes[begin:end]
        counts, before = workload.count(rows), getattr(runner, "last", None)
        clock = time.perf_counter()
        runner.step(counts)
        seconds.append(time.perf_counter() - clock)
        independent.step(counts)
        true += pairs.count(rows)
        errors.append(asdict(table_errors(pairs, true=true, synthetic=runner.tables(), events=end)))
        if any(tick in span for span in spans):
            alone[tick] = asdict(table_errors(pairs, true=true, synthetic=independent.tables(), events=end))
        if before is not None and tick >= min(ticks // 2, ticks - LAST):
            changed.append(changed_share(before.codes, runner.last.codes))  # type: ignore[attr-defined]
        if sys.stderr.isatty():
            print(f"\r{tick + 1}/{ticks}", end="", file=sys.stderr)
    facts |= _means(errors[-LAST:])
    for name, means in (("all_ticks", _means(errors)), ("final", _means(errors[-1:]))):
        facts[name] = {key: means[key] for key in ("avg_we", "avg_rel_l1")}
    facts["quarters"] = [_quarter(span, batches.ends, errors, alone) for span in spans]
    if isinstance(runner, Private) and (whole := last_cycle(runner.refreshed())):
        means = _means(errors[whole.start : whole.stop])
        facts["cycle"] = {
            "ticks": [whole.start + 1, whole.stop],
            **{key: means[key] for key in ("avg_we", "avg_rel_l1")},
        }
    facts["seconds_per_release"] = round(float(np.median(seconds)), 4)
    facts["slowest_release"] = round(max(seconds[1:], default=seconds[0]), 4)
    if changed:
        facts["changed_rows"] = round(float(np.mean(changed[-LAST:])), 4)
        facts["changed_second_half"] = round(float(np.mean(changed[-(ticks - ticks // 2) :])), 4)
    if curve:
        shown = sorted(wanted)
        facts["curve"] = [
            {"tick": t, **{key: float(f"{value:.4g}") for key, value in errors[t].items()}} for t in shown
        ]
    return {
        **asdict(setting),
        **({"set": dict(keys)} if keys else {}),
        **({"once": True} if once else {}),
        "stream": setting.stream,
        **facts,
    }


def quarters(ticks: int) -> list[range]:
    """The last ticks up to 25, 50, 75 and 100 % of all, at most ten for each and none of the quarter before.

    Example:
        >>> quarters(4), quarters(100)[1]
        ([range(0, 1), range(1, 2), range(2, 3), range(3, 4)], range(40, 50))
    """
    ends = [max(round(ticks * share), 1) for share in QUARTERS]
    return [range(max(end - min(LAST, ticks // len(ends) or 1), 0), end) for end in ends]


def last_cycle(refreshed: Sequence[int]) -> range:
    """Ticks from the last refresh but one to the tick before the last; none if that is one tick, or there is no cycle.

    Example:
        >>> last_cycle([0, 1, 5, 9]), last_cycle([7, 8]), last_cycle([3])
        (range(5, 9), range(0, 0), range(0, 0))
    """
    found = range(*refreshed[-2:]) if len(refreshed) > 1 else range(0)
    return found if len(found) > 1 else range(0)


def _means(errors: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: round(float(np.mean([found[key] for found in errors])), 6) for key in errors[0]}


def _quarter(
    span: range, ends: Sequence[int], errors: Sequence[Mapping[str, float]], alone: Mapping[int, Mapping[str, float]]
) -> dict[str, Any]:
    """Errors at the end of a quarter, and those of independent columns."""
    ours, theirs = _means([errors[tick] for tick in span]), _means([alone[tick] for tick in span])
    found: dict[str, Any] = {"ticks": span.stop, "events": ends[span.stop - 1]}
    for key in ("avg_we", "avg_rel_l1"):
        found |= {key: ours[key], f"independent_{key}": theirs[key]}
    return found


def _spans(ends: list[int]) -> Iterator[tuple[int, int]]:
    return zip([0, *ends[:-1]], ends, strict=True)


def parsed(text: str) -> dict[str, Any]:
    """Keys of [synthesizer] and their values from ``key=value,key=value``.

    Example:
        >>> parsed("measure=epochs,growth=2"), parsed("")
        ({'measure': 'epochs', 'growth': 2}, {})
    """
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = value
    return found


def main() -> None:
    """Parse, run each seed with each choice of keys, print one JSON line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--data", choices=["adult", "evictions"], default="adult")
    which.add_argument("--stream", choices=list(STREAMS), help="a stream by its name (benchmarks.data)")
    parser.add_argument("--order", choices=["random", "by-row-number"], default="random", help="of adult")
    parser.add_argument("--batch", type=int, default=200, help="events per tick, of adult")
    parser.add_argument("--every", choices=["1w", "2w"], default="1w", help="length of a tick, of evictions")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--method", choices=get_args(Method), default="marginals")
    parser.add_argument("--counter", default="auto", help="of marginals and selective")
    parser.add_argument("--k", type=int, help="picks; left out: by rule")
    parser.add_argument("--fit", choices=["pgm", "mw"], default="pgm")
    parser.add_argument("--score", choices=["corrected", "paper"], default="corrected")
    parser.add_argument(
        "--measure", choices=["auto", "refresh", "always", "epochs"], default="auto", help="of marginals"
    )
    parser.add_argument("--unbounded", action="store_true", help="declare no horizon")
    parser.add_argument("--once", action="store_true", help="one release of all rows, as offline methods have")
    parser.add_argument("--seeds", type=int, default=1, help="of the order and of the simulated noise: 0, 1, ...")
    parser.add_argument(
        "--set", action="append", metavar="KEY=VALUE,...", help="keys of [synthesizer]; may be repeated"
    )
    args = vars(parser.parse_args())
    chosen: list[str] = args.pop("set") or [""]
    once: bool = args.pop("once")
    if stream := args.pop("stream"):
        args |= {"data": stream, "order": "", "batch": 0, "every": ""}
    lines: list[list[dict[str, Any]]] = [[] for _ in chosen]
    for seed in range(args.pop("seeds")):
        for text, own in zip(chosen, lines, strict=True):
            own.append(run(Setting(**args, seed=seed), keys=parsed(text), once=once))
            facts = {"bench": Path(__file__).stem, "neighbours": "add-remove", "unit": "event"}
            print(json.dumps({**facts, **own[-1], "peak_mb": round(peak_mb(), 1), **environment()}), flush=True)
    names = [f"{place}: {text or 'defaults'}" for place, text in enumerate(chosen, 1)]
    print(table(dict(zip(names, lines, strict=True))), file=sys.stderr)
    for other in lines[1:]:
        print(ratio(lines[0], other), file=sys.stderr)


if __name__ == "__main__":
    main()
