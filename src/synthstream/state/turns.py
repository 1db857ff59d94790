"""Threads that share an object take turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar


class Shared(Protocol):
    """What threads share."""

    _lock: RLock


S = TypeVar("S", bound=Shared)
P = ParamSpec("P")
T = TypeVar("T")


def alone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that only one thread at a time may run: two could draw noise for the same tick."""

    def taken_in_turn(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return method(self, *args, **kwargs)

    return update_wrapper(taken_in_turn, method)


def turn(shared: Shared) -> RLock:
    """For ``with``: what stands inside happens in one turn."""
    return shared._lock  # noqa: SLF001


def refused(shared: Any) -> NoReturn:
    """In place of ``__copy__``: a copy would share what is open, and not know what the other one did with it."""
    raise TypeError(f"a {type(shared).__name__} cannot be copied; threads may share it")
