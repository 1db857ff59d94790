"""Going on with other settings: a stream ends at a tick's end, and its successor begins there. One transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from synthstream.config.after import changed_for_ever
from synthstream.config.config import StreamConfig, load
from synthstream.config.differing import differences
from synthstream.environment import REAL, Env
from synthstream.errors import ConfigError, StateError, StateMismatch, secretive
from synthstream.ingest.counting import LATE
from synthstream.ingest.filenames import RETIRED
from synthstream.ingest.intake import BEFORE, CURSOR, DATED
from synthstream.ingest.persons import Contributions
from synthstream.kernel.gate import Gate, is_secure
from synthstream.kinds import EDITION
from synthstream.publish.outlets import simulated, sink_of
from synthstream.state.folder import is_state
from synthstream.state.looking import began
from synthstream.state.store import Store
from synthstream.stream.opening import (
    CUTS,
    begun,
    builder_from,
    identity_of,
    if_lost,
    key_of,
    refuse_clash,
    seeded_gates,
    system_gate,
)
from synthstream.stream.stream import Stream
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from synthstream.synthesizers.contract import Models
from synthstream.synthesizers.succession import carried_counts, refuse_to_carry

# When tables are measured, in words.
_TIMES = {"always": "all at every tick", "refresh": "the larger ones at refreshes", "epochs": "once an epoch"}


def successor_of(old: StreamConfig, new: StreamConfig, *, tick: int | None = None) -> StreamConfig:
    """A successor's configuration with the stream that it goes on from as that one began.

    Args:
        tick: the cut; left out: not known yet.

    Raises:
        ConfigError: it goes on from another one, or changes what cannot change, or its horizon is over.
    """
    if new.after is None:
        if old.after is not None and old.after.config.own_hash == new.own_hash:
            raise ConfigError("The files are the other way round: name the one with [after] last")
        raise ConfigError(
            f"{new.name}: the new file must say which stream it goes on from. Add two lines at its end: [after], and "
            'below it config = "old.toml", with the path of the old file as seen from the new one'
        )
    for _, why in changed_for_ever(old.kept, new.kept):
        raise ConfigError(why)
    if new.clock.column is None:
        raise ConfigError(
            "clock.column: rows have no time of their own, so nobody can tell on which side of the cut they "
            "lie. It cannot go on with other settings: open a new stream, with a budget of its own"
        )
    named = new.after.config.begun_as({"edition": EDITION, "cuts": old.cuts})
    if named.own_hash != old.own_hash:
        raise ConfigError(
            f"{new.name}: [after] names another stream than {old.name}, or another version of its settings"
        )
    if tick is not None and new.clock.horizon is not None and new.clock.horizon <= tick:
        raise ConfigError(
            f"clock.horizon = {new.clock.horizon}: {tick} ticks have been released, and the horizon counts all ticks "
            "since clock.start. Say a larger one"
        )
    refuse_clash(new, but=old.schema.names)
    after = replace(new.after, config=old, tick=tick)
    after.mapping  # noqa: B018 - raises if an old value has no place
    return replace(new, after=after)


@secretive
def succeed(
    old: StreamConfig | str | Path,
    new: StreamConfig | str | Path,
    *,
    read_again: bool = False,
    simulate: int | None = None,
    gates: Callable[[int], Gate] = system_gate,
    seed: int | None = None,
    env: Env = REAL,
) -> StreamConfig:
    """End a stream after its newest release, and let its successor begin there. Draws no noise.

    Nobody is asked: what the successor spends is spent for good. ``synthstream.plan(new)`` says before what all of it
    promises. The old settings are refused from then on, and the new ones go on naming them.

    Everything happens in one transaction of the state: whoever is killed leaves either the old stream or the new one.

    Args:
        old, new: of the streams, or the paths of their files.
        read_again: forget what waits for later ticks, and which files, batches and entries of a log were counted: all
            of it may come again, and rows dated from the cut on count. So do requests to forget that had their times:
            say them again, or their rows dated from the cut on stay. Those without times took all their rows away, and
            stay known. Left out: rows that wait go on, once each.
        simulate, gates, seed, env: as for :class:`synthstream.Stream`.

    Returns:
        The successor's configuration with its cut.

    Raises:
        BudgetExceeded: the new budget does not cover the new settings.
        ConfigError: see :func:`successor_of`.
        StateError: there is no state, or nothing was released, or rows that wait cannot count over the new columns.

    Example:
        >>> with synthstream.open("stream.toml") as stream:
        ...     _ = list(stream.run(until="2026-01-26"))
        >>> cut = synthstream.succeed("stream.toml", "next.toml").cuts[0]
        >>> cut["tick"]
        3
    """
    old, new = load(old), load(new)
    if simulate is not None:
        old, new, gates, seed = simulated(old), simulated(new), seeded_gates(simulate), simulate
    if not began(old.state):
        raise StateError(
            f"There is no state in {old.state} to go on from. Check 'state'. {if_lost(old)} In a new segment one more "
            "tick must be released before a successor can begin. Nothing was changed."
        )
    if read_again:
        _refuse_to_read_otherwise(old, new)
    old = _published(Stream(old, gates=gates, seed=seed, env=env))
    with closing(Store(old.state, key=key_of(old), env=env)) as store:
        cut, newest = _ended(old, store)
        config = successor_of(old, new, tick=cut)
        config.privacy.budget.charge(claim_of(config, synthesizer_of(config).mechanism))
        if not read_again:
            _refuse_to_move(config)
        _begin(config, store, cut, newest, secure=is_secure(gates(0)), seed=seed, read_again=read_again)
        store.wipe()
    return config


def _ended(old: StreamConfig, store: Store) -> tuple[int, Models]:
    """The tick after the newest release, and that release's model. Raises ``StateError`` if no successor can begin."""
    marked, last = store.population(), store.last()
    if marked is None or last is None or marked[0] != last.tick or store.half_drawn(last.tick + 1):
        raise StateError(f"{old.state}: another process has just drawn a tick. Say the same command again.")
    if last.tick + 1 in [start for start, _ in store.segments()]:
        over = last.tick + 1 == old.clock.horizon
        how = "It never will, since the horizon is over: open another stream, with a budget of its own"
        raise StateError(
            f"{old.name}: a segment begins with tick {last.tick + 1}, and has released nothing. "
            f"{how if over else 'Release that tick first'}. Nothing was changed."
        )
    return last.tick + 1, marked[1]


