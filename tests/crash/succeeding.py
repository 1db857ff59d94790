"""Kills a stream at the side effects of going on with other settings: ``python -m tests.crash.succeeding FOLDER STEP``.

Before each effect and after it, of which every ``STEP``-th moment.

Every step is a process of its own, forked from this one, which uses no frames and so has no threads.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from synthstream import Stream, StreamConfig
from synthstream.environment import Env
from synthstream.errors import ConfigError, StateMismatch
from synthstream.release.tables import TableRelease
from synthstream.stream.succession import succeed
from synthstream.stream.verification import verify
from tests.crash.harness import Observer, forked, loaded, warm
from tests.support.environments import Recording, When, killed
from tests.support.halves import exact
from tests.support.successors import NEW, events, half, written


def prepare(folder: Path) -> None:
    """An old stream that has released up to the cut."""
    folder.mkdir()
    half(folder, events())
    written(folder, NEW, "new.toml")


def going_on(folder: Path, env: Env) -> None:
    """End the old stream, and begin the new one."""
    succeed(written(folder), written(folder, NEW, "new.toml"), gates=exact, env=env)


def scout(folder: Path) -> tuple[list[str], list[str], list[tuple[str, str, Any]]]:
    """What an uninterrupted one does: its side effects, imports and compiled functions."""
    env = Recording()
    going_on(folder, env)
    complete(folder)
    return env.names, *loaded()


def opens(config: StreamConfig) -> bool:
    """Whether a stream goes on with a configuration."""
    try:
        with Stream(config, gates=exact):
            return True
    except (StateMismatch, ConfigError):
        return False


def complete(folder: Path) -> dict[str, Any]:
    """Which of both is open; then all releases, and what they count."""
    seen, old, new = Observer(), written(folder), written(folder, NEW, "new.toml")
    seen.look(folder)
    one = [opens(old), opens(new)]
    if one[0]:
        succeed(old, new, gates=exact)
    ticks = []
    with Stream(new, gates=exact) as stream:
        for release in stream.run():
            ticks.append(release.tick)
            seen.look(folder)
        last = stream.last
    total = round(float(last.table([])["measured"][0])) if isinstance(last, TableRelease) else -1
    found = verify(new).findings
    return {"open": one, "ticks": ticks, "redrawn": sorted(seen.redrawn), "total": total, "wrong": found}


def main(place: Path, step: int) -> None:
    """Print a line for each kill."""
    forked(partial(prepare, place / "begun"))
    shutil.copytree(place / "begun", place / "scout")
    _, (names, modules, compiled) = forked(partial(scout, place / "scout"))
    warm(modules, compiled)
    sides: tuple[When, ...] = ("before", "after")
    effects = [(name, names[:i].count(name) + 1) for i, name in enumerate(names)]
    for (name, number), when in list(product(effects, sides))[::step]:
        folder = place / "killed"
        shutil.copytree(place / "begun", folder)
        status, _ = forked(partial(going_on, folder, killed(at=name, number=number, when=when)))
        _, result = forked(partial(complete, folder))
        print(json.dumps([f"{when} {name} {number}", status, result]), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
