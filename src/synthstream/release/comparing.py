"""What has changed between two releases of a stream, and how much of it may be noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl

from synthstream.errors import SchemaError
from synthstream.measured import Measured
from synthstream.release.answers import direct
from synthstream.workload import FloatArray, IntArray, Workload

# A difference of more standard errors than this is called more than noise. By chance alone that happens in about 3
# cells of 1,000 if noise is Gaussian, and in up to about 12 if it is Laplace noise.
BEYOND = 3.0


class Tables(Protocol):
    """What is compared: a :class:`synthstream.release.release.TableRelease`."""

    @property
    def tick(self) -> int: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def measured(self) -> Measured: ...
    @property
    def covariance(self) -> Callable[[int, int], FloatArray] | None: ...
    @property
    def running(self) -> bool: ...
    @property
    def tables(self) -> pl.DataFrame: ...
    def table(self, columns: Sequence[str] | str) -> pl.DataFrame: ...
    def marginal_of(self, columns: Sequence[str] | str) -> Workload: ...


def promise(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the claim. A later segment of the same stream rests on one theorem more."""
    return {key: value for key, value in facts["claim"].items() if key not in ("words", "theorems", "trusts")}


def began_as(now: Mapping[str, Any], then: Mapping[str, Any], *, schema: str) -> bool:
    """Whether a release of an earlier tick may be of the same stream, as far as the facts of both tell.

    Args:
        schema: hash of the earlier one's columns.
    """
    ours, cuts, theirs = list(now.get("cuts", ())), len(then.get("cuts", ())), promise(then)
    if len(ours) == cuts:
        return ours == list(then.get("cuts", ())) and promise(now) == theirs
    parts = now["claim"]["parts"][: cuts + 1]
    mine = parts if cuts else [{"epsilon": parts[0]["epsilon"], "delta": parts[0]["delta"]}]
    told = theirs["parts"] if cuts else [{"epsilon": theirs["epsilon"], "delta": theirs["delta"]}]
    return bool(ours[cuts]["schema"] == schema and mine == told)


def compared(now: Tables, earlier: Tables, columns: Sequence[str] | str | None) -> pl.DataFrame:
    """Counts now and earlier, cell by cell, with the errors of their differences, and which ticks these are of."""
    if columns is None:
        workload, new, old = now.workload, now.tables, earlier.tables
    else:
        new, old = now.table(columns), earlier.table(columns)
        workload = now.marginal_of(columns)
    names = new.columns[: new.columns.index("count")]
    own, past = (direct(release.measured, workload)["measured"] for release in (now, earlier))
    frame = new.select(
        *names,
        then=old["count"],
        now=new["count"],
        difference=new["count"] - old["count"],
        measured=own - past,
        stderr=pl.Series(np.repeat(np.sqrt(_variances(now, earlier, workload)), workload.lengths)),
    )
    return ordered(frame.with_columns(**_told(now, earlier, workload)))


def _told(now: Tables, earlier: Tables, workload: Workload) -> dict[str, pl.Series]:
    """First and last tick that each side of ``measured`` counts, where not all is measured at one tick."""
    if now.measured.measured_at is None and earlier.measured.measured_at is None:
        return {}
    found = dict[str, pl.Series]()
    for release, suffix in ((earlier, "_then"), (now, "")):
        spans = _extent(release, workload)[0]
        ends = {"measured_at": spans[:, 1]} if release.running else {"since": spans[:, 0], "measured_at": spans[:, 1]}
        for name, ticks in ends.items():
            each = pl.Series(np.repeat(ticks, workload.lengths), dtype=pl.Int64)
            found[name + suffix] = each.set(each < 0, None)
    return found


def ordered(frame: pl.DataFrame) -> pl.DataFrame:
    """With ``z`` and ``beyond_noise`` beside ``measured`` and ``stderr``; what stands out most comes first."""
    known = pl.col("stderr").is_not_nan() & pl.col("measured").is_not_null()
    frame = frame.with_columns(pl.when(known).then(pl.col("measured", "stderr")))
    frame = frame.with_columns(z=pl.when(pl.col("stderr") > 0).then(pl.col("measured") / pl.col("stderr")))
    frame = frame.with_columns(beyond_noise=pl.col("z").abs() > BEYOND)
    order = [pl.col("z").abs(), pl.col("difference").abs()]
    return frame.sort(order, descending=True, nulls_last=True, maintain_order=True)


def _variances(now: Tables, then: Tables, workload: Workload) -> FloatArray:
    """Of the difference of what was measured, for each table; NaN where it is not known or means nothing."""
    places = [now.workload.place.get(m, -1) for m in workload.marginals]
    (new, own), (old, past) = (_extent(release, workload) for release in (now, then))
    shared, known = np.full(len(places), np.nan), (new[:, 0] >= 0) & (old[:, 0] >= 0)
    for spans in {(*a, *b) for a, b, measured in zip(new.tolist(), old.tolist(), known, strict=True) if measured}:
        here = (np.hstack([new, old]) == spans).all(axis=1)
        shared[here] = between_spans(now.covariance, spans[:2], spans[2:])[np.array(places)[here]]
    # Of releases, running counts alone have a difference that counts something. A table that is measured at refreshes
    # counts more ticks than its window has; two windows tell a change where both are widened alike.
    if now.running:
        alike = (new[:, 0] == 0) & (old[:, 0] == 0) & (new[:, 1] > old[:, 1])  # else both are one measurement
    else:
        begins = [int(getattr(release, "first", 0)) for release in (now, then)]
        alike = (new - old == (begins[0] - begins[1], now.tick - then.tick)).all(axis=1)
    return np.where(alike, np.maximum(own + past - 2 * shared, 0.0), np.nan)


def _extent(release: Tables, workload: Workload) -> tuple[IntArray, FloatArray]:
    """First and last tick that each table counts, and its variance; -1 and NaN if it was not measured."""
    measured = release.measured
    found = [measured.workload.place.get(marginal, -1) for marginal in workload.marginals]
    spans = np.array([(-1, -1) if q < 0 else (int(measured.since[q]), int(measured.until[q])) for q in found])
    return spans, np.array([np.nan if q < 0 else float(measured.variance[q]) for q in found])


def between_spans(
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
