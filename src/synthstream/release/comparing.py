"""What has changed between two releases of a stream, and how much of it may be noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from synthstream.errors import SchemaError
from synthstream.workload import FloatArray

# A difference of more standard errors than this is called more than noise. By chance alone that happens in about 3
# cells of 1,000 if noise is Gaussian, and in up to about 12 if it is Laplace noise.
BEYOND = 3.0


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


def ordered(frame: pl.DataFrame) -> pl.DataFrame:
    """With ``z`` and ``beyond_noise`` beside ``measured`` and ``stderr``; what stands out most comes first."""
    known = pl.col("stderr").is_not_nan() & pl.col("measured").is_not_null()
    frame = frame.with_columns(pl.when(known).then(pl.col("measured", "stderr")))
    frame = frame.with_columns(z=pl.when(pl.col("stderr") > 0).then(pl.col("measured") / pl.col("stderr")))
    frame = frame.with_columns(beyond_noise=pl.col("z").abs() > BEYOND)
    order = [pl.col("z").abs(), pl.col("difference").abs()]
    return frame.sort(order, descending=True, nulls_last=True, maintain_order=True)


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
