"""Streams that are killed again and again until they are complete, and an observer who remembers all that was visible.

Every attempt is a process of its own, forked from this one, which has done the slow imports, and killed by SIGKILL: by
itself at a named side effect, or by this one at a random moment. This process never opens a stream: it looks at the
files like anyone else.

    python -m tests.crash.harness --kills 1000
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import gc
import hashlib
import importlib
import json
import math
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from synthstream.environment import Env
from synthstream.stream.stream import Stream
from tests.crash import controls, power, world
from tests.support.environments import Interrupting, Recording, When, failing, killed

Observed = dict[str, str]


@dataclass
class Result:
    """What happened to the streams of one run."""

    kills: int = 0
    faults: int = 0
    streams: int = 0
    lost: int = 0
    duplicated: int = 0
    redrawn: int = 0
    repairs: int = 0
    unlike: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    failpoints: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)

    @property
    def events(self) -> int:
        """Kills, or failures of the disk."""
        return self.kills + self.faults

    def line(self) -> str:
        """The result in one line."""
        what = f"faults {self.faults:,}" if self.faults else f"kills {self.kills:,}"
        return (
            f"{what}, lost events {self.lost}, duplicated events {self.duplicated}, redrawn releases "
            f"{self.redrawn}, manual repairs {self.repairs} ({self.streams} streams, {len(self.failpoints)} "
            f"failpoints, {self.events / max(self.seconds, 1e-9):.1f} a second, "
            f"{self.events / max(self.cpu, 1e-9):.1f} a second of CPU)"
        )


class Observer:
    """Remembers, for each tick, everything that was ever visible."""

    def __init__(self) -> None:
        self.seen: Observed = {}
        self.redrawn: set[int] = set()

    def look(self, folder: Path) -> None:
        """Look once; a tick of which anything is not what it was has been drawn again."""
        for tick, name, content in self._visible(folder):
            if self.seen.setdefault(f"{tick}/{name}", content) != content:
                self.redrawn.add(tick)

    def _visible(self, folder: Path) -> Iterator[tuple[int, str, str]]:
        anchor = folder / "state.anchor.json"
        if anchor.exists():
            stands = json.loads(anchor.read_text())
            yield stands["tick"], "head", stands["head"][:16]
        for place in sorted((folder / "releases").glob("*[0-9a-f]")):
            if place.name.startswith(".writing-"):  # not published, and yet visible to who looks for it
                yield from _unfinished(place)
                continue
            for path in place.iterdir():
                content = path.read_bytes()
                yield int(place.name), path.name, hashlib.sha256(content).hexdigest()
                if path.name == "manifest.json" and content:
                    yield int(place.name), "head", json.loads(content)["chain"]["head"][:16]


def _unfinished(place: Path) -> Iterator[tuple[int, str, str]]:
    """The head of a release that is being written, if its manifest is there."""
    try:
        manifest = json.loads((place / "manifest.json").read_bytes())
    except (FileNotFoundError, ValueError):  # not yet, or not yet whole
        return
    yield manifest["tick"], "head", manifest["chain"]["head"][:16]


def forked(work: Callable[[], Any], *, patience: float | None = None) -> tuple[int, Any]:
    """Run ``work`` in a child. Its status as of ``waitpid``, and what it returned if it lived.

    Args:
        work: must return something that can be pickled.
        patience: kill the child after this many seconds.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        faulthandler.dump_traceback_later(600, exit=True)  # only for a child that hangs
        try:
            result = (0, work())
        except BaseException as error:
            result = (1, f"{type(error).__module__}.{type(error).__name__}: {error}")
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(result[0])
    os.close(writer)
    if patience is not None:
        time.sleep(patience)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    return status, pickle.loads(answer)[1] if answer else None  # noqa: S301 - written by our own child


def scout(folder: Path, kind: str) -> tuple[list[str], list[str], list[tuple[str, str, Any]], Observed]:
    """What an uninterrupted stream without noise does: its effects, imports, compiled functions, and releases."""
    env = Recording()
    world.prepare(folder, kind)
    world.drive(folder, kind, exact=True, env=env, ticks=world.TICKS)
    observer = Observer()
    observer.look(folder)
    return env.names, *loaded(), observer.seen


def loaded() -> tuple[list[str], list[tuple[str, str, Any]]]:
    """Imports and compiled functions of this process."""
    compiled = [
        (name, key, list(value.signatures))
        for name, module in list(sys.modules.items())
        if name.startswith("synthstream")
        for key, value in vars(module).items()
        if hasattr(value, "signatures") and hasattr(value, "compile") and value.signatures
    ]
    return list(sys.modules), compiled


def warm(modules: list[str], compiled: list[tuple[str, str, Any]]) -> None:
    """Import and load in this process what every child would have to; no thread is started."""
    for name in modules:
        if name.split(".")[0] in ("synthstream", "polars", "pyarrow", "numpy", "scipy", "encodings"):
            importlib.import_module(name)
    for name, key, signatures in compiled:
        for signature in signatures:
            getattr(importlib.import_module(name), key).compile(signature)


