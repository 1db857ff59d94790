"""From what was committed to what is published: a pure function, which looks at nothing private."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Self, cast

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig
from synthstream.errors import StateCorrupt, StateMismatch
from synthstream.kinds import EDITION
from synthstream.measured import Committed, Measured, Reading, stamped
from synthstream.publish.folder import ParquetSink
from synthstream.release.release import Release, chain_head, seed_of
from synthstream.release.rows import Model, RowModel
from synthstream.release.series import counted, lines, running
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.contract import Models, Synthesizer, WindowAsked, Windowed
from synthstream.synthesizers.segments import Resumed, Segment, whole
from synthstream.synthesizers.succession import carried_covariance, carried_model, carried_reading, promise_of
from synthstream.workload import FloatArray, Workload

# So many measurements are kept: of a tick, of the one before, and of what both are made with, two refreshes each.
_KEPT = 6
# And those of the ends of so many epochs, each of which has noise of its own: 1.5^64 ticks.
_EPOCHS = 64


class Builder:
    """Builds releases of one stream.

    Args:
        committed: looks up what was committed for a tick, or ``None``.
        segments: first ticks of segments after the first, in order, and the models that they go on from, as arrays;
            empty where only :meth:`again` is to be used, which finds them.
        secure: whether the noise came from the operating system.
    """

    def __init__(
        self,
        config: StreamConfig,
        committed: Callable[[int], Committed | None],
        *,
        segments: Sequence[tuple[int, Models]] = (),
        secure: bool,
    ) -> None:
        self._config, self._committed, self.secure = config, committed, secure
        self.remember(0)
        self._claims = dict[tuple[int, bool], dict[str, Any]]()
        # From the first segment that began at no cut on, the claim names the theorem of segments.
        self._resumed = min((start for start, _ in segments if start not in self._cuts), default=None)
        self._first, self._later = synthesizer_of(config.lives[0]), list[Resumed]()
        made = {len(life.lives): synthesizer_of(life) for life in config.lives[1:]} | {1: self._first}
        for start, model in segments:
            inner = made[len(config.at(start).lives)].from_tick(start)
            self._later.append(Resumed(inner=inner, segment=self._segment(start, model)))

    def remember(self, number: int) -> Self:
        """Keep what was measured at so many ticks, those that were asked for last; returns itself."""
        keep = lru_cache(number)
        self._committed, self.measured, self.whole = keep(self._committed), keep(self._measured), keep(self._whole)
        return self

    def once(self) -> Self:
        """The same, for one question about many ticks: asked in their order, it reads each release a single time."""
        return copy(self).remember(_KEPT + (_EPOCHS if self._config.measures == "epochs" else 0))

    def _segment(self, start: int, model: Models) -> Segment:
        return Segment(start=start, reading=self._carried(start, self.whole(start - 1)), model=model)

    def _carried(self, tick: int, reading: Reading) -> Reading:
        """What was measured before a tick, over the tables that there are from it on."""
        return carried_reading(self._config.at(tick), reading) if tick in self._cuts else reading

    @property
    def _cuts(self) -> list[int]:
        return [cut["tick"] for cut in self._config.cuts]

    def goes_on(self, start: int, base: Model) -> Models:
        """The model that a segment goes on from, as arrays: that of the tick before it, over its own columns."""
        arrays = whole(base).arrays()
        if start not in self._cuts:
            return arrays
        return carried_model(self._config.at(start), arrays, seed=seed_of(self.previous(start), "cut"))

    def _go_on(self, place: int, base: Model) -> None:
        """Have a segment go on from the model that was built for the tick before it."""
        resumed = self._later[place]
        model = self.goes_on(resumed.start, base)
        self._later[place] = replace(resumed, segment=self._segment(resumed.start, model))

    @property
    def claim(self) -> dict[str, Any]:
        """The claim of the newest segment, as it stands in the ledger."""
        return self.claim_at(self.start)

    def claim_at(self, tick: int) -> dict[str, Any]:
        """The claim as it stands in the chain and in the manifest of a tick."""
        config, resumed = self._config.at(tick), self._resumed is not None and tick >= self._resumed
        key = len(config.lives), resumed
        if key not in self._claims:
            self._claims[key] = promise_of(config, resumed=resumed).facts
        return self._claims[key]

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """What stands in the ledger: the claim of each of the stream's lives, the newest last."""
        return [*(self.claim_at(cut - 1) for cut in self._cuts if cut <= self.start), self.claim]

    @property
    def start(self) -> int:
        """First tick of the newest segment."""
        return self.newest.start

    @property
    def newest(self) -> Synthesizer:
        """The synthesizer of the newest segment."""
        return self._later[-1] if self._later else self._first

    def base(self, start: int) -> Models:
        """The model that a segment goes on from, as arrays."""
        return next(resumed.segment.model for resumed in self._later if resumed.start == start)

    def synthesizer(self, tick: int) -> Synthesizer:
        """The one of the segment that holds a tick."""
        return next((resumed for resumed in reversed(self._later) if resumed.start <= tick), self._first)

    def _of(self, tick: int) -> Committed:
        committed = self._committed(tick)
        if committed is None:
            raise StateCorrupt(f"tick {tick} has not been measured, although a later one has. Restore what is missing.")
        return committed

    def _measured(self, tick: int) -> Reading:
        released = self._of(tick).released
        try:
            reading: Reading = self.synthesizer(tick).unpack(tick, released)
        except (IndexError, ValueError):  # it was encoded by another mechanism
            raise StateMismatch(
                f"what was measured at tick {tick} cannot be read: this version of Synthstream, or of its libraries, "
                "would encode counts with other coefficients. Go on with the version that began the stream"
            ) from None
        return reading

    def _whole(self, tick: int) -> Reading:
        """What is published as measured at a tick: over all segments."""
        return self.synthesizer(tick).whole(tick, self.measured)

    def cut_before(self, tick: int) -> int:
        """First tick of the part, between two cuts, that holds a tick."""
        return max((cut for cut in self._cuts if cut <= tick), default=0)

    def seen(self, tick: int, *, at: int) -> Reading:
        """What is published as measured at a tick, over the tables of a later one: see :meth:`whole`."""
        found = self.whole(tick)
        for cut in self._cuts:
            found = self._carried(cut, found) if tick < cut <= at else found
        return found

    def covariance(self, s: int, t: int, *, at: int | None = None) -> FloatArray:
        """Covariance of the noise in sums of all that was measured up to ticks ``s`` and ``t``, ``(marginals,)``.

        Of a stream of tables: those of tick ``t``, or of the later one ``at``. A later segment adds noise of its own to
        that of the tick before it.
        """
        s, t = sorted((s, t))
        if at is not None:
            found = self.covariance(s, t)
            for cut in self._cuts:
                found = carried_covariance(self._config.at(cut), found) if t < cut <= at else found
            return found
        made = self.synthesizer(t)
        start = made.start
        base = self.covariance(min(s, start - 1), start - 1) if start else np.zeros(1)
        if start in self._cuts:
            base = carried_covariance(self._config.at(start), base)
        return base if s < start else np.asarray(base + made.covariance(s, t, self.measured))

    def between(self, first: int, last: int, *, newest: int) -> tuple[Windowed, str]:
        """What is known of the events of some ticks, and the hash that it has in place of a chain head."""
        head = hashlib.sha256(f"between {self.previous(first)} {self.previous(last + 1)}".encode()).hexdigest()
        newest = min([newest, *(resumed.start - 1 for resumed in self._later if resumed.start > last)])
        made, tables = self.synthesizer(last), self.synthesizer(last).first.tables
        asked = WindowAsked(
            first=first,
            last=last,
            newest=newest,
            seed=seed_of(head, "fit"),
            start=made.start,
            cut=self.cut_before(last),
            tables=() if tables is None else tables.workload.marginals,
            own=lambda tick: self.synthesizer(tick).own(self.measured(tick)),
            whole=partial(self.seen, at=last),
            variance=partial(self._variance, first, last, at=last),
            seed_at=lambda tick: seed_of(self.previous(tick + 1), "fit"),
            begins=self._config.clock.begins,
        )
        return made.first.window(asked), head

    def _variance(self, first: int, last: int, *, at: int) -> FloatArray:
        """Variance of what was measured of ticks ``first..last``, for each table of tick ``at``."""
        covariance = partial(self.covariance, at=at)
        variance = covariance(last, last)
        if first:
            variance = variance - 2 * covariance(first - 1, last) + covariance(first - 1, first - 1)
        return np.maximum(variance, 0.0)

    def _since(self, tick: int, then: int) -> Model:
        """What came after a tick, up to another one."""
        model: Model = self.between(then + 1, tick, newest=tick)[0].model
        return model

    def counted(self, first: int, last: int, *, at: int | None = None) -> Measured:
        """What was counted in some ticks: see :func:`synthstream.release.series.counted`. Of a stream of tables.

        Args:
            at: the tick whose tables they are, at or after the last one; left out: the last one.
        """
        at = last if at is None else at
        before, tables = self.tables(first - 1, at=at) if first else None, self._config.at(at).workload
        variance = self._variance(first, last, at=at)
        return counted(first, self.tables(last, at=at), before, variance, cast(Workload, tables))

    def tables(self, tick: int, *, at: int) -> Measured:
        """As :meth:`seen`, of a stream of tables."""
        return cast(Measured, self.seen(tick, at=at))

    def previous(self, tick: int) -> str:
        """The chain head before a tick."""
        return self._of(tick - 1).head if tick else self._config.genesis

    def head_after(self, tick: int) -> str:
        """The chain head after a tick, computed from what was measured and the head before."""
        return self._head(self.measured(tick), self._of(tick).circumstances)

    def _head(self, measured: Reading, circumstances: Mapping[str, Any]) -> str:
        return chain_head(
            self.previous(measured.tick),
            measured=measured,
            claim=self.claim_at(measured.tick),
            schema=self._config.at(measured.tick).schema.hash,
            circumstances=circumstances,
        )

    def drawn(self, measured: Reading, *, unchecked: tuple[str, ...]) -> Committed:
        """What is to be committed for a tick of the newest segment: secret until it is published."""
        wait = self._config.clock.wait
        committed = Committed(measured.tick, self.newest.pack(measured), "", unchecked, wait)
        return committed._replace(head=self._head(measured, committed.circumstances))

    def build(self, tick: int, last: Model | None, models: Models) -> tuple[Model, Release]:
        """The model of a tick, and its release.

        Args:
            last: the model of the tick before, ``None`` for the first tick.
        """
        synthesizer, head = self.synthesizer(tick), self._of(tick).head
        model = synthesizer.fit(tick, self.once().measured, last, models, seed=seed_of(head, "fit"))
        if tick in self._cuts:  # the rows of the tick before, over the columns of this one
            last = next(resumed.base for resumed in self._later if resumed.start == tick)
        changed = None if last is None else model.moved_from(last)
        return model, replace(self.release(tick, model), changed=changed)

    def again(self, ticks: int) -> Iterator[tuple[Model, Release, Models]]:
        """Everything from the first tick on: models, releases, and what was fitted while ticks were drawn."""
        last: Model | None = None
        models: Models = {}
        for tick in range(ticks):
            for place, resumed in enumerate(self._later):
                if resumed.start == tick and last is not None:
                    self._go_on(place, last)
            models = self.replay(tick, models)
            last, release = self.build(tick, last, models)
            yield last, release, models

    def alone(self, tick: int) -> tuple[Model, Release]:
        """The model and the release of a tick of a stream of points, whose fit does not start from the tick before."""
        for place, resumed in enumerate(self._later):
            if resumed.start <= tick:
                base, _ = self.build(resumed.start - 1, None, {})
                self._go_on(place, base)
        return self.build(tick, None, {})

    def replay(self, tick: int, models: Models) -> Models:
        """What was fitted while a tick was drawn, from what was measured at it and fitted while the one before was."""
        return self.synthesizer(tick).replay(self.measured(tick), models)

    def release(self, tick: int, model: Model) -> Release:
        """The release of a tick with a model; without ``changed``."""
        config, committed = self._config.at(tick), self._of(tick)
        clock = config.clock
        chain = {"previous": self.previous(tick), "head": committed.head}
        starts = [resumed.start for resumed in self._later if resumed.start <= tick]
        facts: dict[str, Any] = {"claim": stamped(self.claim_at(tick), secure=self.secure), "chain": chain}
        facts["edition"] = EDITION
        facts |= {"segments": starts} if starts else {}
        facts |= {"cuts": config.cuts} if config.cuts else {}
        facts |= committed.circumstances
        return self.synthesizer(tick).release(
            name=config.name,
            schema=config.schema,
            measured=self.whole(tick),
            model=model,
            start=clock.boundary(tick),
            end=clock.boundary(tick + 1),
            facts=facts,
            secure=self.secure,
            released=committed.released,
            covariance=None if config.workload is None else partial(self.covariance, at=tick),
            carried=partial(self.carried, at=tick) if config.cuts else None,
            since=None if config.workload is not None or self._first.no_window else partial(self._since, tick),
            counted=None if config.workload is None else partial(self._series, tick),
            replicates=partial(self._replicates, tick, model),
        )

    def _replicates(self, tick: int, model: Model, number: int) -> list[RowModel]:
        """See :meth:`Synthesizer.replicates`; always the same ones."""
        seed = seed_of(self._of(tick).head, "replicates")
        return self.synthesizer(tick).replicates(self.whole(tick), whole(model), number=number, seed=seed)

    def _series(self, tick: int) -> pl.DataFrame:
        here, schema, moment = self.once(), self._config.at(tick).schema, self._config.clock.boundary
        own = lines(schema, [here.counted(tick, tick)], moment, span="tick")
        return pl.concat([own, lines(schema, [running(here.tables(tick, at=tick))], moment, span="running")])

    def carried(self, then: Release, *, at: int) -> Release:
        """A release from before a cut, over the columns of a later tick."""
        found = then
        for cut in self._cuts:
            if then.tick < cut <= at:
                config = self._config.at(cut)
                model = self.synthesizer(cut).first.model(self.goes_on(cut, found.model))
                measured = carried_reading(config, found.measured)
                found = self.synthesizer(cut).release(
                    **{name: getattr(found, name) for name in ("name", "start", "end", "facts", "secure", "released")},
                    schema=config.schema,
                    measured=measured,
                    model=model,
                )
        return found


def from_releases(
    config: StreamConfig,
    sink: ParquetSink,
    committed: Callable[[int], Committed | None],
    *,
    tick: int | None,
    secure: bool,
) -> Builder:
    """Builds releases from what is published up to a tick, without the state; ``None``: nothing is."""
    segments = [(start, dict[str, Any]()) for start in ([] if tick is None else sink.segments(tick))]
    return Builder(config, committed, segments=segments, secure=secure)
