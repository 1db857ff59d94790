"""Small real streams to be interrupted: what comes in, who drives them, what must come out."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.environment import Env
from synthstream.errors import SynthstreamError
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.stream.stream import Stream
from tests.support.configs import SINK, WARD, number, source, stream_toml
from tests.support.gates import ExactGate

TICKS = 30  # or fewer, as the harness is told: as many kills then reach more streams
PER_FILE = 3
START = datetime(2026, 1, 1)

_SOURCE = source("source/*.parquet")
_AGE = number("age", "bins = 3")
_MONTH = partial(stream_toml, until="2026-01-31", horizon=30)
_TABLE = _MONTH(WARD, _AGE, _SOURCE)
_PURE = _MONTH(WARD, _AGE, '[[columns]]\nname = "new"\ntype = "boolean"\n', _SOURCE, epsilon=4.0, delta=0)
_POINTS = _MONTH(
    number("ward", "missing = 0", high=3),
    number("age", "missing = 0"),
    '[synthesizer]\nkind = "points"\ndepth = 8\n',
    _SOURCE,
    epsilon=4.0,
    delta=0,
)
_PLACES = _MONTH(
    WARD,
    '[[columns]]\nname = "years"\ntype = "place"\ncoordinates = ["age"]\nbounds = [[0, 100]]\nviews = [1]\ndepth = 3\n',
    _SOURCE,
)
KINDS = {
    "table": _TABLE + SINK + "keep = 3\n",
    "epochs": _PURE + SINK,
    "points": _POINTS + SINK,
    "anchor": _TABLE,
    "places": _PLACES + SINK,
}
"""By name: tables with delta; without, of which each epoch names how many are measured; points; tables without a sink;
tables with a fine amount.
"""


def rows(kind: str, tick: int, part: int) -> pl.DataFrame:
    """Rows of a tick: part 0 comes in a file, parts 1 and 2 in batches; of part 2 one row is late by a day."""
    rng = np.random.default_rng([tick, part])
    number = 1 + int(rng.integers(4))
    when = [START + timedelta(days=tick, hours=float(h)) for h in rng.uniform(0, 24, number)]
    if part == 2 and tick:
        when[0] -= timedelta(days=1)
    ward = rng.integers(3, size=number)
    return pl.DataFrame(
        {
            "when": when,
            "ward": ward + 0.5 if kind == "points" else [("A", "B", "C")[w] for w in ward],
            "age": rng.uniform(0, 100, number),
            "new": rng.random(number) < 0.3,
        }
    )


def totals() -> list[int]:
    """Number of events up to the end of each tick, from the rows alone."""
    numbers = [sum(len(rows("table", tick, part)) for part in range(3)) for tick in range(TICKS)]
    running: list[int] = np.cumsum(numbers).tolist()
    return running


def prepare(folder: Path, kind: str) -> None:
    """Everything that comes from outside: files that will arrive, and batches that will be pushed."""
    (folder / "source").mkdir(parents=True)
    (folder / "incoming").mkdir()
    for first in range(0, TICKS, PER_FILE):
        parts = [rows(kind, tick, 0) for tick in range(first, first + PER_FILE)]
        pl.concat(parts).write_parquet(folder / "incoming" / f"{first:02d}.parquet")
    for tick in range(TICKS):
        for part in (1, 2):
            rows(kind, tick, part).write_parquet(folder / "incoming" / f"batch-{tick}-{part}.parquet")


@cache
def config_of(folder: Path, kind: str) -> StreamConfig:
    """The configuration of a stream in this folder."""
    return StreamConfig.from_toml(KINDS[kind], base=folder)


def gates(exact: bool) -> Callable[[int], Gate]:
    """Real noise, or none at all."""
    return lambda tick: ExactGate() if exact else SystemGate()


def deliver(stream: Stream, folder: Path) -> None:
    """What arrives before the open tick is over. What came before comes again; links lead to files, too."""
    tick = -1
    while tick != stream.closed < TICKS:  # a tick that was half drawn is closed before anything is counted
        tick = stream.closed
        for first in range(0, tick + 1, PER_FILE):
            there, again = folder / "source" / f"{first:02d}.parquet", folder / "source" / f"again-{first:02d}.parquet"
            if not there.exists():
                os.link(folder / "incoming" / there.name, there)
            if not again.is_symlink():
                again.symlink_to(there.name)
        stream.ingest()
        for which, part in ((tick - 1, 2), (tick, 1), (tick, 2)):
            if which >= 0:
                stream.update(folder / "incoming" / f"batch-{which}-{part}.parquet", batch_id=f"{which}/{part}")


def complete(stream: Stream) -> bool:
    """Whether every tick has been released, and published."""
    return stream.last is not None and stream.last.tick == TICKS - 1


def drive(folder: Path, kind: str, *, exact: bool, env: Env, ticks: int, stream: type[Stream] = Stream) -> bool:
    """Open the stream, and feed and close up to ``ticks`` ticks. Whether it is complete."""
    with stream(config_of(folder, kind), gates=gates(exact), env=env) as opened:
        for _ in range(ticks):
            if opened.closed == TICKS:
                break
            deliver(opened, folder)
            if opened.closed < TICKS:
                opened.release()
        return complete(opened)


def persist(
    folder: Path, kind: str, *, exact: bool, env: Env, ticks: int, stubborn: bool, mend: Callable[[], object]
) -> tuple[bool, list[str]]:
    """Like :func:`drive` in a world where something fails, and is mended when an error has come.

    Only this package's errors and Ctrl-C are expected; any other one is passed on.

    Args:
        stubborn: go on with the same stream after an error, rather than leave that to another process.
        mend: makes the world whole again.

    Returns:
        Whether the stream is complete, and the errors.
    """
    told: list[str] = []
    while len(told) < 4:
        try:
            with Stream(config_of(folder, kind), gates=gates(exact), env=env) as opened:
                left = ticks
                while left and opened.closed < TICKS and len(told) < 4:
                    try:
                        deliver(opened, folder)
                        if opened.closed < TICKS:
                            opened.release()
                        left -= 1
                    except (SynthstreamError, KeyboardInterrupt) as error:
                        told.append(f"{type(error).__name__}: {error}")
                        mend()
                        if not stubborn:
                            return False, told
            return complete(opened), told
        except (SynthstreamError, KeyboardInterrupt) as error:  # when it is opened, or closed
            told.append(f"{type(error).__name__}: {error}")
            mend()
            if not stubborn:
                return False, told
    raise RuntimeError(f"it does not recover: {told}")
