"""What a stream has published, read from its releases alone: manifests, tables, and whether rows are there.

The state folder is never opened. Every file that is read is compared with the hash in its manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError, SinkError
from synthstream.publish.folder import ParquetSink
from synthstream.publish.outlets import as_begun, parquet_sink, refuse_other_releases
from synthstream.publish.published import Releases
from synthstream.synthesizers.succession import carried_cells, promise_of
from synthstream.workload import FloatArray, IntArray, Workload

# Wraps steps that take a while; the text says what is done.
Steps = Callable[[list[int], str], Iterable[int]]
# A history is read at about this number of ticks.
SAMPLED = 60
# Longest chain of measurements that follow each other in time.
_LONGEST = 100


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A release as its manifest tells it.

    Args:
        tick: 0-based.
        start, end: the span of the tick; its rows stand for all events up to ``end``.
        changed: share of the rows of the release before that are no longer there; ``None`` for the first.
        has_rows: whether the rows are still there (``keep`` in [sink]).
    """

    tick: int
    start: datetime
    end: datetime
    rows: int
    changed: float | None
    has_rows: bool
    manifest: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The tables of one release over all cells of the stream's workload, or of one table, float64, shape ``(cells,)``.

    Args:
        count: in the synthetic rows.
        measured, stderr: as they passed the gate, and the standard error; NaN where nothing did or it is not known.
        since: first tick that ``measured`` counts; NaN where nothing was measured.
    """

    count: FloatArray
    measured: FloatArray
    stderr: FloatArray
    since: FloatArray

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which cells were measured, with a known error."""
        return np.isfinite(self.measured) & np.isfinite(self.stderr)

    def at(self, places: IntArray | slice) -> Cells:
        """Some of the cells, in the shape of their places."""
        return Cells(**{name: values[places] for name, values in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class History:
    """All releases of a stream that are there.

    Args:
        ticks: oldest first; at least one.
    """

    config: StreamConfig
    sink: ParquetSink
    ticks: tuple[Tick, ...]

    @property
    def newest(self) -> Tick:
        """The newest release."""
        return self.ticks[-1]

    @property
    def warning(self) -> str:
        """What the releases say against themselves; empty if they are private."""
        return next((str(t.manifest["warning"]) for t in self.ticks if t.manifest.get("warning")), "")

    @cached_property
    def releases(self) -> Releases:
        """The same, for questions: what one of them has read serves the next."""
        return Releases(self.config, sink=self.sink)

    def sampled(self) -> tuple[Tick, ...]:
        """At most 60 of the ticks, evenly over time, with the first and the newest."""
        return evenly(self.ticks, SAMPLED)

    def cells(self, tick: Tick) -> Cells:
        """The tables of a release of a stream of tables, and what of them was measured at its tick.

        Those from before a cut are over the newest columns; what was not recorded is NaN, but for its ``count``.

        Raises ``SinkError`` if they are not what was published.
        """
        config, names = self.config.at(tick.tick), ["count", "measured", "stderr", "since"]
        workload = Workload(sizes=(1,), marginals=()) if config.workload is None else config.workload
        late = config.measures == "refresh"
        frame = self.sink.read(tick.tick, "tables.parquet", columns=[*names, *(["measured_at"] if late else [])])
        if late:
            now = pl.when(pl.col("measured_at") == tick.tick)
            frame = frame.select("count", *(now.then(pl.col(name)).alias(name) for name in names[1:]))
        if frame.height != workload.cells:
            raise SinkError(
                f"{self.sink.place(tick.tick)} has tables of {frame.height} cells, not the {workload.cells} of the "
                "configuration. Use the stream.toml that the releases were made with."
            )
        found = {name: frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in frame.columns}
        for life in self.config.lives[len(config.lives) :]:
            found = {name: carried_cells(life, name, values) for name, values in found.items()}
        return Cells(**found)

    @property
    def workload(self) -> Workload:
        """Tables of the stream. Raises ``ConfigError`` if it is a stream of points."""
        if self.config.workload is None:
            raise ConfigError(f"{self.config.name}: a stream of points has no tables")
        return self.config.workload

    def nodes(self, tick: Tick) -> pl.DataFrame:
        """The finest nodes that a release of a stream of points lists: ranges of each column, and ``count``."""
        frame = self.sink.read(tick.tick, "tables.parquet")
        return frame.filter(pl.col("level") == pl.col("level").max())

    def measured_chain(self, marginal: tuple[int, ...]) -> list[tuple[Tick, Cells]]:
        """Releases whose measurements of a table follow each other and together count all ticks up to the first of
        them, newest first; empty if there are none.

        Where all tables are measured at every tick it is the newest release alone; with epochs, one for each epoch.
        """
        by_tick = {t.tick: t for t in self.ticks}
        here = self.workload.slice_of(marginal)
        found: list[tuple[Tick, Cells]] = []
        tick = self._last_measuring(here)
        while tick is not None and len(found) < _LONGEST:
            cells = self.cells(tick)
            since = cells.since[here]
            if not np.isfinite(since).all() or not np.isfinite(cells.stderr[here]).all():
                return []
            found.append((tick, cells))
            if since[0] == 0:
                return found
            tick = by_tick.get(int(since[0]) - 1)
        return []

    def _last_measuring(self, here: slice) -> Tick | None:
        """The newest release in which all these cells were measured. Looks at one column of most files, no more."""
        most = self.workload.cells - (here.stop - here.start)
        for tick in reversed(self.ticks):
            path = self.sink.place(tick.tick) / "tables.parquet"
            try:
                nulls = pl.scan_parquet(path).select(pl.col("measured").null_count()).collect().item()
            except (OSError, pl.exceptions.PolarsError) as error:
                raise SinkError(f"{path} cannot be read as the tables of a release. Restore it.") from error
            if nulls <= most and np.isfinite(self.cells(tick).measured[here]).all():
                return tick
        return None


def evenly(ticks: Sequence[Tick], most: int) -> tuple[Tick, ...]:
    """So many of some ticks at most, evenly spread, the first and the last among them."""
    places = np.unique(np.linspace(0, len(ticks) - 1, min(most, len(ticks))).round().astype(int))
    return tuple(ticks[i] for i in places)


def added_up(chain: Sequence[tuple[Tick, Cells]]) -> tuple[Tick, Cells]:
    """Measurements of several epochs as one of all of them, and the release at whose tick they end.

    Epochs do not overlap, and their noise is independent.
    """
    parts = [cells for _, cells in chain]
    together = Cells(
        count=parts[0].count,
        measured=np.sum([cells.measured for cells in parts], axis=0),
        stderr=np.sqrt(np.sum([cells.stderr**2 for cells in parts], axis=0)),
        since=np.zeros(parts[0].count.size),
    )
    return chain[0][0], together


def history_of(config: StreamConfig, *, progress: Steps) -> History:
    """All releases of a stream.

    Args:
        config: with a [sink].

    Raises:
        ConfigError: there is no [sink], or the configuration is not the one that the releases were made with.
        SinkError: there is no release, or one cannot be read.
    """
    if config.sink is None:
        raise ConfigError(f"{config.name}: a report is made of published releases; name a folder for them in [sink]")
    sink = parquet_sink(config.sink)
    numbers = sink.ticks()
    if not numbers:
        raise SinkError(sink.empty)
    ticks = tuple(_tick(sink, number) for number in progress(numbers, "reading manifests"))
    config = as_begun(config)
    _check(config, ticks[-1].manifest, sink.folder)
    refuse_other_releases(config, sink)
    return History(config=config, sink=sink, ticks=ticks)


def _tick(sink: ParquetSink, number: int) -> Tick:
    manifest = sink.manifest(number)
    try:
        return Tick(
            tick=number,
            start=datetime.fromisoformat(manifest["start"]),
            end=datetime.fromisoformat(manifest["end"]),
            rows=int(manifest["rows"]),
            changed=None if manifest["changed_rows"] is None else float(manifest["changed_rows"]),
            has_rows=(sink.place(number) / "rows.parquet").exists(),
            manifest=manifest,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SinkError(f"{sink.place(number)}/manifest.json cannot be read. Restore it.") from error


def _check(config: StreamConfig, manifest: dict[str, Any], folder: Path) -> None:
    """Raise unless a manifest says of the stream what the configuration says."""
    privacy, claim = config.privacy, manifest.get("claim", {})
    budget = promise_of(config).budget
    pairs = {
        "name": (config.name, manifest.get("name")),
        "columns": (config.schema.hash, manifest.get("schema")),
        "privacy.epsilon": (budget.epsilon, claim.get("epsilon")),
        "privacy.delta": (budget.delta, claim.get("delta")),
        "privacy.unit": (privacy.unit.kind, claim.get("unit")),
        "privacy.neighbours": (privacy.neighbours, claim.get("neighbours")),
        "clock.horizon": (config.clock.horizon, claim.get("horizon")),
    }
    pairs |= {key: (limit, claim.get(key)) for key, limit in privacy.unit.limits.items()}
    other = [key for key, (ours, theirs) in pairs.items() if json.dumps(ours) != json.dumps(theirs)]
    if other:
        raise ConfigError(
            f"{folder}: these releases were made with other settings ({', '.join(other)}). Use the stream.toml that "
            "they were made with."
        )
