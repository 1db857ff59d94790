"""``synthstream status``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from synthstream.cli.common import AHEAD, AsJson, ConfigPath, Simulate, cautioned, console, program, warn
from synthstream.cli.runtime import FOUND, Now
from synthstream.environment import REAL
from synthstream.errors import ConfigError, SinkError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.config.config import StreamConfig
    from synthstream.publish.folder import Newest
    from synthstream.schema.clock import Clock


def status_command(
    config: ConfigPath,
    simulate: Simulate = False,
    as_json: AsJson = False,
    metrics: Annotated[bool, typer.Option("--metrics", help="As OpenMetrics text; asks the source too.")] = False,
    check: Annotated[bool, typer.Option("--check", help="End with status 1 where a hand is needed.")] = False,
) -> None:
    """Show what was spent and how far the stream is. Public facts only; works while `run` is at it.

    Examples:
    synthstream status stream.toml
    synthstream status stream.toml --json
    synthstream status stream.toml --metrics
    synthstream status stream.toml --check
    """
    from synthstream.forecast.noticing import noticed
    from synthstream.publish.outlets import configured

    loaded = configured(config, simulate=simulate)
    found = facts(loaded, simulate=simulate, mirrors=True)
    if metrics:
        typer.echo(openmetrics(loaded, found), nl=False)
    elif as_json:
        found["warnings"] = [caution._asdict() for caution in noticed(loaded, new=0)]
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif not Now.quiet and not found["started"]:
        _print_absent(console(), found, config)
    elif not Now.quiet:
        _print(console(), found, config)
        cautioned(console(), noticed(loaded, new=0))
    if check and (found["refused"] or found["ahead"] or found["due"] > 1):
        raise SystemExit(FOUND)


def facts(config: StreamConfig, *, simulate: bool = False, mirrors: bool = False) -> dict[str, Any]:
    """What ``status --json`` prints (docs/command-line.md), but for warnings. The keys are always all there.

    Args:
        config: of the stream, with the folders of a simulation if it is one.
        mirrors: whether to ask them what they hold, which may take long.

    Raises:
        StateError: there is a state, and it cannot be read.
    """
    from synthstream.measured import stamped
    from synthstream.schema.clock import due
    from synthstream.stream.opening import begun
    from synthstream.synthesizers.succession import promise_of

    config = begun(config)
    started, ledger, last, head, refusals = _known(config)
    clock, sink, now = _clock(config) if refusals["changed"] else config.clock, config.sink, REAL.now()
    ticks, horizon = last + 1, ledger[-1]["horizon"] if ledger else clock.horizon
    complete = horizon is not None and ticks >= horizon
    end = None if complete else clock.boundary(ticks + 1).isoformat()
    folder = None if sink is None else str(sink.path / f"{last:06d}")
    upto = None if last < 0 else clock.boundary(ticks).isoformat()
    gone = _gone(config, last if started else None)
    return {
        "name": config.name,
        "simulated": simulate,
        "started": started,
        **gone,
        **refusals,
        "refused": any((*gone.values(), *refusals.values())),
        "ahead": last >= 0 and clock.boundary(ticks) > now,
        "complete": complete,
        "claim": stamped(ledger[-1] if ledger else promise_of(config).facts, secure=not simulate),
        "spent": [stamped(claim, secure=not simulate) for claim in ledger],
        "ticks": ticks,
        "horizon": horizon,
        "due": 0 if complete else max(0, due(clock, until=None, now=now) - ticks),
        "last": None if last < 0 else {"tick": last, "end": upto, "head": head, "folder": folder},
        "next": None if end is None else {"tick": ticks, "end": end, "closes": clock.closes(ticks).isoformat()},
        "mirrors": _mirrors(config, last) if mirrors else [],
        "state": str(config.state),
        "releases": None if sink is None else str(sink.path),
    }


def _known(config: StreamConfig) -> tuple[bool, list[dict[str, Any]], int, str | None, dict[str, Any]]:
    """Whether there is a state; its ledger; tick and head of the newest release; and why `run` refuses to go on.

    Raises:
        StateError: there is a state, and it cannot be read.
    """
    from synthstream.publish.outlets import sink_of
    from synthstream.state.looking import to_look_at
    from synthstream.stream.opening import changes_from

    newest: Newest | None = None
    with suppress(SinkError):  # what is wrong with the newest release, `run` and `verify` say
        newest = sink_of(config).last()
    store = to_look_at(config.state)  # after that: what `run` publishes meanwhile is committed
    if store is None:
        return False, [], -1, None, {"backup": False, "old": False, "changed": []}
    with closing(store):
        marked = store.population()
        kept = None if marked is None else store.measurement(marked[0])
        last, head = (-1, None) if kept is None else (kept.tick, kept.head)
        old = newest is not None and store.head(newest.tick) != newest.head
        refusals = {"backup": store.is_copy, "old": old, "changed": changes_from(config, store)}
        return True, store.ledger(), last, head, refusals


def _gone(config: StreamConfig, last: int | None) -> dict[str, bool]:
    """What is not where it was: the state, the newest release, the key.

    Args:
        last: tick of the newest release; -1 before the first, ``None`` without a state.
    """
    sink, key = config.sink, None if config.encryption is None else config.encryption.key_file
    lost = last is None and sink is not None and any(sink.path.glob("[0-9]*/manifest.json"))
    newest = None if sink is None or last is None or last < 0 else sink.path / f"{last:06d}"
    missing = newest is not None and not (newest / "manifest.json").is_file()
    return {"lost": lost, "missing": missing, "keyless": last is not None and key is not None and not key.exists()}


def _clock(config: StreamConfig) -> Clock:
    """The clock that says when released ticks end, whatever was changed since."""
    from synthstream.publish.outlets import as_published

    try:
        return replace(as_published(config).clock, until=config.clock.until)
    except ConfigError:  # who reads releases says what is wrong with them
        return config.clock


def _mirrors(config: StreamConfig, last: int) -> list[dict[str, Any]]:
    """The newest tick of each mirror, and how many it lags behind; null for one that does not answer."""
    from synthstream.publish.copies import Copies

    try:
        held = Copies(config).newest()
    except SinkError:  # what reads them is not installed here
        held = {f"{mirror.kind} {number}": None for number, mirror in enumerate(config.mirrors, 1)}
    return [{"name": name, "tick": at, "lag": None if at is None else max(0, last - at)} for name, at in held.items()]


def _print_absent(shown: Console, found: dict[str, Any], config: Path) -> None:
    if found["lost"] and Path(found["releases"]).resolve() == (config if config.is_dir() else config.parent).resolve():
        shown.print(
            f"{found['name']}: {config} holds releases alone; their manifests say what was spent. How far the "
            f"stream is, its own stream.toml tells: {program()} status stream.toml"
        )
    elif found["lost"]:
        shown.print(
            f"{found['name']}: there are releases in {found['releases']}, but no state in {found['state']}. "
            "Put the state back, or check 'state'; `run` says what else can be done."
        )
    else:
        shown.print(f"{found['name']}: not started. Next: {_next(found, config)}")


def _print(shown: Console, found: dict[str, Any], config: Path) -> None:
    if found["simulated"]:
        warn(shown)
    adopt, again = (f"`{program()} recover {config} --{what}`" for what in ("adopt", "republish"))
    if found["backup"] and found["missing"]:
        words = "This state is a backup, and the newest release that it knows is missing; `run` will refuse. Copy the"
        shown.print(f"{words} releases back, from a reader or a mirror; then {adopt} goes on from it.", style="bold")
    elif found["backup"]:
        shown.print(f"This state is a backup; `run` will refuse. {adopt} goes on from it.", style="bold")
    elif found["missing"]:
        shown.print(f"The newest release is missing; `run` will refuse. {again} makes it again.", style="bold")
    if found["old"] and not found["backup"]:
        words = "Releases are published that this state did not make: it is an old copy, or another stream publishes"
        shown.print(f"{words} there; `run` will refuse. Use the newest state.", style="bold")
    if found["keyless"]:
        shown.print("The key_file of [encryption] is not there; `run` will refuse.", style="bold")
    if found["ahead"]:
        shown.print(AHEAD.format(_day(found["last"]["end"])), style="bold")
    if found["changed"]:
        names = "; ".join(found["changed"])
        shown.print(f"{config} differs from the running stream: {names}. `run` will refuse.", style="bold")
    horizon, last = found["horizon"], found["last"]
    ahead = "no end" if horizon is None else f"{horizon} paid for"
    shown.print(f"{found['name']}: {found['ticks']} release(s), {ahead}")
    for claim in found["spent"][-1:]:  # it speaks of the whole life
        shown.print(f"{'' if found['simulated'] else 'Spent    '}{claim['words']}")
    if last is not None:
        shown.print(f"Last     tick {last['tick']}, events before {_day(last['end'])}")
        shown.print(f"Chain    {last['head']}")
    for mirror in found["mirrors"]:
        if mirror["lag"] is None:
            shown.print(f"Mirror   {mirror['name']} does not answer", style="bold")
        elif mirror["lag"]:
            shown.print(f"Mirror   {mirror['name']} lags {mirror['lag']} release(s) behind; `run` copies them")
    if found["complete"]:
        shown.print("Complete: all ticks that were paid for have been released.")
        return
    shown.print(f"Next     tick {found['next']['tick']} ends {_day(found['next']['end'])}")
    if found["due"]:
        over = _day(found["next"]["closes"])
        shown.print(f"Due      {found['due']} tick(s) are over, the first since {over}: {_next(found, config)}")


def _next(found: dict[str, Any], config: Path) -> str:
    """The command that goes on."""
    return f"{program()} run {config}{' --simulate' * found['simulated']}"


def _day(moment: str) -> str:
    """A moment in ISO 8601 as people write it."""
    from synthstream.schema.clock import written

    return written(datetime.fromisoformat(moment))


# -- for a monitor that reads them now and then ----------------------------------------------------------------------


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Gauge(NamedTuple):
    """One number, as it is now; of several with one name, the label tells which."""

    name: str
    help: str
    value: float
    label: tuple[str, str] | None = None


def openmetrics(config: StreamConfig, found: dict[str, Any]) -> str:
    """What is public of a stream, in the text format of OpenMetrics 1.0 (the draft of the IETF).

    Nothing in it depends on a row: no unread messages, no sizes of the state, no durations of work.

    Args:
        config: of the stream.
        found: what ``status --json`` prints.
    """
    lines, named = list[str](), set[str]()
    for gauge in sorted(_gauges(config, found), key=lambda gauge: gauge.name):  # what has one name stands together
        name = f"synthstream_{gauge.name}"
        if name not in named:
            named.add(name)
            lines += [f"# HELP {name} {gauge.help}", f"# TYPE {name} gauge"]
            lines += [f"# UNIT {name} seconds"] * name.endswith("_seconds")
        labels = [("stream", config.name), *([] if gauge.label is None else [gauge.label])]
        inside = ",".join(f'{key}="{text.translate(_ESCAPED)}"' for key, text in labels)
        lines.append(f"{name}{{{inside}}} {float(gauge.value):.15g}")
    return "\n".join([*lines, "# EOF", ""])


def _gauges(config: StreamConfig, found: dict[str, Any]) -> Iterator[Gauge]:
    from synthstream.ingest.logs import answers

    yield Gauge("ticks_released", "Ticks that have been released.", found["ticks"])
    yield Gauge("ticks_due", "Ticks that are over by the public clock and not released.", found["due"])
    if found["horizon"] is not None:
        yield Gauge("ticks_left", "Ticks that were paid for and not released.", found["horizon"] - found["ticks"])
    yield Gauge(
        "run_refused", "1 if run would refuse: state or key lost, an old copy, other settings.", found["refused"]
    )
    if found["last"] is not None:
        age = (REAL.now() - datetime.fromisoformat(found["last"]["end"])).total_seconds()
        yield Gauge("release_age_seconds", "Time since the newest released tick ended.", round(age, 3))
    for mirror in found["mirrors"]:
        which = ("mirror", mirror["name"])
        yield Gauge("mirror_answered", "1 if the mirror says what it holds.", mirror["lag"] is not None, which)
        if mirror["lag"] is not None:
            yield Gauge("mirror_lag_ticks", "Releases that the mirror lacks.", mirror["lag"], which)
    answered = answers(config)
    if answered is not None:
        yield Gauge("source_answered", "1 if the source can be read.", answered)
    if config.status.free is not None:
        folders = {"state": config.state} | ({} if config.sink is None else {"releases": config.sink.path})
        for name, folder in folders.items():
            there = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
            low = shutil.disk_usage(there).free < config.status.free
            yield Gauge("disk_low", "1 if less is free than [status] free says.", low, ("folder", name))
