"""Synthetic rows, drawn by executors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from synthstream.release.release import Release, seed_of
from synthstream.spark.sessions import session
from synthstream.spark.tasks import Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows that are drawn together, with a seed of their own.
_BLOCK_ROWS = 100_000


def rows(release: Release, n: int, *, seed: int = 0, spark: SparkSession | None = None) -> DataFrame:
    """Synthetic rows of a release, drawn by the executors. Free: a release is public.

    Rows are drawn in blocks of 100,000, each with a public seed of its own, so that the same call gives the same rows
    on any number of machines. Within a block they are drawn as :meth:`Release.rows` does.

    Args:
        release: of which.
        n: how many.
        seed: another one gives other rows.
        spark: left out: the active session, or a new one on this machine.

    Returns:
        A Spark frame with the stream's columns.

    Raises:
        EngineError: Spark does not start.
        ValueError: ``n`` is negative.
    """
    if n < 0:
        raise ValueError(f"n must be at least 0, not {n}")
    from pyspark.sql.pandas.types import to_arrow_schema

    running = spark or session()
    shape = running.createDataFrame(_plain(release.rows(0))).schema
    drawn = partial(_drawn, release, n, seed_of(release.head, f"spark {seed}"), to_arrow_schema(shape))
    blocks = -(-n // _BLOCK_ROWS)
    return running.range(0, blocks, 1, max(1, blocks)).mapInArrow(drawn, shape)


def _drawn(release: Release, n: int, seed: int, shape: pa.Schema, batches: Batches) -> Batches:
    for batch in batches:
        for block in batch["id"].to_pylist():
            size = min(_BLOCK_ROWS, n - block * _BLOCK_ROWS)
            table = _plain(release.rows(size, seed=np.random.default_rng([seed, block])))
            yield from table.cast(shape).combine_chunks().to_batches()


def _plain(frame: Any) -> pa.Table:
    """Arrow types that Spark knows."""
    table = frame.to_arrow()
    fields = [
        pa.field(f.name, pa.string() if pa.types.is_large_string(f.type) or pa.types.is_string_view(f.type) else f.type)
        for f in table.schema
    ]
    return table.cast(pa.schema(fields))
