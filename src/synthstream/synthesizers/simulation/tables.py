"""Errors of published rows of a stream of tables, by simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from synthstream.config.synthesis import MOST_ROWS
from synthstream.fit.ahead import Ahead
from synthstream.fit.aims import Earlier
from synthstream.fit.population import Population, fit
from synthstream.fit.targets import MEMORY
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.measured import Measured
from synthstream.privacy import LARGEST_EPSILON, Budget
from synthstream.schema.schema import Schema
from synthstream.synthesizers.contract import Expected, Models, Piece, RowErrors
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.simulation.shapes import LatentClasses
from synthstream.workload import CodeArray, FloatArray, Workload

# More rows than this are simulated in proportion: fewer rows, with less noise by the same factor.
_MOST_ROWS = 60_000
# A release is drawn up to _MOST_DRAWS times, for about _ROWS_IN_ALL rows in all; errors are averaged over the draws. To
# fit so many cells takes as long as to fit a row; where there are many, errors are means over many tables, too.
_ROWS_IN_ALL, _MOST_DRAWS, _CELLS_OF_A_ROW = 15_000, 3, 20
# _LIVES: releases that are simulated, the last of them the one that is looked at. _LOOKS_BACK: from the first to the
# last, in multiples of the time that rows remember. Where many cells take long, fewer lives come near enough (5 %).
_LIVES, _LOOKS_BACK = 5, 2.0
# Fits in a row, for a stream that is measured in epochs.
_FITS = 5
# Rows that are taken in turn where each stands for many.
_LISTED = 2000
# Boxes that errors are averaged over.
_BOXES = 200
# Draws or runs to average over: for the configured budget, and for others.
_RUNS, _RUNS_OF_OTHERS = 4, 2
# Ticks whose numbers of events are within this factor are looked at in one run, beyond what is simulated in full.
_TOGETHER = 30.0


def runs_of(careful: bool) -> int:
    """Draws or runs to average over."""
    return _RUNS if careful else _RUNS_OF_OTHERS


def groups_of(ticks: Sequence[int], events_per_tick: float) -> list[list[int]]:
    """Ticks that one run looks at: a run that simulates many events in proportion shows little of its beginning."""
    groups: list[list[int]] = [[]]
    for t in ticks:
        first = groups[-1][0] if groups[-1] else t
        in_full = t * events_per_tick <= _MOST_ROWS
        if groups[-1] and not in_full and t > _TOGETHER * first and t * events_per_tick > _TOGETHER * 100:
            groups.append([])
        groups[-1].append(t)
    return groups


def pieces_at(errors: Callable[..., RowErrors], mechanism: Marginals | Refreshed, expected: Expected) -> list[Piece]:
    """Of tables that are measured at known times: a piece for each tick, by one of the functions below."""

    def after(t: int) -> dict[int, RowErrors]:
        shape, draws = _shape(expected.schema), runs_of(expected.careful)
        return {t: errors(mechanism, shape, tick=t - 1, events=t * expected.events_per_tick, draws=draws)}

    return [partial(after, t) for t in expected.ticks]


def pieces_in_epochs(made: Any, expected: Expected) -> list[Piece]:
    """Of tables that are measured once an epoch: a piece for each group of ticks, by :func:`in_epochs`."""
    rate = expected.events_per_tick

    def after(some: Sequence[int]) -> dict[int, RowErrors]:
        shape, seeds = _shape(expected.schema), range(_draws(made.mechanism.workload, 0, runs_of(expected.careful)))
        each = [in_epochs(made, shape, ticks=some, events_per_tick=rate, seed=s) for s in seeds]
        return {t: mean_of([one[t] for one in each]) for t in some}

    return [partial(after, some) for some in groups_of(expected.ticks, rate)]


def _shape(schema: Schema) -> LatentClasses:
    return LatentClasses(schema.sizes, [len(c.own_cells) for c in schema.columns], np.random.default_rng(0))


def errors_of(workload: Workload, gap: FloatArray) -> RowErrors:
    """Errors of one release, from estimated minus true counts over all cells of a workload, shape ``(cells,)``.

    A box is half of the codes of each of two columns, drawn at random: a quarter of their table.
    """
    sums = np.add.reduceat(np.abs(gap), workload.offsets[:-1])
    order = np.array([len(m) for m in workload.marginals])
    table_error = {int(k): float(sums[order == k].mean()) for k in np.unique(order) if k}
    return RowErrors(table_error=table_error, box=float(np.sqrt(np.mean(_in_boxes(workload, gap) ** 2))))


def box_variance(workload: Workload, variance: FloatArray) -> float:
    """Variance of the sum of the measured cells of a box, mean over all tables of two columns; NaN if there are none.

    A box takes half of the codes of each column, rounded up: of a table of a by b cells, each of variance v,
    ceil(a / 2) ceil(b / 2) cells. Noise is independent between cells, so the sum's variance is that number times v.
    """
    order = _order_of_boxes(workload)
    found = [
        np.prod([(size + 1) // 2 for size in shape]) * variance[q]
        for q, shape in enumerate(workload.shapes)
        if len(shape) == order
    ]
    return float(np.nanmean(found)) if found and not np.all(np.isnan(found)) else float("nan")


def _order_of_boxes(workload: Workload) -> int:
    """Two columns; or fewer, or more, if there are no such tables."""
    orders = {len(marginal) for marginal in workload.marginals if marginal}
    return 2 if 2 in orders else min(orders, default=0)


def _in_boxes(workload: Workload, gap: FloatArray) -> FloatArray:
    """Gap of the number of events in some boxes, shape ``(boxes,)``. Always the same boxes."""
    rng, order = np.random.default_rng(0), _order_of_boxes(workload)
    eligible = [q for q, m in enumerate(workload.marginals) if m and len(m) == order]
    if not eligible:
        return np.abs(gap[:1])
    found = []
    for q in rng.choice(eligible, size=_BOXES):
        part = workload.table(gap, q)
        for size in workload.shapes[q]:
            part = part[rng.permutation(size)[: (size + 1) // 2]].sum(axis=0)
        found.append(float(part))
    return np.array(found)


# Rows from the measurements so far, the rows before, and a seed.
Fit = Callable[[list[Measured], Population | None, int], Population]


def at_every_tick(
    mechanism: Marginals, shape: LatentClasses, *, tick: int, events: float, draws: int = _MOST_DRAWS
) -> RowErrors:
    """Errors of rows fitted to tables that are measured at every tick, after a tick, 0-based.

    Rows live on from release to release and so average some noise out. A few ticks before this one are simulated with
    it, each cell with normal noise of the counter's exact covariance; what rows forget in one step is what they would
    have forgotten in all ticks that it leaves out.

    Args:
        events: that have come by then.
        draws: releases to average over, at most; fewer where rows are many.
    """
    lives = min(_LIVES, 2 + _draws(mechanism.workload, 0, _LIVES))
    ticks = np.unique(np.linspace(tick - _LOOKS_BACK * MEMORY * tick, tick, lives).round().astype(int)).tolist()
    one = np.array([[mechanism.counter.covariance(s, t, multiplier=1.0) for t in ticks] for s in ticks])

    def fitted(history: list[Measured], rows: Population | None, seed: int) -> Population:
        measured, k = history[-1], len(history) - 1
        left_out = ticks[k] - ticks[k - 1] if k else 1
        # One fit in place of these keeps as much of the rows before as they would.
        kept = (1 - 1 / (1 + MEMORY * measured.tick)) ** left_out
        return fit(measured, start=rows, seed=seed, memory=kept / (1 - kept) / max(measured.tick, 1))

    covariance = one[..., None] * mechanism.multipliers**2
    return _simulated(mechanism.workload, covariance, {t: t for t in ticks}, shape, fitted, events, draws)


def at_refreshes(
    mechanism: Refreshed, shape: LatentClasses, *, tick: int, events: float, draws: int = _MOST_DRAWS
) -> RowErrors:
    """As :func:`at_every_tick`, of tables of which larger ones are measured at refreshes.

    Rows follow the newest measurement, so the last two refreshes and this tick are simulated alone.
    """
    last = mechanism.times.last(tick)[0]
    ticks = sorted({mechanism.times.last(max(last - 1, 0))[0], last, tick})
    covariance = np.array([[mechanism.covariance(s, t) for t in ticks] for s in ticks])

    def fitted(history: list[Measured], rows: Population | None, seed: int) -> Population:
        now, fresh = history[-1], mechanism.times.comes(history[-1].tick)
        then = None
        if not fresh:
            before = history[-2]
            scale = before.variance / mechanism.variance(before.tick)
            then = Earlier(before, mechanism.covariance(before.tick, now.tick) * scale, mechanism.unit.signed)
        return fit(now, start=rows, seed=seed, memory=0.0, fresh=fresh, then=then)

    counted = {t: mechanism.times.last(t)[0] for t in ticks}
    return _simulated(mechanism.workload, covariance, counted, shape, fitted, events, draws)


def _simulated(
    workload: Workload,
    covariance: FloatArray,
    counted: Mapping[int, int],
    shape: LatentClasses,
    fitted: Fit,
    events: float,
    draws: int,
) -> RowErrors:
    """Errors of rows after the last of some ticks, mean over draws.

    Args:
        covariance: of the noise of a cell between these ticks, shape ``(ticks, ticks, marginals)``.
        counted: tick -> the tick up to which tables of several columns have counted.
    """
    ticks, found = list(counted), []
    scale = max(1.0, events / _most_rows(workload))
    variance = np.einsum("ttq->tq", covariance) / scale**2
    roots, tables = _roots(covariance), np.repeat(np.arange(len(workload.marginals)), workload.lengths)
    small = (workload.order < 2)[tables]
    for draw in range(_draws(workload, round(events / scale), draws)):
        rng = np.random.default_rng([ticks[-1], draw])
        noise = np.einsum("cst,tc->sc", roots[tables], rng.normal(size=(len(ticks), workload.cells)))
        numbers = {t: round(events * (t + 1) / (ticks[-1] + 1) / scale) for t in {*counted, *counted.values()}}
        codes, rows = shape.rows(numbers[ticks[-1]], rng), None
        history, gap = list[Measured](), np.zeros(0)
        for k, t in enumerate(ticks):
            true, larger = (workload.count(codes[: numbers[n]]) for n in (t, counted[t]))
            values = np.where(small, true, larger) + noise[k] / scale
            history.append(Measured(tick=t, workload=workload, values=values, variance=variance[k]))
            rows = fitted(history, rows, draw)
            gap = np.asarray(rows.counts(workload) - true, dtype=np.float64)
        found.append(errors_of(workload, gap * scale))
    return mean_of(found)


def _draws(workload: Workload, rows: int, most: int) -> int:
    """How often a release of so many rows is drawn.

    Example:
        >>> [_draws(Workload.all_up_to(2, sizes=(8,) * number), 1000, 3) for number in (10, 50, 100)]
        [3, 3, 1]
    """
    return int(np.clip(_ROWS_IN_ALL // max(rows, workload.cells // _CELLS_OF_A_ROW, 1), 1, most))


def _roots(covariance: FloatArray) -> FloatArray:
    """Of the noise of a cell of each table between ticks, shape ``(marginals, ticks, ticks)``.

    A little more is added to the diagonal: a table that was not measured again has one noise at two ticks.
    """
    each = np.moveaxis(covariance, -1, 0)
    size = np.sqrt(np.maximum(np.einsum("qtt->qt", each), np.finfo(np.float64).tiny))
    scaled = each / (size[:, :, None] * size[:, None, :]) + 1e-9 * np.eye(each.shape[1])
    return np.asarray(np.linalg.cholesky(scaled) * size[:, :, None])


def in_epochs(
    made: Any, shape: LatentClasses, *, ticks: Sequence[int], events_per_tick: float, seed: int = 0
) -> dict[int, RowErrors]:
    """Errors, by number of ticks, of rows fitted to tables that are measured once an epoch: by running the mechanism.

    The real mechanism is stepped at the end of each epoch, and at the ticks asked for, with seeded noise. What comes in
    between is counted there.

    Args:
        made: a synthesizer whose mechanism is an :class:`Epochs`.
    """
    # With a scale above 1 each row stands for ``scale`` rows, and noise is smaller by the same factor.
    scale = max(1.0, max(ticks) * events_per_tick / _most_rows(made.mechanism.workload))
    budget = made.mechanism.budget
    epsilon = min(budget.epsilon * scale, LARGEST_EPSILON)  # with that hardly any noise is left
    mechanism = replace(made.mechanism, budget=Budget(epsilon=epsilon, delta=budget.delta))
    # Rows of the shape know no constraint, and lie in every cell of every grid of a place: nor does their fit.
    made = replace(made, mechanism=mechanism, how=made.how._replace(groups=(), dates=None))
    workload, rng = mechanism.workload, np.random.default_rng(seed)
    state, last, gate = mechanism.init(), None, SeededGate(f"forecast {seed}")
    history: dict[int, Measured] = {}
    models: Models = {}
    true, found, rows = np.zeros(workload.cells, dtype=np.int64), {}, _Rows(shape, scale, rng)
    for before, end in pairwise([0, *sorted({*_stepped(mechanism, max(ticks)), *ticks})]):
        number = round(end * events_per_tick / scale) - round(before * events_per_tick / scale)
        counts = made.count(rows.next(number), None)
        true += counts.dense(made.cells)[: workload.cells]
        state = state | {"t": np.array(end - 1)}  # ticks without events change nothing but the noise of the total
        state, measured, models = made.step(state, counts, gate, last, models)
        history[end - 1] = _noisier(mechanism, measured, steps=int(state["total.t"]), rng=rng)
        # A stream fits its rows anew at every tick, and they come nearer each time.
        for again in range(min(end - before, _FITS if end in ticks else 1)):
            last = made.fit(end - 1, history.__getitem__, last, models, seed=end + again)
        if end in ticks and last is not None:
            gap = np.asarray(last.counts(workload) - true, dtype=np.float64)
            found[end] = errors_of(workload, np.asarray(gap * scale, dtype=np.float64))
    return found


class _Rows:
    """Rows of a shape, of which each stands for ``scale`` events: shares vary no more than those of all these would.

    One row in ``scale`` is drawn; the others come in turn from a fixed list.
    """

    def __init__(self, shape: LatentClasses, scale: float, rng: np.random.Generator) -> None:
        self._shape, self._scale, self._rng = shape, scale, rng
        self._list, self._place = shape.rows(_LISTED, rng), 0

    def next(self, number: int) -> CodeArray:
        """So many more."""
        drawn = round(number / self._scale)
        places = (self._place + np.arange(number - drawn)) % _LISTED
        self._place = (self._place + number - drawn) % _LISTED
        return np.concatenate([self._shape.rows(drawn, self._rng), self._list[places]])


def _noisier(mechanism: Epochs, measured: Measured, *, steps: int, rng: np.random.Generator) -> Measured:
    """A measurement whose total has the noise of its tick: its counter was stepped fewer times."""
    q = mechanism.workload.place[()]
    lacking = mechanism.variance(measured.tick)[q] - mechanism.variance(steps - 1)[q]
    values = measured.values.copy()
    values[measured.workload.slice_of(())] += rng.normal() * np.sqrt(max(lacking, 0.0))
    return replace(measured, values=values)


def _stepped(mechanism: Epochs, ticks: int) -> list[int]:
    """Numbers of ticks at which the mechanism is stepped: the ends of epochs; of signed events, of their parts too.

    Where shares do not change all other epochs have one part. Rows that come evenly end a part by growing by a tenth.
    """
    ends = mechanism.times.ended(ticks)
    if mechanism.counts_rows:
        ends = sorted({*ends, *replace(mechanism, growth=1.1).times.ended(ticks)})
    return ends


def seconds_per_release(mechanism: Marginals | Refreshed | Epochs, expected: Expected) -> float:
    """Seconds of the release after the last of the ticks, on this machine: counting a batch, noise, and nudging rows of
    the release before.

    Measured on simulated rows. A fit takes time for its tables, and in proportion to its rows.
    """

    def seconds(work: Callable[[], object]) -> float:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin

    def of_fit(rows: int) -> float:
        values, start = workload.count(codes[:rows]).astype(np.float64), Population.of(workload, codes[:rows])
        measured = Measured(tick=0, workload=workload, values=values, variance=variance)
        return seconds(lambda: fit(measured, start=start, seed=0))

    workload, rate, rng = mechanism.workload, expected.events_per_tick, np.random.default_rng(0)
    events = expected.ticks[-1] * rate
    number = max(round(min(events, _MOST_ROWS)), 1)
    codes, state = _shape(expected.schema).rows(number, rng), mechanism.init()
    counts, variance = workload.count(codes), np.maximum(mechanism.variance(0), 1e-6)
    few = max(number // 20, 1)
    _, fitted, fixed = of_fit(few), of_fit(number), of_fit(few)  # the first one compiles what there is to compile
    counted = seconds(lambda: workload.count(codes[: max(round(min(rate, number)), 1)]))
    if isinstance(mechanism, Epochs):
        counts = np.append(counts, number) if mechanism.counts_rows else counts
        noise = seconds(lambda: mechanism.step(state, counts, SeededGate(0), Ahead(workload=workload)))
    else:
        noise = seconds(lambda: mechanism.step(state, counts, SeededGate(0)))
    # Beyond that many rows, each of those that are fitted stands for several events.
    by_rows = max(fitted - fixed, 0.0) * max(1.0, min(events, MOST_ROWS) / number)
    return noise + counted * max(1.0, rate / number) + fixed + by_rows


def _most_rows(workload: Workload) -> int:
    """Rows to simulate: fewer where many tables hold a column, as a fit takes longer."""
    held = sum(len(m) for m in workload.marginals) / len(workload.sizes)
    return int(np.clip(_MOST_ROWS * 20 / max(held, 1.0), 1000, _MOST_ROWS))


def mean_of(found: Sequence[RowErrors]) -> RowErrors:
    """Means over draws."""
    return RowErrors(
        table_error={k: float(np.mean([f.table_error[k] for f in found])) for k in found[0].table_error},
        box=float(np.sqrt(np.mean([f.box**2 for f in found]))),
    )
