"""What a stream has published, for whoever has its configuration and the folder of releases. Needs no state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from synthstream.config.config import StreamConfig, load
from synthstream.errors import NotReleased, SinkError
from synthstream.fit.population import Population
from synthstream.measured import Committed
from synthstream.publish.building import Builder, from_releases
from synthstream.publish.folder import as_published
from synthstream.publish.outlets import as_begun, parquet_sink, refuse_other_releases, simulated
from synthstream.publish.windows import window
from synthstream.release.release import Release
from synthstream.release.window import Moment, Window, moment_of
from synthstream.schema.clock import written
from synthstream.schema.columns import Column, Datetime
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray, Workload


def releases(path: str | Path, *, simulate: bool = False) -> Releases:
    """The published releases of the stream that a configuration file describes.

    Args:
        path: a ``stream.toml``.
        simulate: those of its simulated run.

    Raises:
        ConfigError: the file is not a valid configuration.
        NotReleased: it has no ``[sink]``.

    Example: ``synthstream.releases("stream.toml").last.table(["zone"])``
    """
    config = load(Path(path))
    return Releases(simulated(config) if simulate else config)


class Releases:
    """The releases in a stream's folder, oldest first. Each is checked against its hashes when it is read.

    ``len`` says how many there are; a loop visits all of them. Nothing is kept open, and nothing private is needed.

    Raises:
        NotReleased: the stream has no ``[sink]``.

    Example::

        releases = synthstream.releases("stream.toml")
        releases.last.rows(1000, where="age >= 60")
        releases.last.compare(releases.at("2015-01-01"), ["zone"])
        releases.between("2015-01-01", "2015-02-01").table(["zone"])
    """

    def __init__(self, config: StreamConfig) -> None:
        if config.sink is None:
            raise NotReleased("This configuration has no [sink]: its releases are in no folder. Ask the Stream itself.")
        self.config = as_begun(config)
        self._sink = parquet_sink(config.sink)
        self._built: tuple[list[int], Builder] | None = None

    def __repr__(self) -> str:
        return f"Releases({self.config.name!r}, {len(self):,} in {self._sink.folder})"

    def __len__(self) -> int:
        last = self._sink.last()
        return 0 if last is None else last.tick + 1

    def __iter__(self) -> Iterator[Release]:
        return (self.at(tick) for tick in range(len(self)))

    @property
    def last(self) -> Release:
        """The newest release. Raises ``NotReleased`` if there is none, and as :meth:`at`."""
        return self.at(self._newest())

    def at(self, when: int | np.integer[Any] | Moment) -> Release:
        """The release of a tick, or the one whose rows stand for all events up to a moment.

        Args:
            when: number of a tick, from 0; or a date or time, also as text in ISO 8601: the newest release that ended
                at or before it.

        Raises:
            NotReleased: there is no such release.
            SinkError: it is not what this stream published.
        """
        newest = self._newest()
        if isinstance(when, int | np.integer):
            if not 0 <= when <= newest:
                raise NotReleased(f"{self._sink.folder} holds releases up to tick {newest}, none of tick {when}.")
            return self._read(int(when))
        ended = self.config.clock.ended_before(moment_of(when, self.config.clock))
        if ended == 0:
            raise NotReleased(
                f"No release had ended by {when}: the first one holds events before "
                f"{written(self.config.clock.boundary(1))}."
            )
        return self._read(min(ended - 1, newest))

    def between(self, start: Moment, end: Moment) -> Window:
        """Rows and tables of the events from one moment to before another, widened to whole ticks.

        ``measured`` is the difference of two measurements, and ``stderr`` its standard error. The rows are fitted to
        it: near the shares of all events up to ``end``, and elsewhere where the difference stands out of its noise. The
        same window always gives the same rows.

        Args:
            start, end: as in :meth:`at`.

        Raises:
            NotReleased: not all of it has been released, or streams of this kind have no windows.
            SinkError: a release is not what this stream published.
        """
        newest = self._newest()
        builder = self._builder(newest)
        found = window(self.config, builder, start, end, newest=newest)
        for tick in {found.first - 1, found.tick} - {-1}:
            self._check(builder, tick)
        return found

    def _newest(self) -> int:
        last = self._sink.last()
        if last is None:
            raise NotReleased(
                f"{self._sink.folder} holds no release yet. `synthstream run` makes them; if there were some, "
                "`synthstream recover --republish` makes them again."
            )
        return last.tick

    def _builder(self, tick: int) -> Builder:
        """Knows what was measured up to a tick."""
        starts, _ = self._sink.segments(tick)
        if self._built is None:
            refuse_other_releases(self.config, self._sink)
        if self._built is None or self._built[0] != starts:
            secure = "warning" not in self._sink.manifest(tick)
            self._built = starts, from_releases(self.config, self._sink, self._committed, tick=tick, secure=secure)
        return self._built[1]

    def _committed(self, tick: int) -> Committed:
        return as_published(tick, self._sink.read(tick, "measured.parquet"), self._sink.manifest(tick))

    def _check(self, builder: Builder, tick: int) -> None:
        """Raise unless a release is of this stream: measurement, claim and schema are all in the chain."""
        manifest, schema = self._sink.manifest(tick), self.config.at(tick).schema
        same = manifest.get("name") == self.config.name and manifest.get("schema") == schema.hash
        if not same or builder.head_after(tick) != manifest["chain"]["head"]:
            raise SinkError(
                f"{self._sink.place(tick)} is no release of this configuration: its measurement, claim or columns "
                "differ. Point [sink] path to the stream's own folder, or undo the change; `synthstream verify` says "
                "more."
            )

    def _read(self, tick: int) -> Release:
        builder, manifest = self._builder(tick), self._sink.manifest(tick)
        self._check(builder, tick)
        config = self.config.at(tick)
        if config.workload is None:
            _, release = builder.alone(tick)
        else:
            files = partial(self._sink.read, tick, "rows.parquet")
            release = builder.release(tick, _Rows(files, config.schema, config.workload, manifest["rows"]))
        return replace(release, changed=manifest["changed_rows"], files=partial(self._sink.read, tick))


class _Rows:
    """Published rows as a model, read and encoded when they are needed: :class:`synthstream.release.release.Rows`."""

    def __init__(self, read: Callable[[], pl.DataFrame], schema: Schema, workload: Workload, number: int) -> None:
        self._read, self._schema, self._workload, self.number = read, schema, workload, number

    def __repr__(self) -> str:
        return f"Rows({self.number:,})"

    @cached_property
    def _population(self) -> Population:
        return Population.of(self._workload, codes_of(self._schema, self._read()))

    @property
    def codes(self) -> NDArray[Any]:
        return self._population.codes

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._population.arrays()

    def moved_from(self, before: Any) -> float:
        return self._population.moved_from(before)


def codes_of(schema: Schema, rows: pl.DataFrame) -> CodeArray:
    """Codes of published rows, int32, shape ``(rows, columns)``: the way back from :meth:`Schema.decode`."""
    if rows.is_empty():
        return np.zeros((0, len(schema.columns)), dtype=np.int32)
    return np.stack([_codes(column, rows[column.name]) for column in schema.columns], axis=1)


def _codes(column: Column, published: pl.Series) -> CodeArray:
    if not isinstance(column, Datetime) or column.part is None:
        return column.encode(published)
    # Parts of a time are published as whole numbers, but are read from times.
    first, missing = int(column.edges[0]), column.size - 1
    return (published - first).fill_null(missing).to_numpy().astype(np.int32)
