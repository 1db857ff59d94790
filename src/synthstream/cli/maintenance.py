"""Commands that look after a stream: verify, backup, recover. See :mod:`synthstream.cli.app`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.asking import sure
from synthstream.cli.common import AsJson, ConfigPath, Simulate, Unchecked, bar, no_core_dump, note, say
from synthstream.cli.runtime import named, when_stopped
from synthstream.errors import ConfigError

if TYPE_CHECKING:
    from synthstream.stream.verification import Verified


def verify_command(
    config: ConfigPath,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Also build every release again, and compare all bytes. Slow.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check chain, ledger, claims and every published file; say what is wrong, and where. Changes nothing.

    Releases can be checked without the state, as their readers do: name their folder, or that of a site,
    whose latest/ is checked too.
    The exit status is 1 if anything is wrong, and 2 if there is nothing to check.

    Examples:
    synthstream verify stream.toml
    synthstream verify stream.toml --rebuild --json
    synthstream verify copy-of-the-site
    """
    from synthstream.config.config import load
    from synthstream.publish.addresses import located
    from synthstream.state.folder import is_state
    from synthstream.stream.verification import beside, verify

    if config.parts[:1] in (("http:",), ("https:",)):
        raise ConfigError("verify takes a stream.toml or a folder, no address: fetch the releases first.")
    loaded = located(config)[0] if config.is_dir() else load(config)
    here, where = is_state(loaded.state), "" if config.is_dir() else f" in {loaded.state}"
    found = verify(loaded, rebuild=rebuild, progress=partial(bar, doing="checking release"))
    if config.is_dir():
        found = found._replace(findings=[*found.findings, *beside(loaded, config)])
    if not here and not found.releases and not found.findings:
        raise ConfigError(f"nothing to verify: there is no state{where}, and there are no releases.")
    if as_json:
        findings = [finding._asdict() for finding in found.findings]
        typer.echo(json.dumps({**found._asdict(), "state": here, "findings": findings}))
    else:
        _print_verified(found, None if here else where)
    if found.findings:
        raise typer.Exit(1)


def _print_verified(found: Verified, absent: str | None) -> None:
    # What is wrong is printed also with --quiet.
    for finding in found.findings:
        typer.echo(f"{finding.where}: {named(finding.what)}")
    state = f"{found.ticks} measured tick(s)" if absent is None else f"no state{absent}, only releases were checked"
    say(
        f"{state}, {found.releases} release(s): "
        + (f"{len(found.findings)} thing(s) wrong." if found.findings else "all as it should be.")
    )
    if absent is None and any(finding.where.isdecimal() for finding in found.findings):
        words = "`synthstream recover stream.toml --republish` builds releases again that are gone."
        say(named(f"{words} Of one that is not what was published move the folder away first."))
    if found.unchecked:
        say(
            f"{len(found.unchecked)} release(s), the first at tick {found.unchecked[0]}, were drawn while a mirror "
            "could not be asked what it holds. Their manifests name it."
        )


def backup_command(
    config: ConfigPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder that does not exist yet.")],
) -> None:
    """Copy a stream, also while it runs: public/ may be copied anywhere, private/ is as secret as the data.

    Example: synthstream backup stream.toml -o backup-2026-11-21
    """
    from synthstream.config.config import load
    from synthstream.stream.backups import backup

    no_core_dump()
    loaded, there = load(config), output.exists()
    when_stopped(
        lambda: (
            f"{output} is an incomplete backup: delete it." if output.exists() and not there else "Nothing was copied."
        )
    )
    note(f"copying {loaded.state}")
    backup(loaded, output, progress=partial(bar, doing="copying tick"))
    say(f"{output}/public holds what was measured and spent, not the releases; copy it anywhere.")
    say(
        f"{output}/private is as secret as the data. To restore it, put it in the place of {loaded.state} and say\n"
        f"  synthstream recover {config} --adopt"
    )
    if loaded.sink is None or loaded.privacy.unit.of_persons or not loaded.keeps_times:
        say("This stream goes on only from a backup that is as new as its releases: make one after every run.")


