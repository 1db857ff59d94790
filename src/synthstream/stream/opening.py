"""Whether a state may be opened: it must be this stream's, and as new as what is published."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any
from weakref import ref

from synthstream.config.after import kept_for_ever
from synthstream.config.config import StreamConfig
from synthstream.config.secrecy import apart
from synthstream.config.settings import NO_STATE
from synthstream.config.sinks import SIMULATED
from synthstream.environment import Env
from synthstream.errors import ConfigError, StateCorrupt, StateError, StateMismatch, StateRolledBack
from synthstream.kernel.gate import Gate, SystemGate
from synthstream.measured import Committed
from synthstream.publish.building import Builder
from synthstream.publish.copies import Copies, Marks
from synthstream.publish.folder import Anchor, Newest, Sink
from synthstream.publish.outlets import as_begun, public_folders
from synthstream.schema.naming import clash
from synthstream.state.database import Closed
from synthstream.state.folder import is_state
from synthstream.state.looking import began
from synthstream.state.store import Store
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.synthesizers.succession import promise_of

# A public setting of a state: where it went on with other settings.
CUTS = "cuts"

_KINDS_OF_RUN = {
    "secure": "runs with simulated noise and real runs never share a state folder",
    "seed": "its noise was simulated with another seed; use that one, or delete this folder and its releases",
    "mechanism": "this version of Synthstream, or of its libraries, would encode counts with other coefficients",
}


def system_gate(tick: int) -> Gate:  # noqa: ARG001
    """Real noise, for any tick."""
    return SystemGate()


def seeded_gates(seed: int) -> Callable[[int], Gate]:
    """The gate of every tick of a simulated run: it protects nobody, and every release says so."""
    return lambda tick: SeededGate(f"{seed}/{tick}")


def builder_from(config: StreamConfig, store: Store, *, secure: bool) -> Builder:
    """Builds releases from what a state has committed, as long as it is open."""
    found, process = ref(store), os.getpid()

    def committed(tick: int) -> Committed | None:  # a release is public: it keeps no state open, and leads to none
        here = found() if os.getpid() == process else None  # a connection does not outlive a fork
        return (here or Closed()).measurement(tick)

    return Builder(config, committed, segments=store.segments(), secure=secure)


def marks_of(store: Store) -> Marks:
    """Which mirrors have held the stream, as a state remembers it."""

    def write(mark: str) -> None:
        with store.transaction("place"):
            hold(store, [mark])

    return Marks(lambda mark: store.meta(mark) is not None, write)


def hold(store: Store, marks: Iterable[str]) -> None:
    """Remember for ever, in a transaction that is open, that these places have held the stream."""
    for mark in marks:
        store.put_meta(mark, "held")


def key_of(config: StreamConfig) -> bytes | None:
    """What private pieces of the state are encrypted with, if there is a key."""
    return None if config.encryption is None else config.encryption.key(config.state)


def store_of(config: StreamConfig, env: Env, *, simulate: int | None) -> Store:
    """The state of a stream. If it is new and simulated, its secret follows from the seed, and which rows of persons
    count with it: it hides nothing that noise does not tell, but for a key that encrypts it. It says so from its first
    commit on, so that no real run ever begins with that secret.
    """
    key = key_of(config)

    class Simulated(Store):
        def new_facts(self) -> tuple[bytes, dict[str, str]]:
            secret = hashlib.blake2b(f"simulation {simulate}".encode(), digest_size=32, key=key or b"").digest()
            return secret, {"secure": "False", "seed": str(simulate)}

    return (Store if simulate is None else Simulated)(config.state, key=key, env=env)


def begun(config: StreamConfig) -> StreamConfig:
    """A configuration with the cuts of its stream: the state knows them, and so do releases.

    Raises:
        ConfigError: the stream has gone on with other settings since, or began with another edition.
    """
    if not is_state(config.state):
        return as_begun(config)
    try:
        with closing(Store(config.state, read_only=True)) as store:
            stored, cuts = store.meta("config"), json.loads(store.meta(CUTS) or "[]")
            facts = {} if stored is None else json.loads(stored) | {"cuts": cuts}
    except (StateError, ValueError):  # who opens it says why
        return as_begun(config)
    config.refuse_succeeded(facts)
    return config.begun_as(facts) if facts else config


def changes_from(config: StreamConfig, store: Store) -> list[str]:
    """Settings that are not those of a state, each with both values."""
    changed = config.differences(store.meta("config") or config.public_json())
    if not changed and encodes_otherwise(config, store):
        return ["the coefficients of its counters, as this version, or its libraries, compute them"]
    return changed


def identity_of(config: StreamConfig, *, secure: bool, seed: int | None) -> dict[str, str]:
    """What a state must have in common with the run that opens it."""
    return {
        "config": config.public_json(),
        "secure": str(secure),
        "seed": str(seed),
        "mechanism": synthesizer_of(config).mechanism.fingerprint(),
    }


def begin(
    config: StreamConfig,
    store: Store,
    identity: Mapping[str, str],
    *,
    ledger: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Charge the budget once, for the stream's whole life. Raises ``BudgetExceeded`` before anything is written.

    Args:
        ledger: the claims to write down; left out: the one that the configuration describes.
    """
    mechanism = synthesizer_of(config).mechanism
    config.privacy.budget.charge(claim_of(config, mechanism))
    with store.transaction("settings"):
        for key, value in identity.items():
            store.put_meta(key, value)
        if config.cuts:
            store.put_meta(CUTS, json.dumps(config.cuts))
        for claim in ledger or [promise_of(config).facts]:
            store.append_ledger(dict(claim))
        store.put_counter(mechanism.init())