def totals(folder: Path, kind: str) -> tuple[list[int], list[int]]:
    """Numbers of events that the releases of a stream without noise speak of, and those that came in.

    Of a stream without a sink only the last release is there.
    """
    if kind == "anchor":
        with Stream(world.config_of(folder, kind), gates=world.gates(True)) as stream:
            release = stream.last
            return [] if release is None else [_total(release.tables)], world.totals()[-1:]
    places = sorted((folder / "releases").glob("[0-9]*"))
    return [_total(pl.read_parquet(place / "tables.parquet")) for place in places], world.totals()


def _total(tables: pl.DataFrame) -> int:
    """Number of events in all: of tables what was measured, as rows follow it no closer than its noise would allow."""
    return round(float(tables["measured" if "since" in tables.columns else "count"][0]))


def _cpu() -> float:
    """Seconds that this process and its children have computed."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _ctrl_c() -> None:
    raise KeyboardInterrupt


class Harness:
    """Interrupts streams of several kinds until there were enough kills.

    Args:
        folder: streams are made here, and removed when they are complete.
        seed: chooses where to interrupt, nothing else.
        at_random: share of the attempts that are killed at a random moment rather than at a side effect.
        stream: the class of the streams; a control has another one.
        aftermath: called with the folder after each kill, before anyone opens it again: takes the power away.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        at_random: float = 0.25,
        control: str | None = None,
        aftermath: Callable[[Path], None] | None = None,
        before: Callable[[Path], Callable[[], None]] | None = None,
        kinds: tuple[str, ...] = tuple(world.KINDS),
        faults: bool = False,
    ) -> None:
        self._folder, self._chance, self._kinds = folder, random.Random(seed), kinds  # noqa: S311 - not noise
        self._faults = faults
        self._at_random, self._control, self._aftermath, self._before = at_random, control, aftermath, before
        self.names: dict[str, list[str]] = {}
        self._twins: dict[str, Observed] = {}
        for kind in kinds:
            status, found = forked(partial(scout, folder / "scout" / kind, kind))
            if status:
                raise RuntimeError(f"the scout of {kind} failed: {found}")
            names, modules, compiled, self._twins[kind] = found
            self.names[kind] = sorted(set(names))
            warm(modules, compiled)
        self.result = Result()

    def run(self, kills: int, *, seconds: float = math.inf) -> Result:
        """Streams of every kind in turn, with real noise and with none, until there were enough kills, or so long."""
        self._until = time.perf_counter() + seconds
        gc.collect()
        gc.freeze()  # a child copies every page on which it counts references
        began, used = time.perf_counter(), _cpu()
        while not self._enough(kills):
            for kind in self._kinds:
                for exact in (False, True):
                    if not self._enough(kills):
                        self._one_stream(kind, exact, kills)
        self.result.seconds, self.result.cpu = time.perf_counter() - began, _cpu() - used
        return self.result

    def _enough(self, kills: int) -> bool:
        return self.result.events >= kills or time.perf_counter() > self._until

    def _one_stream(self, kind: str, exact: bool, kills: int) -> None:
        folder = self._folder / f"{kind}-{self.result.streams}"
        (folder / "source").mkdir(parents=True)
        # Frames are for children alone: the threads that they start would not be there after a fork.
        shutil.copytree(self._folder / "scout" / kind / "incoming", folder / "incoming")
        observer, refused, complete = Observer(), 0, False
        while not complete and refused < 3:
            calm = self._enough(kills)
            attempt = self._broken if self._faults and not calm else self._killed
            work, patience = attempt(folder, kind, exact, calm)
            status, answer = forked(work, patience=patience)
            observer.look(folder)
            if os.WIFSIGNALED(status):
                self.result.kills += 1
            elif status:
                refused += 1
                self.result.errors.append(str(answer))
                controls.repair(self._control, folder)
            else:
                complete, told = answer
                self.result.faults += bool(told)
                self.result.told.update(error.replace(str(folder), "FOLDER") for error in told)
            if self._aftermath and (os.WIFSIGNALED(status) or not status):
                self._aftermath(folder)
                observer.look(folder)
        self.result.streams += 1
        self.result.redrawn += len(observer.redrawn)
        self.result.repairs += refused
        if complete:
            self._account(folder, kind, exact, observer)
        shutil.rmtree(folder)

    def _killed(self, folder: Path, kind: str, exact: bool, calm: bool) -> tuple[Callable[[], Any], float | None]:
        """A process that will be killed, and after how many seconds."""
        env, ticks, patience = self._fate(kind, calm=calm)
        arm = self._before(folder) if self._before else None

        def work() -> tuple[bool, list[str]]:
            if arm is not None:
                arm()
            return controls.drive(self._control, folder, kind, exact=exact, env=env, ticks=ticks), []

        return work, patience

    def _broken(self, folder: Path, kind: str, exact: bool, calm: bool) -> tuple[Callable[[], Any], float | None]:
        """A process in which something fails: a side effect, or a call below it; then the world is mended."""
        env, arm, mend = Env(), None, None
        error = self._chance.choice((errno.ENOSPC, errno.EIO))
        how = self._chance.choice(("effect", "effect", "call", "call", "interrupt"))
        if how == "call" and power.loaded():
            nth, half = self._chance.randint(1, 150), self._chance.random() < 0.5
            arm, mend = power.breaks(folder, nth=nth, error=error, half=half), power.mended
            self.result.failpoints[f"{errno.errorcode[error]} at a call{', half written' * half}"] += 1
        else:
            name, when, number = self._chance.choice(self.names[kind]), self._when(), self._chance.randint(1, 3)
            what = "Ctrl-C" if how == "interrupt" else errno.errorcode[error]
            self.result.failpoints[f"{what} {when} {name}"] += 1
            env = (
                Interrupting(_ctrl_c, at=name, number=number, when=when)
                if how == "interrupt"
                else failing(error, at=name, number=number, when=when)
            )
        stubborn, ticks = self._chance.random() < 0.5, self._chance.randint(1, 6)

        def work() -> tuple[bool, list[str]]:
            if arm is not None:
                arm()
            return world.persist(
                folder, kind, exact=exact, env=env, ticks=ticks, stubborn=stubborn, mend=mend or (lambda: None)
            )

        return work, None

    def _fate(self, kind: str, *, calm: bool) -> tuple[Env, int, float | None]:
        """How the next attempt ends: world, ticks it may close, seconds it may live."""
        if calm:
            return Env(), world.TICKS, None
        ticks = self._chance.randint(1, 3)
        if self._chance.random() < self._at_random:
            self.result.failpoints["at a random moment"] += 1
            return Env(), ticks, self._chance.uniform(0.0, 0.02 + 0.012 * ticks)
        name, when = self._chance.choice(self._rare(kind))
        self.result.failpoints[f"{when} {name}"] += 1
        return killed(at=name, number=self._chance.choice((1, 1, 2)), when=when), ticks, None

    def _rare(self, kind: str) -> list[tuple[str, When]]:
        """Moments of a kind of stream; those that had none of the kills so far, if there are such."""
        moments: list[tuple[str, When]] = [(name, when) for name in self.names[kind] for when in ("before", "after")]
        return [(name, when) for name, when in moments if not self.result.failpoints[f"{when} {name}"]] or moments

    def _when(self) -> When:
        return "before" if self._chance.random() < 0.5 else "after"

    def _account(self, folder: Path, kind: str, exact: bool, observer: Observer) -> None:
        """Compare a complete stream with what came in, and with its uninterrupted twin."""
        if not exact:
            if kind != "anchor":
                missing = world.TICKS - len(list((folder / "releases").glob("[0-9]*/manifest.json")))
                self.result.lost += missing
            return
        found, truth = forked(lambda: totals(folder, kind))[1]
        if len(found) != len(truth):
            raise RuntimeError(f"{len(found)} of {len(truth)} releases: {found}")
        steps = [[after - before for before, after in zip([0, *t[:-1]], t, strict=True)] for t in (found, truth)]
        self.result.lost += sum(max(0, true - got) for got, true in zip(*steps, strict=True))
        self.result.duplicated += sum(max(0, got - true) for got, true in zip(*steps, strict=True))
        twin = self._twins[kind]
        self.result.unlike += sum(twin.get(name, content) != content for name, content in observer.seen.items())


def main() -> None:
    """Run, and print the result as a line and as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further stream after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-random", type=float, default=0.25)
    parser.add_argument("--control", choices=controls.CONTROLS)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--power", choices=("full", "normal"))
    parser.add_argument("--kinds", default=",".join(world.KINDS))
    parser.add_argument("--ticks", type=int, default=world.TICKS, help=f"of a stream: a multiple of {world.PER_FILE}")
    chosen = parser.parse_args()
    world.TICKS = chosen.ticks
    if chosen.power or (chosen.faults and power.compiler()):
        power.ensure_loaded()
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(
            Path(folder),
            seed=chosen.seed,
            at_random=chosen.at_random,
            control="synchronous-normal" if chosen.power == "normal" else chosen.control,
            kinds=tuple(chosen.kinds.split(",")),
            faults=chosen.faults,
            **(power.hooks(chosen.seed) if chosen.power else {}),
        )
        result = harness.run(chosen.kills, seconds=chosen.seconds)
    print(result.line())
    print(json.dumps({**vars(result), "names": sorted({n for names in harness.names.values() for n in names})}))


if __name__ == "__main__":
    main()
