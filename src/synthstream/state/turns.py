"""Threads that share an object take turns."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

from synthstream.errors import StateError, secretive


class Turns:
    """Lets one thread at a time in, of the process that made it: what is open belongs to that one, also after a fork.

    Raises:
        StateError: this is another process, which could draw noise twice, or wait for a thread that it does not have.
    """

    def __init__(self) -> None:
        self._lock, self._process = RLock(), os.getpid()

    @property
    def here(self) -> bool:
        """Whether this is the process that made it."""
        return os.getpid() == self._process

    def __enter__(self) -> None:
        if not self.here:
            raise StateError(
                f"This stream was opened in another process ({self._process}), and stays open there. Open it in the "
                "process that uses it, after that one has closed it. Nothing was counted; no noise was drawn."
            )
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Shared(Protocol):
    """What threads share."""

    _lock: Turns


S = TypeVar("S", bound=Shared)
P = ParamSpec("P")
T = TypeVar("T")


def alone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that only one thread at a time may run: two could draw noise for the same tick. It keeps secrets."""

    @secretive
    def taken_in_turn(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return method(self, *args, **kwargs)

    return update_wrapper(taken_in_turn, method)


def turn(shared: Shared) -> Turns:
    """For ``with``: what stands inside happens in one turn."""
    return shared._lock  # noqa: SLF001


def refused(shared: Any, *_: object) -> NoReturn:
    """In place of ``__copy__`` and its like: a copy would share what is open, and not know what was done with it."""
    raise TypeError(f"a {type(shared).__name__} cannot be copied; threads may share it, and no other process")
