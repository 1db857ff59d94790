"""Which files of the package run while a stream does: not what is imported, but whose functions are called."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType

from tests.support.house import SOURCE

_MODULE = "<module>"


@contextmanager
def executed() -> Iterator[set[str]]:
    """Collects files, as paths from ``src/synthstream``, whose functions are called in the block.

    Bodies of modules and of classes run when they are imported, and compiled loops with the function that calls them:
    neither counts.
    """
    found: set[str] = set()
    root, seen = f"{SOURCE}/", set[CodeType]()

    def profile(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and code not in seen:
            seen.add(code)
            path = code.co_filename
            if path.startswith(root) and code.co_name != _MODULE and code.co_flags & 0x2:
                found.add(path[len(root) :])

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