def refuse_lost_state(config: StreamConfig, sink: Sink, copies: Copies, *, seed: int | None) -> None:
    """Raise ``StateRolledBack`` if there are releases, here or in a mirror, but no state; creates nothing.

    A stream that begins now is refused if its columns have names that tables of counts need (``ConfigError``).

    Args:
        seed: of a simulated run, whose releases protect nobody and may be made anew.
    """
    refuse_uncut(config)
    refuse_linked(config)
    if is_state(config.state):
        return
    refuse_releases_alone(config)
    last = sink.last()
    if last is None:
        refuse_clash(config)
        copies.open(lambda _: None)
    else:
        _refuse_another(config, last)
        if seed is not None and config.state.name.endswith(SIMULATED):
            told = sink.path if isinstance(sink, Anchor) else sink.folder
            raise StateRolledBack(
                f"There is no state in {config.state}, but releases were simulated with it before. "
                f"Delete {told}, too, and simulate again."
            )
        raise StateRolledBack(
            f"There is no state in {config.state}, but releases up to tick {last.tick} are published. "
            "Starting again would draw noise twice for the same events. Put the state back, or check 'state'"
            f"{'' if config.sink is None else ' and [sink] path'}. {if_lost(config)} No noise was drawn."
        )


def refuse_to_begin(config: StreamConfig) -> None:
    """Raise ``StateError`` unless the stream was opened before; creates nothing."""
    if not began(config.state):
        raise StateError(
            f"There is no stream in {config.state.absolute()}. With begin=False none is begun: check 'state', and the "
            "working directory that it is looked for in. A stream that begins anew on the same events spends a second "
            "budget on them. Nothing was changed."
        )


def refuse_clash(config: StreamConfig, *, but: Collection[str] = ()) -> None:
    """Raise ``ConfigError`` if new columns have names that tables of counts need; streams that run keep theirs.

    Args:
        but: names that the stream has had before.
    """
    if config.workload is not None and (why := clash(name for name in config.schema.names if name not in but)):
        raise ConfigError(why)


def refuse_linked(config: StreamConfig) -> None:
    """Raise ``ConfigError`` if links lead from what is secret into what is published, or back.

    Of settings the names alone are compared, which follow no links.
    """
    key = None if config.encryption is None else config.encryption.key_file
    for place in map(os.path.realpath, public_folders(config)):
        apart(config.base, os.path.realpath(config.state), place)
        if key is not None:
            apart(config.base, os.path.realpath(key), place, which="key")


def refuse_releases_alone(config: StreamConfig) -> None:
    """Raise ``StateError`` if a configuration is that of a folder of releases, which has no state of its own."""
    if config.state == config.base / NO_STATE:
        raise StateError(
            f"{config.base} holds releases alone, which can be read without a state. To go on with the stream, name "
            "its own stream.toml, which says where its state is. Nothing was changed."
        )


def _refuse_another(config: StreamConfig, last: Newest) -> None:
    """Raise ``StateRolledBack`` if the newest release is one of a stream of another name."""
    if last.name not in (None, config.name):
        raise StateRolledBack(
            f"[sink] path holds releases of another stream, {last.name!r}, up to tick {last.tick}. Publish to a folder "
            "of its own; if it is the same stream, a stream keeps its name: put that back. No noise was drawn."
        )


def refuse_uncut(config: StreamConfig) -> None:
    """Raise ``StateMismatch`` if a configuration goes on from another one, and has not begun."""
    if config.after is not None and config.after.tick is None:
        raise StateMismatch(
            f"[after]: {config.name} goes on from {config.after.config.name} and has not begun. Say `synthstream "
            "succeed old.toml new.toml`, with the configuration that [after] names and this one. No noise was drawn."
        )


def if_lost(config: StreamConfig) -> str:
    """What to do if the state is nowhere any more."""
    if config.sink is None:
        return "If the state is lost, nothing is left to go on from: open another stream, with a budget of its own."
    if config.privacy.unit.of_persons or not config.keeps_times:
        return (
            "A backup that is as new as the releases can go on: put it back, and say "
            "`synthstream recover stream.toml --adopt`. If there is none, open another stream, with a name, "
            "state, sink and budget of its own; people in both would be protected by the sum of both budgets."
        )
    return "If the state is lost, `synthstream recover stream.toml --adopt` goes on from what was published."


