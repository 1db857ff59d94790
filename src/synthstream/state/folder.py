"""The folder of a state: nobody but its owner can reach it, and one process at a time writes in it; its lock."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from weakref import WeakSet

from synthstream.environment import make_folder, words
from synthstream.errors import StateError, StateLocked

STORE = "store.db"
_LOCK = "lock"
_FILES = (STORE, f"{STORE}-wal", f"{STORE}-shm", f"{STORE}-journal", _LOCK)
_MOUNTS = Path("/proc/self/mounts")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

# The write-ahead log is shared through memory, which two hosts do not have in common; nor do all of these keep locks.
_SHARED = """
nfs nfs4 cifs smb3 smbfs ncpfs afs ceph glusterfs lustre gpfs beegfs ocfs2 gfs2
fuse.glusterfs fuse.sshfs fuse.ceph fuse.s3fs fuse.rclone
"""
_NETWORK = frozenset(_SHARED.split())


class Lock:
    """An open file or folder; lets go of it by itself, should Ctrl-C come before anyone has it.

    Args:
        beside: another one, let go of with it.
    """

    def __init__(self, handle: int, beside: Lock | None = None) -> None:
        self.handle: int | None = handle
        self.process, self._beside = os.getpid(), beside

    def same(self, other: Lock) -> bool:
        """Whether both are open, and one file."""
        both = [os.fstat(one.handle) for one in (self, other) if one.handle is not None]
        return len(both) > 1 and os.path.samestat(*both)

    def close(self) -> None:
        """Let go of it."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
        if self._beside is not None:
            self._beside.close()

    __del__ = close


_OURS = WeakSet[Lock]()  # what this process has taken


def failed(folder: Path, error: OSError) -> StateError:
    """What to say when the operating system failed at the state folder."""
    return StateError(f"state folder {folder}: {words(error)}. What was committed is there. Mend that, and run again.")


def is_state(folder: Path) -> bool:
    """Whether a state lies in a folder. Raises ``StateError`` if this user may not know."""
    try:
        return (folder / STORE).exists()
    except OSError as error:
        refuse_exposed(folder)  # it says whose it is
        raise failed(folder, error) from error


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can reach, whatever the umask, if it does not exist.

    Raises:
        StateError: it cannot be created, or lies on a network file system.
    """
    try:
        if not os.path.lexists(folder):
            make_folder(folder, mode=0o700)
            folder.chmod(0o700)
    except OSError as error:
        raise StateError(
            f"state folder {folder}: {words(error)}. Choose a folder that can be written, and run again."
        ) from error
    kind = file_system(folder.absolute(), _MOUNTS.read_text() if _MOUNTS.exists() else "")
    if kind in _NETWORK:
        raise StateError(
            f"state folder {folder} lies on a network file system ({kind}), where two hosts could write at once, and "
            "draw noise twice. Put 'state' on a disk of this machine."
        )


def file_system(path: Path, mounts: str) -> str:
    r"""Type of the file system that holds a path, or nothing.

    Args:
        path: absolute.
        mounts: as in ``/proc/self/mounts``; a later line hides an earlier one.
    """
    real, depth, kind = path.resolve(), 0, ""
    for line in mounts.splitlines():
        _, place, found, *_ = line.split(" ")
        parts = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place))
        if real.is_relative_to(parts) and len(parts.parts) >= depth:
            depth, kind = len(parts.parts), found
    return kind


def refuse_exposed(folder: Path) -> None:
    """Raise ``StateError`` unless the folder and its files belong to this user, to nobody else, and are no links."""
    _refuse(folder, directory=True)
    for name in _FILES:
        _refuse(folder / name, directory=False)


def _refuse(path: Path, *, directory: bool) -> None:
    what = f"state folder {path}" if directory else f"{path}"
    try:
        found = path.lstat()
    except FileNotFoundError:
        return  # to be made, or just removed by the process that writes
    except OSError as error:
        raise StateError(f"{what}: {error.strerror}. The state cannot be used.") from error
    if stat.S_ISLNK(found.st_mode):
        raise StateError(f"{what} is a link. Symbolic links are not followed; put the thing itself there.")
    if not (stat.S_ISDIR if directory else stat.S_ISREG)(found.st_mode):
        raise StateError(f"{what} is not a {'folder' if directory else 'file'}. Point 'state' to another folder.")
    if found.st_uid != os.geteuid():
        raise StateError(
            f"{what} belongs to another user. Run as its owner, or give the whole folder to this user (chown -R). "
            "Another folder as state would begin another stream, with a budget of its own."
        )
    if found.st_mode & 0o077:
        raise StateError(
            f"{what} can be reached by other users (mode {found.st_mode & 0o777:03o}); it holds exact counts. "
            f"Run: chmod {'700' if directory else '600'} {path}"
        )


def make_file(path: Path) -> int:
    """Open a file of the folder, created with mode 0600 whatever the umask. A link is not followed."""
    fresh = not os.path.lexists(path)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if fresh:
        os.fchmod(handle, 0o600)
    return handle


def locked(folder: Path) -> Lock:
    """The folder's lock. Raises ``StateLocked`` if it is taken.

    The folder itself is locked, and a file in it: who takes a file for one that was left behind, and deletes it, would
    let in another writer.
    """
    here = _taken(Lock(os.open(folder, _FOLDER | os.O_NOFOLLOW)), folder)
    return _taken(Lock(make_file(folder / _LOCK), here), folder)


def _taken(lock: Lock, folder: Path) -> Lock:
    """A lock, once this process has it.

    A stream of this process that has no name any more, as after ``Stream(config).update(rows)``, lets go of it.
    """
    try:
        if not _takes(lock):
            ours = any(other.process == lock.process and lock.same(other) for other in _OURS)  # none from before a fork
            if ours:
                gc.collect()
            if not (ours and _takes(lock)):
                who = "another process. Wait for it to end"
                if ours:
                    who = f"this process ({os.getpid()}): a Stream has it open. Close that one, or use `with`"
                raise StateLocked(f"state folder {folder} is in use by {who}; two writers would draw noise twice.")
    except BaseException:
        lock.close()
        raise
    _OURS.add(lock)
    return lock


@contextmanager
def alone_beside(folder: Path) -> Iterator[None]:
    """Nobody else puts a state into the place of one in the same folder meanwhile. Leaves no more than that folder.

    Raises:
        StateLocked: another process is at it.
        StateError: there is no such folder, and none can be made.
    """
    beside = folder.absolute().parent
    try:
        make_folder(beside)  # while it is missing, the next one up would be locked: who comes later would lock another
        lock = Lock(os.open(beside, _FOLDER))
    except PermissionError:  # who may not list it may not lock it either
        yield
        return
    except OSError as error:
        raise failed(folder, error) from error
    with closing(lock):
        if not _takes(lock):
            raise StateLocked(
                f"{beside}: another process recovers a stream there. Wait for it to end, and say this again. Nothing "
                "was changed."
            )
        yield


def _takes(lock: Lock) -> bool:
    try:
        fcntl.flock(lock.handle or 0, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
