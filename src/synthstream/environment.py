"""The world outside of a stream: clock, side effects, names that outlast a loss of power, and compiled loops."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class Env:
    """What a stream takes from, and does to, the world outside, in one place.

    Every write, sync, link and commit goes through :meth:`do` under a name, so that tests can end the process, or fail
    it, before and after each of them. Nothing but a constructor's argument chooses another environment. Noise does not
    come from here: the gate asks the operating system by itself.
    """

    def now(self) -> datetime:
        """The machine's clock, with its zone."""
        return datetime.now(UTC)

    def appeared(self, path: Path) -> datetime:
        """When a file, a link to one, or an object in a store, got its name, by the clock of its file system.

        Nobody can set it. It is later if permissions, or the number of its names, change later; and earlier where a
        whole folder gets its name. One that cannot be looked at was there always: whoever reads it says why.
        """
        try:
            return datetime.fromtimestamp(max(path.stat().st_ctime, path.lstat().st_ctime), UTC)
        except OSError:
            return datetime.min.replace(tzinfo=UTC)

    def do(self, name: str, effect: Callable[[], T]) -> T:  # noqa: ARG002
        """Do one side effect.

        Args:
            name: what it does, in a few words; the same effect always has the same name.
            effect: does it.
        """
        return effect()


REAL = Env()


def words(error: OSError) -> str:
    """What the operating system says about a failure, without names of files or anything read from them."""
    return "it cannot be read or written" if error.errno is None else os.strerror(error.errno)


def sync(path: Path) -> None:
    """On return, a file's content, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_parent(path: Path) -> None:
    """On return, a name is on disk; where a folder may not be listed, this is left to the system."""
    with suppress(PermissionError):
        sync(path.absolute().parent)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create a folder, and its parents with their names on disk, unless it exists. Its own name is not synced."""
    for parent in reversed(folder.absolute().parents):
        if not parent.exists():
            parent.mkdir(exist_ok=True)
            sync_parent(parent)
    folder.mkdir(mode=mode, exist_ok=True)


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file anew. ``mode``: who may reach it, less what the process's umask forbids."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def exchange(new: Path, old: Path) -> None:
    """Two folders take each other's names in one step, so that one of them is always there under each.

    Where the system cannot (an old one, or a network file system), ``old`` is renamed away first: for a moment its name
    is gone, and :func:`exchanged` mends that if the process ends just then.

    Raises ``OSError`` if it fails.
    """
    library, at = ctypes.CDLL(None, use_errno=True), -100  # AT_FDCWD; 2 is RENAME_EXCHANGE, and RENAME_SWAP
    names = os.fsencode(new), os.fsencode(old)
    if sys.platform == "darwin":
        done = getattr(library, "renamex_np", lambda *_: -1)(*names, 2)
    else:
        done = getattr(library, "renameat2", lambda *_: -1)(at, names[0], at, names[1], 2)
    if done != 0:
        away = _away(old)
        old.rename(away)
        new.rename(old)
        away.rename(new)


def exchanged(old: Path) -> None:
    """Put a folder back under its name if a process ended while it was renamed away."""
    if _away(old).is_dir():
        _away(old).rename(old if not old.exists() else old.with_name(f".writing-{old.name}-old"))


def _away(old: Path) -> Path:
    return old.with_name(f".away-{old.name}")


def use_a_writable_cache() -> None:
    """Give Numba a folder of this process's own if there is no other, as for a service user of an installed package.

    Loops are then compiled again by each process. ``NUMBA_CACHE_DIR`` names a better place.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if any(_writable(Path(place)) for place in (Path(__file__).parent / "__pycache__", home)):
        return
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="synthstream-")  # its owner's alone: what lies there is executed
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def _writable(place: Path) -> bool:
    """Whether a folder can be written, or made."""
    while not place.exists() and place != place.parent:
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)
