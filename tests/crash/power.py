"""Loss of power, simulated: a folder becomes what is left of it when all that was not synced is gone.

A process under test runs with a small library loaded before the C library (``shim.c``), which keeps what each sync made
durable. Names are durable when their folder was synced, contents when their file was. Three kinds of outage: nothing
unsynced survives; all names survive, but no unsynced content; and of names and of blocks of 512 bytes a random part.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = 512
OUTAGES = ("nothing", "names", "some")
OUTSIDE = ("source", "incoming")  # the world's, not the stream's


def compiler() -> str | None:
    """A C compiler, if the machine has one."""
    return shutil.which("gcc") or shutil.which("cc")


def compiled(folder: Path) -> Path:
    """The library, made from its source."""
    library = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = [compiler() or "cc", "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)  # noqa: S603
    return library


def shim() -> Any:
    """The library, where it was loaded before the C library."""
    return ctypes.CDLL(None)


def loaded() -> bool:
    """Whether this process runs on a disk that may forget."""
    return hasattr(shim(), "crash_watch")


def ensure_loaded() -> None:
    """Start this command again with the library loaded, unless it is."""
    if not loaded():
        library = compiled(Path(tempfile.mkdtemp(prefix="shim-")))
        module = sys.modules["__main__"].__spec__
        name = "" if module is None else module.name
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", name, *sys.argv[1:]],
            {**os.environ, "LD_PRELOAD": str(library)},
        )


def key(path: Path) -> str:
    """What tells one file from all others, also from one that later gets its number."""
    found = ctypes.create_string_buffer(128)
    if shim().crash_key(-100, os.fsencode(path), found, 128):
        raise OSError(f"{path}: this file system does not tell when a file was made")
    return found.value.decode()


def breaks(folder: Path, *, nth: int, error: int, half: bool) -> Callable[[], None]:
    """Lets writes and syncs in a folder fail from the n-th on, in the process that calls it."""

    def arm() -> None:
        shim().crash_watch(os.fsencode(folder), b"")
        shim().crash_fail(nth, error, int(half))

    return arm


def mended() -> None:
    """The disk works again."""
    shim().crash_fail(0, 0, 0)


class Disk:
    """What is durable of a folder.

    Args:
        shadow: where the library keeps it.
        chance: chooses what survives.
    """

    def __init__(self, shadow: Path, chance: random.Random) -> None:
        self._shadow, self._chance = shadow, chance
        self._outage = OUTAGES[0]
        self._live: dict[str, Path] = {}
        shadow.mkdir()

    def watch(self, folder: Path) -> Callable[[], None]:
        """Starts to watch, in the process that calls it."""
        return lambda: shim().crash_watch(os.fsencode(folder), os.fsencode(self._shadow))

    def fails(self, folder: Path) -> None:
        """The power goes, and comes back."""
        self._outage = self._chance.choice(OUTAGES)
        self._live = {
            key(path): path
            for path in (folder, *folder.rglob("*"))
            if path.relative_to(folder).parts[:1] not in [(n,) for n in OUTSIDE]
        }
        after = folder.with_name(folder.name + "-after")
        after.mkdir()
        self._rebuild(key(folder), after)
        for path in folder.iterdir():
            if path.name not in OUTSIDE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in after.iterdir():
            path.rename(folder / path.name)
        after.rmdir()
        self._all_durable(folder)

    def _rebuild(self, which: str, place: Path) -> None:
        """What is left of one folder."""
        durable, live = self._durable_names(which), self._live_names(which)
        for name in sorted(durable.keys() | live.keys()):
            found = self._one_of(durable.get(name), live.get(name))
            if found is None or name in OUTSIDE or name.endswith("-shm"):  # shared memory, not a file
                continue
            if found[0] == "d":
                (place / name).mkdir(mode=0o700)
                self._rebuild(found[1], place / name)
            else:
                (place / name).write_bytes(self._content(found[1]))
                (place / name).chmod(0o600)

    def _one_of(self, durable: Any, live: Any) -> Any:
        return {"nothing": durable, "names": live, "some": self._chance.choice((durable, live))}[self._outage]

    def _durable_names(self, which: str) -> dict[str, tuple[str, str]]:
        path = self._shadow / which
        lines = path.read_text().splitlines() if path.exists() else []
        return {name: (kind, key) for key, kind, name in (line.split(" ", 2) for line in lines)}

    def _live_names(self, which: str) -> dict[str, tuple[str, str]]:
        path = self._live.get(which)
        return {} if path is None else {p.name: ("d" if p.is_dir() else "f", key(p)) for p in path.iterdir()}

    def _content(self, which: str) -> bytes:
        path = self._shadow / which
        durable = path.read_bytes() if path.exists() else b""
        if self._outage != "some" or which not in self._live:
            return durable
        live = self._live[which].read_bytes()
        if (self._shadow / f"{which}.cut").exists():
            # File systems cut a file in one step; what is written afterwards lies elsewhere on the disk. So either
            # nothing of it happened, or the old content is gone.
            if self._chance.random() < 0.5:
                return durable
            durable = b""
        size = self._chance.choice((len(durable), len(live), self._chance.randint(0, max(len(durable), len(live)))))
        size = max(size, min(len(durable), len(live)))
        blocks = []
        for start in range(0, size, BLOCK):
            old, new = durable[start : start + BLOCK], live[start : start + BLOCK]
            blocks.append((new if new and self._chance.random() < 0.5 else old).ljust(BLOCK, b"\0"))
        return b"".join(blocks)[:size]

    def _all_durable(self, folder: Path) -> None:
        """What came through is on disk."""
        shutil.rmtree(self._shadow)
        self._shadow.mkdir()
        for path in (folder, *folder.rglob("*")):
            if path != folder and path.relative_to(folder).parts[0] in OUTSIDE:
                continue
            if path.is_dir():
                lines = [f"{key(p)} {'d' if p.is_dir() else 'f'} {p.name}\n" for p in path.iterdir()]
                (self._shadow / key(path)).write_text("".join(lines))
            else:
                shutil.copyfile(path, self._shadow / key(path))


def hooks(seed: int) -> dict[str, Any]:
    """How a harness takes the power away after every kill."""
    base = Path(tempfile.mkdtemp(prefix="shadow-"))
    chance = random.Random(seed)  # noqa: S311 - what survives, nothing more
    disks: dict[Path, Disk] = {}

    def before(folder: Path) -> Callable[[], None]:
        if folder not in disks:
            for old in disks:
                shutil.rmtree(base / old.name)
            disks.clear()
            disks[folder] = Disk(base / folder.name, chance)
        return disks[folder].watch(folder)

    return {"before": before, "aftermath": lambda folder: disks[folder].fails(folder)}
