"""Which rows of a person count: so many at most, chosen by a keyed hash, from that person's own rows alone.

A person may add no more than a fixed number of events to a stream. What decides which of a person's rows count must
not depend on other people's rows, nor on the order of rows, nor on how they were cut into files: otherwise one person
would change what others count for, and the change would have no bound.

Rows wait until the tick in which they count is closed. They are taken tick by tick and, within a tick, in the order of
a keyed hash of the row: that order has nothing to do with what rows say, and nobody without the key can aim at it.

Privacy:
    Unit        one person; neighbours: add-remove
    Cost        none: this bounds what :mod:`synthstream.kernel.spending` charges
    Theorem     group
    Trusts      the key of the state; that hashes of 128 bits do not collide
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import polars as pl

from synthstream.ingest.counting import PrivateRows
from synthstream.privacy import Unit
from synthstream.workload import CodeArray, IntArray

_HASH = 16
_NEVER_MORE = 2**40


def arrivals(rows: PrivateRows, *, open_tick: int, key: bytes, cuts: int = 0) -> pl.DataFrame:
    """Rows as they wait, equal ones of a person in a tick together.

    Args:
        cuts: how often the stream has gone on with other settings: what had been these bytes before is another row.

    Returns:
        Columns ``who`` and ``rank``, keyed hashes of the person and of the row, 16 bytes; ``tick``, the later of the
        row's own and the open one; ``row``, its codes and sign as bytes; ``number``, how many there are.

    Raises:
        ValueError: the rows have no people.
    """
    if rows.people is None:
        raise ValueError("rows: without people nobody's rows can be counted")
    people = rows.people.unique()
    hashes = [blake2b(text.encode(), digest_size=_HASH, key=key, person=b"who").digest() for text in people]
    named = pl.DataFrame({"text": people, "who": pl.Series(hashes, dtype=pl.Binary)})
    found = pl.DataFrame(
        {
            "text": rows.people,
            "tick": np.maximum(rows.ticks, open_tick),
            "row": _as_bytes(rows.codes, rows.weights),
        }
    )
    found = found.group_by("text", "tick", "row").agg(number=pl.len().cast(pl.Int64)).join(named, on="text")
    salt = cuts.to_bytes(_HASH, "big")
    ranks = [
        blake2b(who + tick.to_bytes(8, "big") + row, digest_size=_HASH, key=key, person=b"rank", salt=salt).digest()
        for who, tick, row in found.select("who", "tick", "row").iter_rows()
    ]
    return found.select("who", "tick", pl.Series("rank", ranks, dtype=pl.Binary), "row", "number")


def counting(rows: pl.DataFrame, unit: Unit) -> pl.DataFrame:
    """How many of some waiting rows count, if no others come: a column ``kept`` beside the others.

    Of each person and period: rows tick by tick, at most ``unit.in_a_tick`` of each tick in the order of their rank,
    and of these the first ``unit.max_events - used``.

    A row that does not count now never will, so it need not be kept. Its place, the number of rows taken before it, can
    only grow while rows come: those of an earlier tick, or of its own tick with a smaller rank, come before it or fill
    its tick. When a tick closes, as many rows leave the front as ``used`` grows by. Nor does leaving it out move
    another row: one that does not count because its tick is full is not among those taken before another, and one that
    comes after the last that counts is followed by none that do.

    Args:
        rows: columns ``who``, ``tick``, ``rank``, ``number``, ``window`` and ``used``, the number of the person's
            events that counted in closed ticks of that period.
    """
    rows = rows.sort("who", "tick", "rank")
    who, tick, window = rows["who"].rle_id().to_numpy(), rows["tick"].to_numpy(), rows["window"].to_numpy()
    number = np.minimum(rows["number"].to_numpy(), unit.max_events)
    in_tick = np.clip(unit.in_a_tick - _before(number, who, tick), 0, number)
    left = unit.max_events - rows["used"].to_numpy() - _before(in_tick, who, window)
    return rows.with_columns(kept=pl.Series(np.clip(left, 0, in_tick), dtype=pl.Int64))


def _before(number: IntArray, *groups: IntArray) -> IntArray:
    """Sum of the numbers before each one in its group; members of a group stand together."""
    first = np.zeros(number.size, dtype=np.int64)
    for group in groups:
        first[1:] |= group[1:] != group[:-1]
    start = np.maximum.accumulate(np.where(first == 1, np.arange(number.size), 0))
    sums = np.cumsum(number) - number
    return np.asarray(sums - sums[start])


def unused(rows: pl.DataFrame, unit: Unit) -> pl.DataFrame:
    """Rows as :func:`counting` takes them: each in its period, and none of its person's events counted before."""
    window = pl.lit(0) if unit.period is None else pl.col("tick") // unit.period
    return rows.with_columns(window=window.cast(pl.Int64), used=pl.lit(0, dtype=pl.Int64))


def window_of(tick: int, unit: Unit) -> int:
    """The period that a tick lies in, from 0; there is one only if limits are for life."""
    return 0 if unit.period is None else tick // unit.period


def span_of(window: int, unit: Unit) -> tuple[int, int]:
    """First and last tick of a period."""
    return (0, _NEVER_MORE) if unit.period is None else (window * unit.period, (window + 1) * unit.period - 1)


def from_bytes(rows: bytes, columns: int) -> tuple[CodeArray, IntArray]:
    """Codes and signs of rows that lie one after the other as bytes, each as ``arrivals`` wrote it."""
    table = np.frombuffer(rows, dtype=np.uint8).reshape(-1, 4 * columns + 1)
    codes = np.ascontiguousarray(table[:, 1:]).view("<i4").astype(np.int32)
    return codes, table[:, 0].view(np.int8).astype(np.int64)


def _as_bytes(codes: CodeArray, weights: IntArray | None) -> pl.Series:
    signs = np.ones(len(codes), dtype=np.int8) if weights is None else weights.astype(np.int8)
    cells = np.ascontiguousarray(codes, dtype="<i4").view(np.uint8).reshape(len(codes), 4 * codes.shape[1])
    table = np.ascontiguousarray(np.concatenate([signs.view(np.uint8)[:, None], cells], axis=1))
    return pl.Series("row", table.view(f"V{table.shape[1]}").ravel().tolist(), dtype=pl.Binary)
