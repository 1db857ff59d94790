"""Noise as a forked process draws it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

from synthstream.workload import IntArray


def noise_of_a_child(draw: Callable[[], IntArray]) -> bytes:
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            os.write(write, draw().tobytes())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read()
