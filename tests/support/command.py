"""The command line in this process: what it prints and how it ends, without the seconds that a process takes to start.

What a process alone can show runs in one of its own: signals, pipes, permissions, what is imported when. Such tests
begin with ``MAIN``.
"""

from __future__ import annotations

import contextlib
import io
import resource
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from synthstream.cli.app import main

MAIN = "from synthstream.__main__ import main; main()"


def synthstream(*arguments: str, cwd: Path, together: bool = False) -> CompletedProcess[str]:
    """Run a command as a process would in a folder.

    Args:
        arguments: what stands after ``synthstream``.
        cwd: the folder.
        together: errors go where output goes, in the order in which they come.
    """
    out = _Stream()
    errors = out if together else _Stream()
    with _called(arguments, cwd, out, errors):
        status = _status()
    return CompletedProcess(["synthstream", *arguments], status, out.text(), "" if together else errors.text())


class _Stream(io.TextIOWrapper):
    """An output stream of a process, not to a terminal, that is read as text afterwards."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)

    def text(self) -> str:
        """All that was written."""
        self.flush()
        written: io.BytesIO = self.buffer  # type: ignore[assignment]
        return written.getvalue().decode().replace("\r\n", "\n")


@contextlib.contextmanager
def _called(arguments: tuple[str, ...], cwd: Path, out: io.TextIOWrapper, errors: io.TextIOWrapper) -> Iterator[None]:
    cores = resource.getrlimit(resource.RLIMIT_CORE)  # commands forbid core dumps, for the life of their process
    with (
        mock.patch.object(sys, "argv", ["synthstream", *arguments]),
        mock.patch.object(sys, "unraisablehook", sys.unraisablehook),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, cores)


def _status() -> int:
    """Run what ``sys.argv`` says; the exit status that Python would give the process."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0
