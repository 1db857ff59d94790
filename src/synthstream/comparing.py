"""What has changed between two releases of a stream, and how much of it may be noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from synthstream.errors import SchemaError
from synthstream.release import FloatArray, Release, TableRelease
from synthstream.workload import IntArray, Workload

# A difference of so many standard errors is called more than noise: by chance alone about 3 cells in 1,000 are, where
# noise is Gaussian; with delta = 0 up to about 12.
BEYOND = 3.0


def compared(now: TableRelease, then: Release, columns: Sequence[str] | None) -> pl.DataFrame:
    """See :meth:`TableRelease.compare`."""
    earlier = _comparable(now, then)
    if columns is None:
        workload, new, old = now.workload, now.tables, earlier.tables
    else:
        workload, new, old = now.marginal_of(columns), now.table(columns), earlier.table(columns)
    names = new.columns[: new.columns.index("count")]
    stderr = np.sqrt(_variances(now, earlier, workload))
    frame = new.select(
        *names,
        then=old["count"],
        now=new["count"],
        difference=new["count"] - old["count"],
        measured=new["measured"] - old["measured"],
        stderr=pl.Series(np.repeat(stderr, workload.lengths)),
    )
    known = pl.col("stderr").is_not_nan() & pl.col("measured").is_not_null()
    frame = frame.with_columns(pl.when(known).then(pl.col("measured", "stderr")))
    frame = frame.with_columns(z=pl.when(pl.col("stderr") > 0).then(pl.col("measured") / pl.col("stderr")))
    frame = frame.with_columns(beyond_noise=pl.col("z").abs() > BEYOND)
    order = [pl.col("z").abs(), pl.col("difference").abs()]
    return frame.sort(order, descending=True, nulls_last=True, maintain_order=True)


def _comparable(now: TableRelease, then: Release) -> TableRelease:
    if not isinstance(then, Release):
        raise TypeError(f"compare: takes an earlier release, not {type(then).__name__}")
    if not isinstance(then, TableRelease) or type(then) is not type(now):
        raise SchemaError(
            f"compare: a {type(now).__name__} is compared with another one of its stream, not with a "
            f"{type(then).__name__}"
        )
    if (now.name, now.schema.hash, _promise(now)) != (then.name, then.schema.hash, _promise(then)):
        raise SchemaError(f"compare: {now.name!r} and {then.name!r} are not releases of one stream")
    if then.tick >= now.tick:
        raise SchemaError(
            f"compare: tick {then.tick} is not earlier than tick {now.tick}; ask the later one, as in "
            "later.compare(earlier)"
        )
    return then


def _promise(release: Release) -> dict[str, Any]:
    """The numbers of the claim. A later segment of the same stream rests on one theorem more."""
    return {key: value for key, value in release.facts["claim"].items() if key not in ("words", "theorems", "trusts")}


def _variances(now: TableRelease, then: TableRelease, workload: Workload) -> FloatArray:
    """Of the difference of what was measured, for each table; NaN where it is not known or means nothing."""
    places = [now.workload.marginals.index(m) if m in now.workload.marginals else -1 for m in workload.marginals]
    (since, own), (before, past) = (_extent(release, workload) for release in (now, then))
    shared = np.full(len(places), np.nan)
    for pair in {(a, b) for a, b in zip(since.tolist(), before.tolist(), strict=True) if a >= 0 and b >= 0}:
        here = (since == pair[0]) & (before == pair[1])
        shared[here] = _shared(now.covariance, (pair[0], now.tick), (pair[1], then.tick))[np.array(places)[here]]
    # Of releases, running counts alone have a difference that counts something; windows count what lies in each.
    running = (since == 0) & (before == 0) if type(now) is TableRelease else np.ones(len(places), dtype=np.bool_)
    return np.where(running, np.maximum(own + past - 2 * shared, 0.0), np.nan)


def _extent(release: TableRelease, workload: Workload) -> tuple[IntArray, FloatArray]:
    """First tick that each table counts, and its variance; -1 and NaN if it was not measured."""
    known = {m: q for q, m in enumerate(release.measured.workload.marginals)}
    found = [known.get(marginal, -1) for marginal in workload.marginals]
    since = np.array([-1 if q < 0 else int(release.measured.since[q]) for q in found])
    return since, np.array([np.nan if q < 0 else float(release.measured.variance[q]) for q in found])


def _shared(
    covariance: Callable[[int, int], FloatArray] | None, now: tuple[int, int], then: tuple[int, int]
) -> FloatArray:
    """Covariance of what was measured over two spans of ticks, ends included, for each table of the stream."""
    if covariance is None:
        raise SchemaError("compare: this release does not know the covariance of its noise")
    total: FloatArray = covariance(now[1], then[1])
    for sign, s, t in ((-1, now[0] - 1, then[1]), (-1, now[1], then[0] - 1), (1, now[0] - 1, then[0] - 1)):
        if s >= 0 and t >= 0:
            total = total + sign * covariance(s, t)
    return total