def encodes_otherwise(config: StreamConfig, store: Store) -> bool:
    """Whether the state was made with other coefficients, so that no run goes on with it. From public facts alone."""
    return store.meta("mechanism") not in {None, synthesizer_of(config).mechanism.fingerprint()}


def _instead(changed: Sequence[str]) -> str:
    """What to do where settings must differ."""
    if kept := kept_for_ever(changed):
        return (
            f"A successor keeps {', '.join(kept)}, too: what must have another one is another stream, with a name, "
            "state, sink and budget of its own."
        )
    return (
        "Or keep the old file, and write the new settings to a successor's: with [after] in it, `synthstream succeed "
        "old.toml new.toml` goes on with them, and `synthstream plan new.toml --after old.toml` says before what that "
        "costs."
    )


def refuse_other_settings(config: StreamConfig, store: Store, identity: Mapping[str, str]) -> None:
    """Raise ``StateMismatch`` unless the state belongs to this configuration and this kind of run."""
    stored = store.meta("config") or "{}"
    if changed := config.differences(stored):
        if store.undrawn():
            raise StateMismatch(
                f"{config.state} was opened with other settings: {'; '.join(changed)}. Nothing has been released "
                "from it: delete that folder, and run again. What was pushed to it must be pushed again."
            )
        if store.meta("secure") == "False":
            raise StateMismatch(
                f"{config.state} was simulated with other settings: {'; '.join(changed)}. Delete that folder and the "
                "releases that were simulated with it, and simulate again."
            )
        raise StateMismatch(
            f"{config.state} belongs to a stream with other settings: {'; '.join(changed)}. A running stream "
            f"keeps its privacy, clock, schema and synthesizer. Undo the change. {_instead(changed)}"
        )
    refuse_another_run(config, store, identity, begun=True)


def refuse_another_run(config: StreamConfig, store: Store, identity: Mapping[str, str], *, begun: bool) -> None:
    """Raise ``StateMismatch`` if a state is of another kind of run. One in which nothing has begun may not say yet."""
    for key, value in identity.items():
        known = store.meta(key)
        if key != "config" and known != value and (begun or known is not None):
            raise StateMismatch(
                f"{config.state} was made by another kind of run: {_KINDS_OF_RUN[key]}. Nothing was changed; no noise "
                "was drawn."
            )


def refuse_unsound(config: StreamConfig, store: Store, builder: Builder, closed: int) -> None:
    """Raise ``StateCorrupt`` unless the ledger is the claim's, and the newest of the closed ticks is chained to it.

    Of a life before a cut the mechanism is not known by name: its last tick must be chained, too.
    """
    ends = [*(cut["tick"] for cut in config.cuts), *([closed] if closed else [])]
    if store.ledger() != builder.ledger:
        what = "its ledger does not match the claim of this configuration"
    elif broken := [end - 1 for end in ends if builder.head_after(end - 1) != builder.previous(end)]:
        what = f"what was measured at tick {broken[0]} is not what was committed"
    else:
        return
    raise StateCorrupt(
        f"{config.state}: {what}; or another version of Synthstream, or of its libraries, wrote it, and this one would "
        "encode counts with other coefficients. Restore the folder whole, or go on with that version. No noise was "
        "drawn."
    )


def compare_with_sink(config: StreamConfig, store: Store, sink: Sink) -> None:
    """Raise ``StateRolledBack`` unless the newest release that is published is one of this state's."""
    last = sink.last()
    marked = store.population()
    if last is None:
        if marked is None:
            return
        if config.sink is None:
            raise StateRolledBack(
                f"The state has published {marked[0] + 1} releases, and there is no [sink] in the configuration. If "
                "there was one, put it back as it was. If there never was, restore the file that stood beside the "
                "state, whose name ends in .anchor.json. No noise was drawn."
            )
        raise StateRolledBack(
            f"The state has published {marked[0] + 1} releases, but the place of publication is empty. Restore it, or "
            "point [sink] path back to where the releases are; `synthstream recover stream.toml --republish` builds "
            "them again. No noise was drawn."
        )
    if marked is not None and last.tick < marked[0]:
        raise StateRolledBack(
            f"The state has published releases up to tick {marked[0]}, but the newest one there is tick {last.tick}. "
            "Restore the missing ones, or say `synthstream recover stream.toml --republish`. No noise was drawn."
        )
    if store.head(last.tick) != last.head:
        _refuse_another(config, last)
        raise StateRolledBack(
            f"Releases up to tick {last.tick} are published that this state did not make: it is an old copy, or "
            "another stream publishes there. Going on would draw noise twice for the same events. Use the newest "
            f"state. {if_lost(config)} No noise was drawn."
        )
    known = store.published(last.tick)
    if known is not None and known != last.manifest:
        raise StateRolledBack(
            f"The manifest of tick {last.tick} is not what was published: somebody changed it. Move its "
            "folder away, and say `synthstream recover stream.toml --republish`. No noise was drawn."
        )
