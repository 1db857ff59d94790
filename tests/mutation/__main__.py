"""``python -m tests.mutation [MODULE ...] [--sample N]``: try all mutants, and say which no test tells.

Ends with status 1 if one survives whose reason does not stand in ``survivors.toml``, or if a reason is out of date.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.mutation.modules import MODULES
from tests.mutation.mutants import SOURCE, mutants_of
from tests.mutation.running import Fate, fates, preload, trial

SURVIVORS = Path(__file__).parent / "survivors.toml"


class Survivor(NamedTuple):
    """A mutant that no test can tell: the line that it changes, what it becomes, and in which module."""

    module: str
    line: str
    becomes: str


def explained() -> dict[Survivor, str]:
    """The reason of every known survivor."""
    entries = tomllib.loads(SURVIVORS.read_text()).get("survivor", [])
    return {Survivor(e["module"], e["line"], e["becomes"]): e["reason"] for e in entries}


def tests_of(module: str) -> tuple[str, ...]:
    """Tests that must tell mutants of a module: its own examples first."""
    return (str(SOURCE / module), *MODULES[module])


def lines_of(module: str) -> set[str]:
    """The lines of a module, as reasons quote them."""
    return {line.strip() for line in (SOURCE / module).read_text().splitlines()}


def tried(module: str, *, sample: int | None, jobs: int) -> list[Fate]:
    """The fates of the mutants of a module, told while they are tried."""
    mutants, tests = mutants_of(module), tests_of(module)
    if sample is not None and sample < len(mutants):
        mutants = random.Random(0).sample(mutants, sample)  # noqa: S311 - not for privacy
    passed, seconds = trial(tests)
    if not passed:
        sys.exit(f"{module}: its tests fail without any mutant")
    limit, found, begun = 5 + 3 * seconds, list[Fate](), time.monotonic()
    for fate in fates([(mutant, tests, limit) for mutant in mutants], jobs=jobs):
        found.append(fate)
        if not len(found) % 50:
            print(f"{module}: {len(found)} of {len(mutants)}", flush=True)
        if not fate.killed:
            print(f"{module}: survived {fate.mutant.operator}\n  - {fate.line}\n  + {fate.becomes}", flush=True)
    killed = sum(fate.killed for fate in found)
    print(f"{module}: {len(found)} tried, {killed} killed, {time.monotonic() - begun:.0f} s", flush=True)
    return found


def main() -> int:
    """Try the mutants of some modules, or of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="below src/synthstream; all if none is named")
    parser.add_argument("--sample", type=int, help="try so many of each module, always the same ones")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    preload()
    tried_modules = arguments.modules or list(MODULES)
    found = [fate for module in tried_modules for fate in tried(module, sample=arguments.sample, jobs=arguments.jobs)]
    known = explained()
    left = {Survivor(f.mutant.module, f.line, f.becomes) for f in found if not f.killed}
    killed = {Survivor(f.mutant.module, f.line, f.becomes) for f in found if f.killed} - left
    unknown, stale = left - known.keys(), killed & known.keys()
    gone = {one for one in known if one.module in tried_modules and one.line not in lines_of(one.module)}
    survivors = sum(not fate.killed for fate in found)
    print(
        f"{len(found)} mutants tried, {len(found) - survivors} killed, {survivors} survived: "
        f"{len(left & known.keys())} explained, {len(unknown)} not; {len(stale)} explained that are killed"
    )
    for survivor in sorted(unknown):
        print(f'\n[[survivor]]\nmodule = "{survivor.module}"\nline = {survivor.line!r}\nbecomes = {survivor.becomes!r}')
    for survivor in sorted(stale):
        print(f"killed, though explained: {survivor.module}: {survivor.becomes}")
    for survivor in sorted(gone):
        print(f"explained, but the line is gone: {survivor.module}: {survivor.line}")
    return 1 if unknown or stale or gone else 0


if __name__ == "__main__":
    sys.exit(main())
