"""Going on after the state, or releases, were lost, or the state is older than what was published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from synthstream.config.config import StreamConfig
from synthstream.environment import REAL, Env, sync_parent
from synthstream.errors import (
    RecoveryRefused,
    SinkError,
    StateCorrupt,
    StateMismatch,
    StateRolledBack,
    secretive,
)
from synthstream.kernel.gate import Gate, is_secure
from synthstream.publish.copies import Copies, Marks
from synthstream.publish.folder import Newest, ParquetSink, Sink
from synthstream.publish.outlets import as_begun, parquet_sink, sink_of
from synthstream.state.folder import alone_beside, failed, is_state
from synthstream.state.store import Store
from synthstream.stream.opening import (
    begin,
    begun,
    builder_from,
    hold,
    identity_of,
    if_lost,
    key_of,
    marks_of,
    refuse_linked,
    refuse_releases_alone,
    refuse_uncut,
    system_gate,
)
from synthstream.stream.verification import Progress, builder_of, published
from synthstream.synthesizers.segments import whole
from synthstream.synthesizers.succession import promise_of


class Adopted(NamedTuple):
    """How a stream goes on.

    Args:
        start: first tick that will be drawn.
        segment: whether it begins a new segment, without what its private state held; otherwise the state was whole.
        aside: where the old state was put, if there was one; it is as secret as ever.
    """

    start: int
    segment: bool
    aside: Path | None


@secretive
def adopt(
    config: StreamConfig,
    *,
    gates: Callable[[int], Gate] = system_gate,
    seed: int | None = None,
    env: Env = REAL,
    progress: Progress = iter,
    unchecked: bool = False,
) -> Adopted:
    """Go on from what was published, after the state was lost or put back from a backup.

    A state that is as new as the releases is taken as it is. Otherwise a new segment begins on top of the newest
    release: no published tick is ever drawn again, and no row dated before the segment counts again. Rows that waited
    in the lost state and are dated before the segment are lost.

    Args:
        gates, seed, env: as for :class:`synthstream.Stream`.
        unchecked: go on although a mirror cannot be asked what it holds. Drawing will ask again.

    Raises:
        MirrorError: a mirror cannot be asked what it holds.
        RecoveryRefused: there is nothing to recover, or it cannot be done without harm.
        StateLocked: the state is in use.
    """
    config = _at_one(config)
    if config.sink is None:
        return _whole_or_refused(config, env)
    sink = parquet_sink(config.sink, env)
    last = sink.last()
    if last is None:
        raise RecoveryRefused(
            f"{sink.folder} holds no release to go on from. Is it the right [sink] path? If the releases are lost too, "
            "copy them back first, from a reader or a mirror."
        )
    _refuse_one_too_deep(config.state)
    for finding in published(config, sink, progress=progress)[:1]:
        raise RecoveryRefused(
            f"The releases are not sound: {finding.where}: {finding.what}. Put them back first, "
            "or go on with the version of Synthstream that made them; `synthstream verify stream.toml` lists all that "
            "is wrong. Nothing was changed."
        )
    with alone_beside(config.state), _old(config, env) as store:
        if store is not None:
            _refuse_lost_releases(store, last.tick)
        held = _refuse_forgotten(Copies(config, env, unchecked=unchecked), store, sink, last)
        if store is not None and _as_new(config, store, sink, last, held):
            return Adopted(last.tick + 1, False, None)
        _refuse_uncountable(config)
        _refuse_unpublished_cut(config, last.tick)
        _refuse_mount(config.state)
        fresh = config.state.with_name(config.state.name + ".adopting")
        shutil.rmtree(fresh, ignore_errors=True)
        _write(config, fresh, sink, last.tick, held=held, gates=gates, seed=seed, env=env, progress=progress)
        sink.clear()
        return Adopted(last.tick + 1, True, _put_in_place(config.state, fresh, env))


def _put_in_place(state: Path, fresh: Path, env: Env) -> Path | None:
    """A new state takes the place of the one that is there; returns where that was put, if there was one."""
    aside = None
    try:
        if state.exists():
            names = (state.with_name(f"{state.name}.replaced-{number}") for number in count(1))
            aside = next(path for path in names if not path.exists())
            env.do("put old state aside", partial(state.rename, aside))
        env.do("put new state in place", partial(fresh.rename, state))
        env.do("sync state's name", partial(sync_parent, state))
    except OSError as error:
        raise failed(state, error) from error
    return aside


def _refuse_mount(state: Path) -> None:
    """Raise if no other folder can take the place of the state: a disk of its own cannot be renamed."""
    if os.path.ismount(state):
        raise RecoveryRefused(
            f"{state} is a disk, or a volume, of its own: no new state can be put in its place. Choose a folder in it "
            "as 'state', which may change at any time; move what is there into that folder, and say this again. "
            "Nothing was changed."
        )


def _at_one(config: StreamConfig) -> StreamConfig:
    """A configuration with the cuts that both the state and the releases know."""
    refuse_releases_alone(config)
    config, told = begun(config), as_begun(config)
    if told.cuts != config.cuts and config.cuts == told.cuts[: len(config.cuts)]:
        raise RecoveryRefused(
            f"The state in {config.state} is from before tick {told.cuts[len(config.cuts)]['tick']}, where the stream "
            "went on with other settings. Put a newer one in its place. If there is none, move it away, and say the "
            "same again: a stream of events goes on from what was published; one that protects persons cannot."
        )
    refuse_uncut(config)
    refuse_linked(config)
    return config


def _whole_or_refused(config: StreamConfig, env: Env) -> Adopted:
    """A stream without a sink goes on from a state that is as new as its anchor, or not at all."""
    anchor = sink_of(config, env)
    with _old(config, env) as store:
        last = anchor.last()
        if store is not None and last is not None and _as_new(config, store, anchor, last):
            return Adopted(last.tick + 1, False, None)
    raise RecoveryRefused(
        "This stream has no [sink]: what it released was kept in its state alone, and nothing is left to go on from. "
        "Restore the newest state; an older one would draw noise twice."
    )


def _refuse_one_too_deep(state: Path) -> None:
    """Raise if a backup was put into the state folder instead of in its place: it may be new enough to lose nothing."""
    if is_state(state):
        return
    for found in sorted(state.glob("*/store.db")):
        raise RecoveryRefused(
            f"There is a state in {found.parent}, but it should lie in {state} itself. Move it, so that store.db lies "
            f"in {state}, and run this command again. Nothing was changed."
        )


def _old(config: StreamConfig, env: Env) -> AbstractContextManager[Store | None]:
    """The state that is there, locked until it is left; ``None`` if there is none, or none that can be read."""
    if not config.state.exists():
        return nullcontext()
    try:
        store = Store(config.state, copies=True, key=key_of(config), env=env)
    except StateCorrupt:
        return nullcontext()
    if store.meta("config") is not None and (changed := config.differences(store.meta("config") or "{}")):
        store.close()
        raise StateMismatch(f"{config.state} belongs to a stream with other settings: {'; '.join(changed)}.")
    return closing(store)


def _refuse_lost_releases(store: Store, last: int) -> None:
    """Raise if the state, old as it may be, knows of releases that are not there: they have been seen."""
    marked = store.population()
    if marked is not None and marked[0] > last:
        raise RecoveryRefused(
            f"The state in {store.folder} has published releases up to tick {marked[0]}, but the newest one there is "
            f"tick {last}. Going on from that one would draw noise twice for ticks that were published. Put what is "
            "missing back, or say `synthstream recover stream.toml --republish`. Nothing was changed."
        )


def _refuse_forgotten(copies: Copies, store: Store | None, sink: ParquetSink, last: Newest) -> tuple[str, ...]:
    """Raise if a mirror holds what neither the releases nor a state as new as they know; returns the marks of the
    mirrors that hold the stream now, or have held it, as far as the old state remembers.
    """
    whole, found = store is not None and store.head(last.tick) == last.head, set[str]()
    marks = Marks(lambda mark: mark in found or (store is not None and store.meta(mark) is not None), found.add)
    try:
        copies.open(store.head if whole and store is not None else sink.head, marks)
    except StateRolledBack as error:
        raise RecoveryRefused(str(error)) from None
    return copies.held


def _as_new(config: StreamConfig, store: Store, sink: Sink, last: Newest, held: Iterable[str] = ()) -> bool:
    """Whether the state may go on as it is; it is then no copy any more."""
    if store.head(last.tick) != last.head:
        return False
    if not store.is_copy:
        raise RecoveryRefused(
            f"Nothing to recover: the state in {config.state} is as new as the releases. `synthstream run` goes on."
        )
    sink.clear()
    for mark in held:
        marks_of(store).write(mark)
    store.take()
    return True


def _refuse_uncountable(config: StreamConfig) -> None:
    """Raise unless rows that may have counted before can be told from those that have not."""
    if config.privacy.unit.kind != "event":
        raise RecoveryRefused(
            "The record of how many events of each person have counted is lost or old, so nobody can tell how many "
            "more may count. Only the newest state can go on. Another stream needs a folder and a budget of its own; "
            "people in both would be protected by the sum of both budgets."
        )
    if config.clock.column is None:
        raise RecoveryRefused(
            "Rows of this stream have no time ([clock] column), so rows that have counted cannot be told from new "
            "ones. Only the newest state can go on. Another stream needs a folder and a budget of its own."
        )
    if not config.keeps_times:
        raise RecoveryRefused(
            f"{config.log.name if config.log else ''}: rows that were changed counted with the time of the change, and "
            "read again they have their own, so those that have counted cannot be told from new ones. Only the newest "
            "state can go on. Another stream needs a folder and a budget of its own."
        )


def _refuse_unpublished_cut(config: StreamConfig, last: int) -> None:
    """Raise if a damaged or old state alone knows of the newest cut: a segment there would follow from no release."""
    if config.cuts and (cut := config.cuts[-1]["tick"]) > last:
        raise RecoveryRefused(
            f"The stream went on with other settings at tick {cut}, and has released nothing since: only the state in "
            f"{config.state} knows of that, and it cannot go on. Move it away, say this again with the stream.toml "
            "that [after] names, and go on with other settings after its next release. Nothing was changed."
        )


def _write(
    config: StreamConfig,
    folder: Path,
    sink: ParquetSink,
    last: int,
    *,
    held: Iterable[str],
    gates: Callable[[int], Gate],
    seed: int | None,
    env: Env,
    progress: Progress,
) -> None:
    """A new state that goes on after tick ``last``."""
    secure = is_secure(gates(0))
    if secure == ("warning" in sink.manifest(last)):
        raise RecoveryRefused(
            "A stream with real noise cannot go on from releases with simulated noise, nor the reverse."
        )
    builder = builder_of(config, sink, secure=secure).once()
    for _, (model, _, _) in zip(progress(range(last + 1)), builder.again(last + 1), strict=True):  # noqa: B007
        pass  # each starts from the one before; the newest is what the segment goes on from
    starts, start = sink.segments(last), last + 1
    store = Store(folder, key=key_of(config), env=env)
    claims, newest = builder.ledger, promise_of(config, resumed=True).facts
    begin(config, store, identity_of(config, secure=secure, seed=seed), ledger=[*claims[:-1], newest])
    with closing(store), store.transaction("adoption"):
        hold(store, held)
        for tick in range(last + 1):
            committed = sink.measured(tick)
            if committed is None:
                raise SinkError(f"{sink.place(tick)} cannot be read. Nothing was changed.")
            store.append_measurement(committed)
            store.put_published(tick, sink.fingerprint(tick))
        for earlier in starts:
            store.append_segment(earlier, dict(builder.base(earlier)))
        store.append_segment(start, whole(model).arrays())
        store.put_population(last, model.arrays())


@secretive
def republish(config: StreamConfig, *, progress: Progress = iter, unchecked: bool = False) -> int:
    """Publish again what the state has published and the place of publication has lost. Draws nothing.

    The same bytes come out, as long as this package and its libraries have the same versions. A backup will do as the
    state, and stays one, while the newest release that it knows is there.

    Args:
        unchecked: go on from a backup without that release. What it puts back would look like the newest release that
            there ever was, and :func:`adopt` would draw again what was published after it.

    Returns:
        Number of releases that were put back.

    Raises:
        RecoveryRefused: there is no state, or nothing is missing; what is there, or in a mirror that answers, was drawn
            by another state; or a backup lacks the newest release.
        SinkError: a release that is there cannot be read.
    """
    refuse_releases_alone(config)
    config = begun(config)
    if config.sink is None:
        raise RecoveryRefused("This stream has no [sink] to put releases back into.")
    sink = parquet_sink(config.sink)
    if not is_state(config.state):
        raise RecoveryRefused(
            f"There is no state in {config.state} to build releases from. Put it back, or check 'state'. "
            f"{if_lost(config)} Nothing was changed."
        )
    with closing(Store(config.state, copies=True, key=key_of(config))) as store:
        marked = store.population()
        missing = [] if marked is None else [t for t in range(marked[0] + 1) if not sink.place(t).exists()]
        if marked is None or not missing:
            raise RecoveryRefused(
                "Every release of this state has its folder where it should be. If `synthstream verify stream.toml` "
                "names one that was changed, or lacks a file, move its folder out of the place of publication, and run "
                "this command again."
            )
        if store.is_copy and marked[0] in missing and not unchecked:
            raise RecoveryRefused(
                f"The state in {config.state} is a backup, and the newest release that it knows, of tick {marked[0]}, "
                "is not there either. Ticks that were published after the backup are known to readers alone: built "
                "from here, the stream would draw them a second time. Copy the releases back, from a reader or a "
                "mirror, and say --adopt. Only if you know that none was published after that tick: --republish "
                "--unchecked. Nothing was changed."
            )
        _refuse_other_draws(config, store, sink, marked[0])
        secure = store.meta("secure") == "True"
        builder = builder_from(config, store, secure=secure)
        for tick, (_, release, _) in zip(progress(range(marked[0] + 1)), builder.again(marked[0] + 1), strict=True):
            if tick in missing:
                sink.publish(release, key=store.secret, newest=marked[0])
    return len(missing)


def _refuse_other_draws(config: StreamConfig, store: Store, sink: ParquetSink, marked: int) -> None:
    """Raise if what was published goes on from other draws than those of the state: they have been seen.

    Args:
        marked: the newest tick that the state has published.
    """
    for tick in sink.ticks():
        if tick > marked + 1:
            break
        # Of the first release that the state does not know, what it went on from.
        there = sink.head(tick) if tick <= marked else sink.manifest(tick)["chain"]["previous"]
        if there != store.head(min(tick, marked)):
            raise RecoveryRefused(
                f"{sink.place(tick)} was not made by the state in {config.state}: that is a copy which drew anew. Put "
                "the newest state in its place, or get the missing releases from readers. Nothing was changed."
            )
    try:
        Copies(config, unchecked=True).open(lambda tick: sink.head(tick) or store.head(tick))
    except StateRolledBack as error:
        raise RecoveryRefused(str(error)) from None
