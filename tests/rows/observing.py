"""Everything that can be seen of a run from outside of the state folder."""

from __future__ import annotations

import io
import logging
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow.parquet as pq
import pytest

# In the folder of a run these are private; everything else is public.
STATE, INPUT = "state", "input"


class Observed(NamedTuple):
    """What an observer has of one run.

    Args:
        files: mode and content of each public file, by its name; of a folder the content is ``None``.
        out, err: what was printed, by Python or by compiled code.
        logs: every record of every logger, at any level.
        warned: every warning.
        ending: the exit code, or the error.
    """

    files: dict[str, tuple[int, bytes | None]]
    out: str
    err: str
    logs: list[str]
    warned: list[str]
    ending: str

    def texts(self) -> Iterator[str]:
        """All channels as text; of Parquet files what is in them too."""
        yield from (self.out, self.err, self.ending, *self.logs, *self.warned)
        for name, (_, content) in self.files.items():
            yield name
            if content is None:
                continue
            yield content.decode("latin-1")
            if name.endswith(".parquet"):
                frame = pl.read_parquet(io.BytesIO(content))
                yield from (str(cell) for column in frame for cell in column)
                yield str(pq.read_metadata(io.BytesIO(content)).to_dict())


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=0)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # Compilers tell what they compile; that is once, in whichever run comes first.
        if not record.name.startswith(("numba", "llvmlite")):
            self.records.append(f"{record.name} {record.levelname} {record.getMessage()} {record.exc_info}")


def observe(folder: Path, run: Callable[[], object], capfd: pytest.CaptureFixture[str]) -> Observed:
    """Run, and note everything that can be seen. The folder is gone afterwards, so another run can have the same."""
    listener, root = _Listener(), logging.getLogger()
    level = root.level
    capfd.readouterr()
    root.addHandler(listener)
    root.setLevel(1)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            ending = _ending(run)
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
    out, err = capfd.readouterr()
    files = public_files(folder)
    shutil.rmtree(folder)
    told = [f"{w.category.__name__} {w.message} {w.filename}:{w.lineno}" for w in warned]
    return Observed(files, out, err, listener.records, told, ending)


def _ending(run: Callable[[], object]) -> str:
    try:
        return f"returned {run()}"
    except SystemExit as error:
        return f"exit {error.code}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def public_files(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Mode and content of everything in a folder but what is private."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] not in (STATE, INPUT):
            found[str(name)] = (path.stat().st_mode, None if path.is_dir() else path.read_bytes())
    return found


def command_line(*words: str) -> None:
    """The command line, in this process. Raises ``SystemExit``."""
    from synthstream.cli.app import main

    before, sys.argv = sys.argv, ["synthstream", *words]
    try:
        main()
    finally:
        sys.argv = before
