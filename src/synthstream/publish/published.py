"""What a stream has published, for whoever has its configuration and the folder of releases. Needs no state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.config.objects import place_of
from synthstream.config.sinks import SinkConfig
from synthstream.errors import NotReleased, SchemaError, SinkError
from synthstream.measured import Committed, Measured
from synthstream.publish.addresses import located
from synthstream.publish.building import Builder, from_releases
from synthstream.publish.folder import ParquetSink, as_published
from synthstream.publish.model import PublishedRows
from synthstream.publish.outlets import as_begun, parquet_sink, refuse_no_sink, refuse_other_releases
from synthstream.publish.windows import known, located_by_step, masses_by_step, window
from synthstream.release.areas import Bounds, Inside
from synthstream.release.comparing import between_spans
from synthstream.release.release import Release
from synthstream.release.series import Step, lines, only, since, steps, steps_of_calendar
from synthstream.release.tables import TableRelease
from synthstream.release.window import Moment, PointWindow, Window, moment_of
from synthstream.synthesizers.succession import known_since
from synthstream.workload import FloatArray, Workload


def releases(place: str | Path | StreamConfig, *, simulate: bool = False, copy: str | Path | None = None) -> Releases:
    """The published releases of a stream.

    Args:
        place: a ``stream.toml``, or a :class:`StreamConfig`; or a folder of releases, or a site that ``publish`` wrote,
            or the http or https address of either: ``settings.toml``, which lies there, says what the stream is
            (:func:`synthstream.describe` writes it).
        simulate: of a stream's own configuration: those of its simulated run.
        copy: of the same: read the releases here, in a folder, or at an address (``s3://...``) that a mirror
            of kind ``files`` copies to.

    Raises:
        ConfigError: there is no valid configuration, or no ``settings.toml`` beside the releases.
        NotReleased: it has no ``[sink]``.
        SinkError: a web server does not answer.

    Example:
        >>> with synthstream.open("stream.toml") as stream:
        ...     _ = list(stream.run())
        >>> january = synthstream.releases("stream.toml").last
        >>> january.rows(1000, where="minutes >= 30").height
        1000
    """
    if not isinstance(place, str | Path | StreamConfig):
        raise TypeError(f"releases takes a path, an address or a StreamConfig, not {type(place).__name__}")
    config, sink = located(place, simulate=simulate)
    if copy is not None:
        return Releases(replace(config, sink=SinkConfig(kind="parquet", path=place_of(str(copy), Path))))
    return Releases(config, sink=sink)


class Releases:
    """The releases of a stream, oldest first. Each is checked against its hashes when it is read.

    ``len`` says how many there are; a loop visits all of them, and ``releases[-1]`` is the newest. Nothing is kept
    open, and nothing private is needed.

    Args:
        config: with a ``[sink]``.
        sink: what reads the releases; left out: the folder of ``[sink]``.

    Raises ``NotReleased`` if the stream has no ``[sink]``.

    Example:
        >>> with synthstream.open("stream.toml") as stream:
        ...     _ = list(stream.run())
        >>> releases = synthstream.releases("stream.toml")
        >>> len(releases), releases.last.tick, releases.at("2026-01-19").tick
        (4, 3, 1)
        >>> releases.between("2026-01-12", "2026-01-26").table("zone")["zone"].to_list()
        ['north', 'south', 'harbour', 'other', 'missing']
    """

    def __init__(self, config: StreamConfig, *, sink: ParquetSink | None = None) -> None:
        if not isinstance(config, StreamConfig):
            raise TypeError(f"Releases takes a StreamConfig, not {type(config).__name__}; use synthstream.releases()")
        kept = refuse_no_sink(config)
        self.config = as_begun(config)
        self._sink = parquet_sink(kept) if sink is None else sink
        self._built: tuple[list[int], Builder] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_built": None}  # it is built again where they are sent

    def __repr__(self) -> str:
        return f"Releases({self.config.name!r}, {len(self):,} in {self._sink.where()})"

    def __len__(self) -> int:
        last = self._sink.last()
        return 0 if last is None else last.tick + 1

    def __iter__(self) -> Iterator[Release]:
        return (self.at(tick) for tick in range(len(self)))

    @overload
    def __getitem__(self, place: int) -> Release: ...
    @overload
    def __getitem__(self, place: slice) -> list[Release]: ...
    def __getitem__(self, place: int | slice) -> Release | list[Release]:
        """The release of a tick, counted from the newest if negative, or those of a range. As :meth:`at`."""
        number = len(self)
        if isinstance(place, slice):
            return [self.at(tick) for tick in range(number)[place]]
        if isinstance(place, bool) or not isinstance(place, int | np.integer):
            raise TypeError(f"releases[...] takes a number or a range, not {place!r}; of a date: releases.at(...)")
        if not -number <= place < number:
            raise IndexError(f"{self._sink.where()} holds {number} releases, none at {place}")
        return self.at(range(number)[place])

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
            NotReleased: there is no such release. ``ConfigError``: the text is no date.
            SinkError: it is not what this stream published.
        """
        newest = self._newest()
        if isinstance(when, int | np.integer) and not isinstance(when, bool):
            if not 0 <= when <= newest:
                raise NotReleased(f"{self._sink.where()} holds releases up to tick {newest}, none of tick {when}.")
            return self._read(int(when))
        ended = self.config.clock.ended_before(moment_of(cast(Moment, when), self.config.clock))
        if ended == 0:
            raise NotReleased(
                f"No release had ended by {when}: the first one holds events before {self.config.clock.begins(1)}."
            )
        return self._read(min(ended - 1, newest))

    def between(self, start: Moment | int, end: Moment | int) -> Window | PointWindow:
        """Rows, and tables or masses, of the events from one moment to before another, widened to whole ticks.

        ``measured`` is the difference of two measurements, and ``stderr`` its standard error. The rows are fitted to
        it: near the shares of all events up to ``end``, and elsewhere where the difference stands out of its noise. The
        same window always gives the same rows. Of a stream of points there are points, ``mass`` and ``mean``.

        Args:
            start, end: dates or times, also as text in ISO 8601; or a number of a tick: when that begins.

        Raises:
            NotReleased: not all of it has been released, or streams of this kind have no windows.
            SinkError: a release is not what this stream published.
        """
        builder = self._builder(newest := self._newest())
        found = window(self.config, builder, start, end, newest=newest)
        for tick in {found.first - 1, found.tick} - {-1}:
            self._check(builder, tick)
        return found

    def covariance(self, tick: int) -> Callable[[int, int], FloatArray]:
        """Of the noise, between any two ticks up to this one: see :meth:`Builder.covariance`. Public facts alone."""
        return partial(self._builder(tick).once().covariance, at=tick)

    def series(
        self,
        column: str | None = None,
        *,
        every: str | timedelta | None = None,
        lower: Inside | None = None,
        upper: Bounds | None = None,
    ) -> pl.DataFrame:
        """What was counted in each step, with its error: by tick, or by week, month, quarter or year.

        A number is what was counted in the step: an event that came late counts where it came. Months, quarters and
        years are those of the calendar; a tick belongs to the one that it begins in. Numbers of a longer step have the
        error of their own difference, not of the sum of its ticks.

        Where the stream went on with other settings, all of it is over the newest columns: steps that begin before a
        column was recorded are left out, and columns that ended are in single releases alone. In steps that begin
        before rows could have a value, ``measured`` and ``stderr`` of it are null.

        Args:
            column: whose values to count apart; left out: all events together.
            every: length of a step, as in ``[clock]``: ``"4w"``, ``"1mo"``, ``"1y"``, or a ``timedelta``; left out: one
                tick. With delta = 0 tables of one column are measured once an epoch: leave it out, and each line is an
                epoch, or a part of one, from ``start`` to ``end``.
            lower, upper: of points, or of a place: the box, or polygons, whose events to count, as in ``mass``.

        Returns:
            A line for each step, and value: ``start`` and ``end`` on the stream's own wall clock; ``value``, if there
            is a column; ``measured`` and its standard error ``stderr``, null if not known. With ``every``, also
            ``whole``: false for a step that is not over, or that began before the stream, such as its first month.

        Raises:
            SchemaError: there is no such column, or no table of it alone.
            NotReleased: nothing is released, or such steps are not known.
            SinkError: a release is not what this stream published.

        Example: ``releases.series("zone", every="1mo")``
        """
        if self.config.workload is None or lower or upper:
            return self._masses(column, every, lower or {}, upper or {}).drop([] if every else "whole")
        marginal, found, recorded = self._small(column), list[tuple[Step, Measured]](), self._recorded(column)
        for step, counted in self._counted(every):
            place = [q for q, table in enumerate(counted.workload.marginals) if table == marginal]
            if every is not None and step.first < recorded:
                continue
            if every is not None and counted.since[place].tolist() != [step.first]:
                raise NotReleased(
                    f"series: {column or 'the total'} is not known at the end of every tick, so not for every "
                    f"{every}. Leave 'every' out: each line then says from when to when it counts."
                )
            found.append((step, only(counted, place)))
        if not found:
            raise NotReleased(f"series: no step of {every} lies after {column!r} was first recorded. Leave 'every' out")
        unasked = [name for name, asked in (("value", marginal), ("whole", every)) if not asked]
        return self._lines(found).drop("tick", "column", "span", *unasked)

    def counts(self, *, every: str | timedelta | None = None) -> pl.DataFrame:
        """As :meth:`series`, of the total and all columns at once, as far as they are known: with ``column`` beside
        ``value``, null for the total, and always with ``whole``.
        """
        each = [(step, since(counted, step.first)) for step, counted in self._counted(every)]
        return self._lines(each).drop("tick", "span")

    def history(self, known: pl.DataFrame | None = None) -> pl.DataFrame:
        """What was counted in every tick, and in every month, quarter and year, in one frame.

        Args:
            known: the same, or some of its lines, up to an earlier release: steps that it has are not read again.

        Returns:
            As :meth:`counts`, with ``tick``, the last one of the step, and ``span``: tick, month, quarter or year. With
            delta = 0 lines of ticks count from ``start`` on, which is where their epoch begins.
        """
        clock, newest, parts = self.config.clock, self._newest(), list[pl.DataFrame]()
        spans = {"tick": steps(clock, None, newest=newest)} | steps_of_calendar(clock, newest=newest)
        for span, each in spans.items():
            ends = {step.last for step in each}
            if known is not None:
                parts.append(known.filter(pl.col("span") == span, pl.col("tick").is_in(ends)))
                ends -= {*parts[-1]["tick"]}
            found = self._counted_in(step for step in each if step.last in ends)
            told = [(step, counted if span == "tick" else since(counted, step.first)) for step, counted in found]
            parts += [self._lines(told).with_columns(span=pl.lit(span))] if told else []
        return pl.concat(parts)

    def beside_last_year(self, *, every: str | timedelta | None = None) -> pl.DataFrame:
        """What was counted in the newest step beside as many ticks a year before, from the step nearest to it.

        Args:
            every: as in :meth:`series`; a step that has just begun is left out.

        Returns:
            As :meth:`counts`, for that step; ``start_then``, ``end_then``, ``then`` and ``stderr_then`` of the earlier
            one; ``difference``, its own ``stderr_difference`` from the covariance of the noise, and ``z``, one divided
            by the other. Empty if there is no earlier one.
        """
        clock, builder = self.config.clock, self._builder(newest := self._newest())
        spans = steps(clock, every, newest=newest)
        now = spans[-1] if spans[-1].whole or len(spans) == 1 else spans[-2]
        starts = [clock.boundary(step.first) for step in spans]
        before = starts[spans.index(now)] - timedelta(days=365.25)
        near = min(range(len(spans)), key=lambda step: abs(starts[step] - before))
        first, length = spans[near].first, starts[min(1, len(spans) - 1)] - starts[0]
        then = Step(first, first + now.last - now.first)  # a month of weeks may have four or five
        known = [(step, since(builder.counted(*step[:2], at=newest), step.first)) for step in (now, then)]
        frames = [self._lines([one]).drop("tick", "span", "whole") for one in known]
        if abs(starts[near] - before) > max(length, timedelta(days=1)) or then.last >= now.first:
            frames = [frame.clear() for frame in frames]
        both = frames[0].join(frames[1], on=["column", "value"], how="inner", suffix="_then", nulls_equal=True)
        tables, names = cast(Workload, self.config.workload).place, self.config.schema.names
        common = between_spans(partial(builder.covariance, at=newest), now[:2], then[:2])
        place = [tables[() if name is None else (names.index(name),)] for name in both["column"]]
        covariance = pl.Series("covariance", common[place], dtype=pl.Float64)
        error = (pl.col("stderr") ** 2 + pl.col("stderr_then") ** 2 - 2 * covariance).clip(0).sqrt()
        both = both.with_columns(difference=pl.col("measured") - pl.col("measured_then"), stderr_difference=error)
        return both.rename({"measured_then": "then"}).with_columns(z=pl.col("difference") / pl.col("stderr_difference"))

    def _masses(self, column: str | None, every: str | timedelta | None, lower: Inside, upper: Bounds) -> pl.DataFrame:
        if column is not None:
            points, boxes = "a stream of points has no tables of columns", "no table of a column tells events in a box"
            none = points if self.config.workload is None else f"{boxes} or polygons"
            raise SchemaError(f"series: {none}; leave the column out")
        if isinstance(release := self.last, TableRelease):
            schema = release.schema
            recorded = max((self._recorded(schema.names[grids[-1]]) for grids in schema.places.values()), default=0)
            each, counted = zip(*self._counted(every), strict=True)
            masses = zip(each, release.masses(counted, lower, upper), strict=True)
            return located_by_step(self.config.clock, masses, every, recorded)
        builder, spans = self._builder(newest := self._newest()).once(), steps(self.config.clock, every, newest=newest)
        for step in spans:
            self._check(builder, step.last)
        return masses_by_step(self.config, builder, spans, lower, upper, newest=newest)

    def _counted(self, every: str | timedelta | None) -> Iterator[tuple[Step, Measured]]:
        """Each step of a length, and what was counted in it."""
        return self._counted_in(steps(self.config.clock, every, newest=self._newest()))

    def _counted_in(self, spans: Iterable[Step]) -> Iterator[tuple[Step, Measured]]:
        """Each step, and what was counted in it; each release is checked."""
        if self.config.workload is None:
            raise NotReleased("counts: a stream of points has no tables; ask series() for the events in a box")
        builder = self._builder(newest := self._newest()).once()
        for step in spans:
            self._check(builder, step.last)
            yield step, builder.counted(step.first, step.last, at=newest)

    def _lines(self, each: list[tuple[Step, Measured]]) -> pl.DataFrame:
        found = [known(self.config, counted) for _, counted in each]
        whole = np.repeat([step.whole for step, _ in each], [counted.values.size for counted in found])
        return lines(self.config.schema, found, self.config.clock.boundary, span="tick").with_columns(whole=whole)

    def _small(self, column: str | None) -> tuple[int, ...]:
        """The table of a column, or the total, if the stream counts it."""
        names = self.config.schema.names
        if not isinstance(column, str | None):
            raise TypeError(f'series: takes the name of one column, as in "zone", not {column!r}')
        if column is not None and column not in names:
            raise SchemaError(f"series: {self.config.schema.unknown(column)}")
        marginal = () if column is None else (names.index(column),)
        if self.config.workload is not None and marginal not in self.config.workload.marginals:
            raise SchemaError(f"series: this stream does not count {column or 'all events'} alone")
        return marginal

    def _recorded(self, column: str | None) -> int:
        """First tick whose rows have a column, which a successor may have added."""
        return 0 if column is None else int(known_since(self.config, column).min())

    def _newest(self) -> int:
        last = self._sink.last()
        if last is None:
            raise NotReleased(self._sink.empty)
        return last.tick

    def _builder(self, tick: int) -> Builder:
        starts = self._sink.segments(tick)
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
                f"{self._sink.where(tick)} is no release of this configuration: its measurement, claim or columns "
                "differ. Point [sink] path to the stream's own folder, or undo the change; "
                "`synthstream verify stream.toml` says more."
            )

    def _read(self, tick: int) -> Release:
        builder, manifest = self._builder(tick), self._sink.manifest(tick)
        self._check(builder, tick)
        config = self.config.at(tick)
        if config.workload is None:
            _, release = builder.alone(tick)
        else:
            files = partial(self._sink.read, tick, "rows.parquet")
            release = builder.release(tick, PublishedRows(files, config.schema, config.workload, manifest["rows"]))
        return replace(release, changed=manifest["changed_rows"], files=partial(self._sink.read, tick))