def recover_command(
    config: ConfigPath,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on from what was published; the private state is lost or old.")
    ] = False,
    republish: Annotated[
        bool, typer.Option("--republish", help="Build lost releases again from the state, and publish them.")
    ] = False,
    unchecked: Unchecked = False,
) -> None:
    """Go on after a loss, without ever drawing noise twice for a published tick.

    --adopt: the state is lost or an old copy, the releases are there.
    A new segment begins on top of the newest release; rows dated before it
    never count again. --republish: the state is there, releases are missing.

    Examples:
    synthstream recover stream.toml --adopt
    synthstream recover stream.toml --republish
    """
    from synthstream.config.config import load
    from synthstream.stream.recovery import adopt as adopt_published
    from synthstream.stream.recovery import republish as republish_lost

    no_core_dump()
    if adopt == republish:
        raise ConfigError("say --adopt or --republish (see --help).")
    loaded = load(config)
    when_stopped(lambda: "Nothing was lost, and no noise was drawn. Run the same command again to go on.")
    if republish:
        building = partial(bar, doing="building release")
        say(f"{republish_lost(loaded, progress=building, unchecked=unchecked)} release(s) put back.")
        return
    found = adopt_published(loaded, unchecked=unchecked, progress=partial(bar, doing="reading release"))
    if not found.segment:
        say(f"The state is as new as the releases, and was taken as it is. Next: synthstream run {config}")
        return
    start = loaded.clock.begins(found.start)
    say(
        f"A new segment begins with tick {found.start}. Rows dated before {start} never count again, whether they "
        "counted before or not; rows without a readable time no longer count."
    )
    if found.aside is not None:
        say(f"The old state is in {found.aside}; it is as secret as ever. Delete it when you need it no more.")
    say(f"Next: synthstream run {config}")


def succeed_command(
    config: ConfigPath,
    new: Annotated[Path, typer.Argument(help="The successor's stream.toml; its [after] names the first one.")],
    read_again: Annotated[
        bool, typer.Option("--read-again", help="Forget what waits, and read the source again from its beginning.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Go on without a question: what the successor spends is spent for good.")
    ] = False,
    simulate: Simulate = False,
    seed: Annotated[int, typer.Option(help="Seed of the simulated run; only with --simulate.")] = 0,
) -> None:
    """Go on with other settings: end a stream after its newest release, and let its successor begin there.

    It asks first, as its budget is spent for good; where nobody can answer, say --yes. What all of it promises is said
    before by `synthstream plan new.toml --after stream.toml`. No noise is drawn for the successor.

    Example: synthstream succeed stream.toml new.toml
    """
    from synthstream.config.config import load
    from synthstream.privacy import stated
    from synthstream.publish.outlets import simulated
    from synthstream.stream.succession import changes_of, planned, succeed
    from synthstream.synthesizers.succession import promise_of, waits_as_other

    no_core_dump()
    old, loaded = load(config), load(new)
    when_stopped(lambda: "Either stream is whole: say the same command again.")
    # What is wrong with it is said before anything is asked.
    successor = planned(simulated(old), simulated(loaded)) if simulate else planned(old, loaded)
    if not read_again and (words := waits_as_other(successor)):
        say(words)
    if not (yes or simulate):
        changes = changes_of(successor)
        none = f"nothing that is counted or published. To go on as it is, keep it: synthstream run {config}"
        say(f"What changes: {'; '.join(changes) or none}")
        say(promise_of(successor).facts["words"])
        say(
            "Running counts keep the noise of before. How much, and whether larger tables go on, says: "
            f"synthstream plan {new} --after {config}"
        )
        spent = stated(loaded.privacy.budget.epsilon)
        sure(f"{old.name} ends, and {new} spends epsilon = {spent} of its own, for good")
    found = succeed(old, loaded, read_again=read_again, simulate=seed if simulate else None)
    cut = found.cuts[-1]["tick"]
    say(
        f"{found.name} goes on with {new} from tick {cut}, {found.clock.begins(cut)}. Rows dated before, "
        "and rows without a readable time, no longer count."
    )
    if read_again and found.op is not None:
        say("Requests to forget with rows dated from then on: say them again, under the same ids; they count once.")
    say(promise_of(found).facts["words"])
    say(f"Keep {config}: {new} names it. Next: synthstream run {new}")
