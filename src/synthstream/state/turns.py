"""Threads that share an object take turns, and errors that leave it take nothing private along."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from threading import RLock
from traceback import clear_frames
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar


class Shared(Protocol):
    """What threads share."""

    _lock: RLock


S = TypeVar("S", bound=Shared)
P = ParamSpec("P")
T = TypeVar("T")


def alone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that only one thread at a time may run: two could draw noise for the same tick. It is ``discreet``."""

    def taken_in_turn(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with discreet(), self._lock:
                return method(self, *args, **kwargs)
        finally:
            del args, kwargs  # rows

    return update_wrapper(taken_in_turn, method)


@contextmanager
def discreet() -> Iterator[None]:
    """What is inside holds rows and exact counts. An error that leaves it keeps its lines, and loses its variables:
    tools that show the locals of a traceback, as notebooks and monitors do, would show them.
    """
    before = sys.exception()
    try:
        yield
    except BaseException as error:
        seen, left = {id(before)}, [error]
        while left:
            if id(one := left.pop()) not in seen:
                seen.add(id(one))
                clear_frames(one.__traceback__)
                left += [other for other in (one.__cause__, one.__context__) if other is not None]
        raise


def turn(shared: Shared) -> RLock:
    """For ``with``: what stands inside happens in one turn."""
    return shared._lock  # noqa: SLF001


def refused(shared: Any) -> NoReturn:
    """In place of ``__copy__``: a copy would share what is open, and not know what the other one did with it."""
    raise TypeError(f"a {type(shared).__name__} cannot be copied; threads may share it")