def _published(stream: Stream) -> StreamConfig:
    """The configuration as it began of a stream of which what was drawn is published; closes it."""
    with stream:
        if stream.closed == 0:
            raise StateError(
                f"{stream.config.name}: nothing has been released, so there is nothing to go on from. Delete "
                f"{stream.config.state}, and begin with the new settings. Nothing was changed."
            )
        return stream.config


def _begin(
    config: StreamConfig, store: Store, cut: int, newest: Models, *, secure: bool, seed: int | None, read_again: bool
) -> None:
    """Write down that the successor goes on, after the newest model, in one transaction."""
    builder = builder_from(config, store, secure=secure)
    model = builder.goes_on(cut, builder.synthesizer(cut - 1).model(newest))
    with store.transaction("succession"):
        for key, value in identity_of(config, secure=secure, seed=seed).items():
            store.put_meta(key, value)
        store.put_meta(CUTS, json.dumps(config.cuts))
        store.append_segment(cut, dict(model))
        store.append_ledger(builder.claim_at(cut))
        store.put_counter(synthesizer_of(config).mechanism.init())
        store.put_models(cut - 1, {})
        _move(config, store, read_again=read_again)


def _refuse_to_read_otherwise(old: StreamConfig, new: StreamConfig) -> None:
    """Raise unless a row that comes again is read with the time that it had before: theorem succession takes that."""
    if not old.keeps_times:
        raise ConfigError(
            "source: --read-again reads rows again that counted before the cut, and they must have the time that they "
            'had. Of changes of a Delta table (format = "changes"), rows that were changed counted with the time of '
            "the change, and then have their own: leave --read-again out."
        )
    if _reading(old) != _reading(new):
        raise ConfigError(
            "source: --read-again reads rows again that counted before the cut, and they must have the time that they "
            "had. Kind, format, datetime_format and how cells are written cannot change with it: set them back, or "
            "leave --read-again out."
        )


def _reading(config: StreamConfig) -> Any:
    """All that decides how a time is read."""
    if config.source is None:
        return None if config.log is None else (config.log.kind, config.log.format, dict(config.log.formats))
    return config.source.kind, config.source.dialect, dict(config.source.formats)


def _refuse_to_move(config: StreamConfig) -> None:
    """Raise unless whatever waits can go on. Looks at settings alone, never at whether anything waits."""
    if why := refuse_to_carry(config):
        raise StateMismatch(
            f"Rows that wait for later ticks cannot go on as they are: {why}. Say --read-again (in Python, "
            "read_again=True): what waits is forgotten, all files and logs of the source are read again, and rows "
            "dated from the cut on count; push again what was pushed and is dated so. Nothing was changed."
        )


def _move(config: StreamConfig, store: Store, *, read_again: bool) -> None:
    """Let rows that wait for the successor's ticks wait over its columns; all others end with the old stream."""
    people = Contributions(store, config.privacy.unit) if config.privacy.unit.of_persons else None
    if people is not None:
        people.go_on(None if read_again or config.after is None else config.after.mapping)
    for (tick,) in store.db.execute("SELECT tick FROM pending").fetchall():
        counts = store.pending(tick)
        store.drop_pending(tick)
        if tick != LATE and not read_again:
            store.add_pending(tick, carried_counts(config, counts))
    for item in store.items(""):
        known, batch, request = store.ingested(item) or "", item.startswith("batch "), item.startswith("forget ")
        dated = request and known.startswith(DATED)
        # A request without times counted rows before the cut that are dated after it: it must never come again.
        if read_again and (batch or dated or (not request and known != RETIRED)):
            store.forget("ingested", item)
        elif batch or request:  # made of other columns: their ids alone are known from now on
            store.put_ingested(item, DATED + BEFORE if dated else BEFORE)
    if read_again:
        store.forget("meta", CURSOR)


def changes_of(successor: StreamConfig) -> list[str]:
    """What is counted or published otherwise from the cut on, in words; nothing of which stream it goes on from."""
    if successor.after is None:
        return []
    before, after = (json.loads(c.public_json()) | {"after": None} for c in (successor.after.config, successor))
    times = [_TIMES.get(c.measures, c.measures) for c in (successor.after.config, successor)]
    found = differences(before, after)
    if times[0] != times[1]:  # also if nobody said so: fewer ticks are left
        found = [text for text in found if not text.startswith("synthesizer.growth:")]
        found.append(f"tables: were measured {times[0]}, are measured {times[1]}")
    return found


def planned(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """The successor as it would begin now; reads no private value, changes nothing."""
    old, cut = begun(old), None
    if is_state(old.state):
        with closing(Store(old.state, read_only=True)) as store:
            cut = None if (last := store.last()) is None else last.tick + 1
    elif (newest := sink_of(old).last()) is not None:
        cut = newest.tick + 1
    return successor_of(old, new, tick=cut)
