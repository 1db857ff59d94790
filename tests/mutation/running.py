"""Whether the tests tell a mutant: each is tried in a process of its own, which begins with all libraries loaded."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import pytest

from tests.mutation.mutants import SOURCE, Mutant

# Loaded once, before anything is forked; the package itself and its tests are imported anew by every mutant.
LIBRARIES = (
    "numpy", "numba", "scipy.optimize", "scipy.stats", "polars", "pyarrow.parquet", "pydantic", "typer.testing",
    "jinja2", "rich.progress", "hypothesis", "pandas", "sqlite3", "opendp.prelude",
)  # fmt: skip


class Fate(NamedTuple):
    """What became of a mutant.

    Args:
        mutant: which.
        line, becomes: what it changes.
        killed: whether a test failed, or did not end.
        seconds: that it took.
    """

    mutant: Mutant
    line: str
    becomes: str
    killed: bool
    seconds: float


class _Mutated(SourceFileLoader):
    """Imports one module from other source. Its compiled functions are compiled anew, and not kept on disk."""

    def __init__(self, module: str, source: str) -> None:
        name = "synthstream." + module.removesuffix(".py").replace("/", ".")
        super().__init__(name.removesuffix(".__init__"), str((SOURCE / module).absolute()))
        self._source = source.replace("cache=True", "cache=False")

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        package = [str(Path(self.path).parent)] if self.path.endswith("__init__.py") else None
        return spec_from_file_location(name, self.path, loader=self, submodule_search_locations=package)

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


def preload() -> None:
    """Import what does not change from mutant to mutant."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def passes(tests: Sequence[str]) -> bool:
    """Whether some tests pass, in this process, which says nothing from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    loaded = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # pytest would have loaded its plugins itself
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *loaded, *tests]
    return pytest.main(arguments) == pytest.ExitCode.OK


def _child(write: int, mutant: Mutant, tests: Sequence[str], limit: float) -> None:
    """Try one mutant, write its fate, and end."""
    os.setpgid(0, 0)
    line, becomes = mutant.change()
    begun = time.monotonic()
    # Seconds of computing, whatever else the machine does; then the process ends, which counts as killed.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limit)
    with os.fdopen(write, "wb") as pipe:
        pipe.write(pickle.dumps((line, becomes)))
        pipe.flush()
        try:
            mutated = _Mutated(mutant.module, mutant.source())
            sys.meta_path.insert(0, mutated)
            importlib.import_module(mutated.name)  # before pytest puts an importer of its own first
            survived = passes(tests)
        except BaseException:  # whatever a mutant does, it is seen
            survived = False
        pipe.write(pickle.dumps((survived, time.monotonic() - begun)))
        pipe.flush()
    os._exit(0)


def trial(tests: Sequence[str]) -> tuple[bool, float]:
    """Whether some tests pass without any mutant, and how many seconds they compute, in a process of its own."""
    process = os.fork()
    if not process:
        os._exit(0 if passes(tests) else 1)
    _, status, usage = os.wait4(process, 0)
    return status == 0, usage.ru_utime + usage.ru_stime


class _Job(NamedTuple):
    process: int
    read: int
    mutant: Mutant
    begun: float


def fates(work: Sequence[tuple[Mutant, Sequence[str], float]], *, jobs: int) -> Iterator[Fate]:
    """Try mutants, so many at a time.

    Args:
        work: each mutant, the tests that must tell it, and the seconds of computing after which it has hung.
        jobs: processes at a time.
    """
    waiting, running = list(reversed(work)), dict[int, _Job]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant, tests, limit = waiting.pop()
            read, write = os.pipe()
            process = os.fork()
            if not process:
                os.close(read)
                _child(write, mutant, tests, limit)
            os.close(write)
            running[process] = _Job(process, read, mutant, time.monotonic())
        process, _ = os.wait()
        job = running.pop(process)
        with os.fdopen(job.read, "rb") as pipe:
            line, becomes = pickle.load(pipe)  # noqa: S301 - of a child of ours
            try:
                survived, seconds = pickle.load(pipe)  # noqa: S301
            except EOFError:  # it hung, or was killed
                survived, seconds = False, time.monotonic() - job.begun
        yield Fate(job.mutant, line, becomes, not survived, seconds)
