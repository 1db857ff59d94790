"""Small streams that are run to their end, and what can be seen of them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from synthstream import Stream, StreamConfig
from synthstream.kernel.gate import Gate
from synthstream.privacy import Claim
from tests.support.visits import TOML

SIGNED = TOML.replace("[privacy]", 'op = "op"\n[privacy]')

# Day of January 2026, ward, age, op.
Row = tuple[int | None, str | None, float | None, str | None]
ROWS: list[Row] = [(1 + n % 5, "ABC"[n % 3], 7.0 * n % 100, "1") for n in range(12)]


def configured(folder: Path, text: str = TOML) -> StreamConfig:
    """A stream of five days, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    return StreamConfig.from_toml(text, base=folder)


def extended(rows: Sequence[Row]) -> pl.DataFrame:
    """Rows as a frame."""
    start = datetime(2026, 1, 1)
    return pl.DataFrame(
        {
            "when": pl.Series(
                [None if d is None else start + timedelta(days=d - 1) for d, *_ in rows], dtype=pl.Datetime
            ),
            "ward": pl.Series([row[1] for row in rows], dtype=pl.String),
            "age": pl.Series([row[2] for row in rows], dtype=pl.Float64),
            "op": pl.Series([row[3] for row in rows], dtype=pl.String),
        }
    )


def finished(folder: Path, rows: pl.DataFrame, gates: Callable[[int], Gate], *, text: str = TOML) -> Claim:
    """Run a stream to its end; returns its claim."""
    config = configured(folder, text)
    rows.write_parquet(folder / "visits-1.parquet")
    with Stream(config, gates=gates) as stream:
        list(stream.run())
        claim: Claim = stream.mechanism.claim()
        return claim


def seen(
    folder: Path, rows: pl.DataFrame, gates: Callable[[int], Gate], *, text: str = TOML
) -> tuple[dict[str, bytes], str, str, str]:
    """Everything that can be seen of a run: published files, standard output, standard error, and how it ended."""
    config = configured(folder, text)
    rows.write_parquet(folder / "visits-1.parquet")
    out, err, end = io.StringIO(), io.StringIO(), ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with Stream(config, gates=gates) as stream:
                list(stream.run())
                print(stream.status())
        except AssertionError:
            raise
        except Exception as error:
            end = f"{type(error).__name__}: {error}"
    return published(folder), out.getvalue(), err.getvalue(), end


def published(folder: Path) -> dict[str, bytes]:
    """Everything in the place of publication that a reader may look at."""
    place = folder / "releases"
    paths: list[Any] = [p for p in sorted(place.rglob("*.*")) if p.is_file() and ".writing" not in str(p)]
    return {str(p.relative_to(place)): p.read_bytes() for p in paths}
