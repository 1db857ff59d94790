"""PRIVATE. How many persons a look at the rows found, and what their limits would leave out."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.evaluate.formats import alike
from synthstream.evaluate.look import Looked


@dataclass(frozen=True, kw_only=True, repr=False)
class Persons:
    """How many persons there are, how many have as many rows as count, or more, and how many rows have no person.

    Args:
        left_out: rows beyond the limits.
        alike: groups of keys that may be one person.
    """

    number: int
    full: int
    left_out: int
    without: int
    alike: tuple[tuple[str, ...], ...]


def persons_in(config: StreamConfig, looked: Looked) -> Persons | None:
    """Those of a stream that protects persons; ``None`` of another."""
    unit, people = config.privacy.unit, looked.rows.people
    if not unit.of_persons or people is None:
        return None
    window = pl.lit(0) if unit.period is None else pl.col("tick") // unit.period
    counted = people.with_columns(window=window, kept=pl.col("rows").clip(upper_bound=unit.in_a_tick))
    periods = counted.group_by("who", "window").agg(pl.col("rows").sum(), pl.col("kept").sum())
    periods = periods.with_columns(kept=pl.col("kept").clip(upper_bound=unit.max_events))
    keys = people["who"].unique()
    same = pl.DataFrame({"who": keys, "alike": alike(keys)}).group_by("alike").agg("who")
    groups = same.filter(pl.col("who").list.len() > 1).sort("alike")["who"].to_list()
    return Persons(
        number=keys.len(),
        full=periods.filter(pl.col("rows") >= unit.max_events)["who"].n_unique(),
        left_out=int(periods.select(pl.col("rows").sum() - pl.col("kept").sum()).item()),
        without=looked.rows.count - int(people["rows"].sum()),
        alike=tuple(tuple(sorted(group)) for group in groups),
    )
