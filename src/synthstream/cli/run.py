"""``synthstream run``."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import (
    AHEAD,
    ConfigPath,
    Simulate,
    Unchecked,
    bar,
    cautioned,
    console,
    no_core_dump,
    note,
    program,
    warn,
)
from synthstream.cli.follow import WAITS, bounded, follow_command, seconds_of
from synthstream.cli.runtime import REFUSED, fail, when_stopped
from synthstream.errors import ConfigError, MirrorError, SourceError, SynthstreamError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.release.release import Release
    from synthstream.stream.stream import Stream


Until = Annotated[
    str | None,
    typer.Option(help="Close ticks that ended before this time (ISO, in the clock's zone), in place of now."),
]
Seed = Annotated[int, typer.Option(help="Seed of the simulated noise; only with --simulate.")]
Follow = Annotated[
    bool, typer.Option("--follow", help="Go on: count what comes, and release each tick when it is over.")
]
Poll = Annotated[str | None, typer.Option(help="How often --follow looks for new events; or else: 5s.")]
NewFiles = Annotated[
    bool, typer.Option("--new-files", help="Files that seem to be moved, or another kind of source, hold new events.")
]
ThenText = Annotated[str | None, typer.Option("--then", help="Run this command after each release.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Open a stream that was never opened, without asking: that spends its budget.")
]


class Engine(StrEnum):
    """What counts rows of files."""

    LOCAL = "local"
    SPARK = "spark"


Counter = Annotated[Engine, typer.Option(help="What counts files: this program, or Spark's executors (extra: spark).")]


# What a shell would not hand to a command as a word.
_OF_SHELLS = frozenset(["|", "||", "&&", "&", "<", ">", ">>", "2>", "2>>", "&>", "2>&1"])


class Then:
    """A command of the operator's that no shell reads; it runs once for each release, in order, and delays none that
    fails.

    Args:
        text: as it was typed; ``None`` for no command.
        simulate: whether releases are simulated: they protect nobody, and must not leave here.
    """

    def __init__(self, text: str | None, *, simulate: bool) -> None:
        self.failed = False
        if text is not None and simulate:
            raise ConfigError("--then is for real releases; simulated ones are as secret as the data.")
        try:
            self._words = shlex.split(text or "")
        except ValueError:
            raise ConfigError(f"--then {text}: a quotation mark is not closed.") from None
        if text is not None and not self._words:
            raise ConfigError("--then: name a command, as in --then 'rsync -a releases/ www:/srv/releases'.")
        if sign := next((word for word in self._words if word in _OF_SHELLS and f" {word} " in f"{text} "), None):
            raise ConfigError(f"--then {text}: no shell reads it, so {sign} does nothing: name a script that says it.")

    def __bool__(self) -> bool:
        return bool(self._words)

    def after(self, stream: Stream, release: Release) -> None:
        """Run it. It finds in its environment which release it is."""
        if not self._words:
            return
        config = stream.config
        told = {
            "SYNTHSTREAM_NAME": config.name,
            "SYNTHSTREAM_TICK": str(release.tick),
            "SYNTHSTREAM_END": release.end.isoformat(),
            "SYNTHSTREAM_RELEASE": "" if config.sink is None else str(config.sink.path / f"{release.tick:06d}"),
        }
        note(f"running {self._words[0]}")
        try:
            done = subprocess.run(  # noqa: S603 - the command is the operator's own, and no shell reads it
                self._words, stdin=subprocess.DEVNULL, env=os.environ | told, cwd=config.base
            )
        except OSError as error:
            self._failed(f"{error.strerror}")
        else:
            if done.returncode:
                self._failed(f"status {done.returncode}")

    def _failed(self, why: str) -> None:
        self.failed = True
        fail(f"--then {self._words[0]}: {why}. The release is published; further ones are, too.")


def run_command(
    config: ConfigPath,
    until: Until = None,
    simulate: Simulate = False,
    engine: Counter = Engine.LOCAL,
    seed: Seed = 0,
    follow: Follow = False,
    poll: Poll = None,
    new_files: NewFiles = False,
    unchecked: Unchecked = False,
    then: ThenText = None,
    yes: Yes = False,
) -> None:
    """Count new files or rows, and publish one release for every tick that has ended. Resumes where it stopped.

    The first time it asks: opening a stream spends its budget for good. Where nobody can answer it needs --yes.
    Ctrl-C is safe at any moment; the same command goes on.
    If nothing is due, that is no error: say it from cron as often as you like.

    Examples:
    synthstream run stream.toml --yes
    synthstream run -q stream.toml
    synthstream run stream.toml --follow --poll 30s
    synthstream run stream.toml --then "rsync -a releases/ www:/srv/releases"
    synthstream run stream.toml --simulate --seed 1
    """
    stream: Stream | None = None
    when_stopped(lambda: _stopped(stream, 0 if stream is None else before))
    from synthstream.cli.asking import ask_first
    from synthstream.stream import stream as streams

    _refuse(simulate=simulate, seed=seed, engine=engine, follow=follow, poll=poll)
    moment, command = moment_of(until), Then(then, simulate=simulate)
    shown = console()
    no_core_dump()
    asked = not simulate and ask_first(shown, config, until=moment, yes=yes, follow=follow)
    note(f"opening {config}")
    with streams.open(config, simulate=seed if simulate else None, unchecked=unchecked) as opened:
        stream, before = opened, opened.closed - opened.new
        for mirror in stream.status()["unchecked"]:
            words = "could not be asked what it holds; manifests say so."
            shown.print(f"Warning: [[mirror]] {mirror} {words}", style="bold")
        if simulate:
            warn(shown)
        failed, after = None, partial(_after, shown, stream, command, set())
        if follow:
            _no_file(shown, stream)
            if new_files:
                stream.ingest(new_files=True, before=stream.opened)
            follow_command(stream, shown, until=moment, poll=seconds_of(poll), released=after)
        else:
            upto = stream.closed + stream.due(until=moment, at=stream.opened)  # opening and counting take their time
            if not (files := _counted(stream, engine, new_files=new_files)):
                _no_file(shown, stream)
            _announced(shown, stream, due := max(0, upto - stream.closed), asked=asked)
            failed = _released(stream, due, moment, after if command else None)
            _summary(shown, stream, config, files=files, simulate=simulate, until=moment)
            _described(stream, shown, set())
        _ended(stream, failed, command)


def _refuse(*, simulate: bool, seed: int, engine: Engine, follow: bool, poll: str | None) -> None:
    """End here if options were given that do not go together."""
    if seed and not simulate:
        raise ConfigError("--seed is for --simulate only: real noise has no seed.")
    if poll is not None and not follow:
        raise ConfigError("--poll is for --follow only: without it, the source is looked at once.")
    if follow and engine is not Engine.LOCAL:
        raise ConfigError("--follow is for the local engine; with Spark, use synthstream.spark.attach.")


def _no_file(shown: Console, stream: Stream) -> None:
    """Whether nothing fits the pattern of a source. It is not refused: a file may be there, or gone, for one row."""
    from synthstream.ingest.counting import files_of

    source = files_of(stream.config)
    what = "Ticks that are over are released all the same, without events: check the pattern, and capitals in it"
    with suppress(SourceError):  # told where files are counted: mirrors get first what they lack
        if source is not None and not source.files():
            shown.print(f"Warning: source.path = {source.path}: no file fits this pattern. {what}.", style="bold")


def _announced(shown: Console, stream: Stream, due: int, *, asked: bool) -> None:
    """What ought to be known before anything is published, and how much will be; who was asked knows it."""
    from synthstream.forecast.warnings import weak_budget

    if stream.closed == 0:
        cautioned(shown, [] if asked else weak_budget(stream.config))
    if stream.config.log is not None and stream.waits:
        shown.print(f"Warning: {stream.config.log.name}: {WAITS}", style="bold")
    if due > 1 and not asked:
        end = stream.config.clock.begins(stream.closed + due)
        shown.print(f"{due + stream.new} ticks are over, the last at {end}: one release for each.")


def _counted(stream: Stream, engine: Engine, *, new_files: bool) -> int:
    if engine is Engine.LOCAL:
        return stream.ingest(progress=partial(bar, doing="reading"), new_files=new_files)
    from synthstream import spark

    return spark.ingest(stream, new_files=new_files)


def _after(shown: Console, stream: Stream, command: Then, told: set[str], release: Release) -> None:
    """What follows a release. No failure keeps the next one waiting."""
    with suppress(SystemExit):  # it was told
        _described(stream, shown, told)
    command.after(stream, release)


def _released(
    stream: Stream, due: int, until: datetime | None, after: Callable[[Release], None] | None
) -> MirrorError | None:
    """Close every tick that is due; what a mirror said, if it failed."""
    from synthstream.publish.catalogue import describe
    from synthstream.stream.following import released

    steps, first = bar(range(stream.closed, stream.closed + due), "closing tick"), stream.closed
    try:
        for tick, release in zip(steps, released(stream, due, until=until), strict=True):
            if after is not None:  # it describes each release
                after(release)
            elif tick == first and due > 1:  # whoever stops the run leaves settings for readers
                with suppress(SynthstreamError):  # what is wrong with them is told when the run ends
                    describe(stream.config)
    except MirrorError as error:
        return error
    return None


def _ended(stream: Stream, failed: MirrorError | None, command: Then) -> None:
    """Raise what a mirror said, and what is wrong with files; told last, when all that is due is published. A command
    that failed was told when it did.
    """
    from synthstream.stream.following import tell

    if failed is None and not command.failed:
        tell(stream)
        return
    for words in stream.findings.values():
        fail(words)
    if failed is not None:
        raise failed
    raise SystemExit(REFUSED)


def _stopped(stream: Stream | None, before: int) -> str:
    """How many releases came to those before, by what is published: Ctrl-C may come before the stream counts one."""
    new = 0
    if stream is not None:  # otherwise Ctrl-C may have come while modules were loaded, and no import works any more
        from synthstream.publish.outlets import sink_of

        last = sink_of(stream.config).last()
        new = (0 if last is None else last.tick + 1) - before
    releases = "1 new release is" if new == 1 else f"{new or 'No'} new releases are"
    return f"{releases} published. Run the same command again to go on; nothing counts twice."


def _described(stream: Stream, shown: Console, told: set[str]) -> None:
    """Bring what portals read up to date, and say what stands out in the releases: in full where it is new.

    The releases are out: a failure here takes nothing back.
    """
    if stream.config.sink is None or not stream.closed:
        return
    from synthstream.forecast.noticing import noticed

    with suppress(Exception):  # nothing that is said of releases may stop the next one
        cautions = [one for one in noticed(stream.config, new=stream.new) if one.about not in told]
        before = {one.about for one in noticed(stream.config, back=stream.new)} if cautions else set[str]()
        cautioned(shown, [one for one in cautions if one.about not in before])
        if again := [one.about for one in cautions if one.about in before]:
            about = ", ".join(dict.fromkeys(again))
            shown.print(f"As in earlier releases: {about}. `synthstream status` says it in full.")
        told |= {caution.about for caution in cautions}
    from synthstream.publish.catalogue import describe

    note("describing the releases for portals")
    try:
        describe(stream.config)
    except SynthstreamError as error:
        raise SystemExit(fail(f"{error} Releases are published; their catalogue is not up to date.")) from None


def _summary(
    console: Console, stream: Stream, path: Path, *, files: int, simulate: bool, until: datetime | None
) -> None:
    from synthstream.privacy import stated

    loaded, closed, new = stream.config, stream.closed, stream.new
    spent, horizon = stream.status()["spent"][-1], loaded.clock.horizon
    left = f", {len(stream.findings)} could not be" if stream.findings else ""
    counted = f"{files} new file(s) counted{left}" if loaded.log is None else f"{loaded.log.name} was read"
    paid = f" of {horizon} paid for" if horizon else ""
    console.print(f"{counted}, {new} new release(s); {closed} in all{paid}.")
    if not simulate and closed == new:  # the budget was spent now, not by an earlier run
        console.print(
            f"Spent: epsilon = {stated(spent['epsilon'])}, delta = {stated(spent['delta'])}, once, for "
            + ("all ticks for ever." if horizon is None else f"all {horizon} ticks. Nothing more is charged later.")
        )
    if horizon is not None and closed >= horizon:
        words = "The horizon is reached: this stream is complete, and what comes from now on is in no release."
        console.print(f"{words} `synthstream succeed` goes on with more.")
    elif new == 0:
        told = bounded(loaded.clock, closed, until)
        console.print(f"Nothing was due: tick {closed} {loaded.clock.ending(closed)}.{told}")
        if closed and loaded.clock.boundary(closed) > stream.opened:
            typer.echo(f"Warning: {AHEAD.format(loaded.clock.begins(closed))}", err=True)  # with -q, too
    if loaded.sink is not None and closed:
        switch = " --simulate" if simulate else ""
        console.print(f"Newest release: {loaded.sink.path}/{closed - 1:06d}")
        console.print(f"Next: {program()} sample {path} -n 5{switch}\n      {program()} status {path}{switch}")


def moment_of(text: str | None) -> datetime | None:
    """A moment from the command line; without a zone it is on the clock's wall."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--until {text}: not an ISO date or time. Example: --until 2016-01-02") from None
