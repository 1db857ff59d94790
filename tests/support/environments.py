"""Worlds for tests: stopped clocks, recorded side effects, ends and failures at any of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from synthstream.environment import Env

T = TypeVar("T")
When = Literal["before", "after"]


class At(Env):
    """The world at one moment.

    Args:
        moment: with its zone.
    """

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        """The moment."""
        return self._moment

    def appeared(self, path: Path) -> datetime:
        """Before it."""
        return datetime.min.replace(tzinfo=UTC)


class Recording(Env):
    """Keeps the names of all side effects, in the order in which they began.

    Example:
        >>> env = Recording()
        >>> env.do("add", lambda: 1 + 1)
        2
        >>> env.names
        ['add']
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def do(self, name: str, effect: Callable[[], T]) -> T:
        self.names.append(name)
        return effect()


class Interrupting(Recording):
    """Does something else before or after one side effect, once: ends the process, raises an error.

    Args:
        interrupt: what to do there.
        at: name of the side effect; ``None`` counts all of them.
        number: 1 for the first of that name.
        when: before it, or after it.
    """

    def __init__(
        self, interrupt: Callable[[], object], *, at: str | None = None, number: int = 1, when: When = "before"
    ) -> None:
        super().__init__()
        self._interrupt, self._at, self._left, self._when = interrupt, at, number, when

    def do(self, name: str, effect: Callable[[], T]) -> T:
        if self._at in (None, name):
            self._left -= 1
        due = self._at in (None, name) and self._left == 0
        if due and self._when == "before":
            self._interrupt()
        done = super().do(name, effect)
        if due and self._when == "after":
            self._interrupt()
        return done


def killed(*, at: str | None = None, number: int = 1, when: When = "before") -> Interrupting:
    """A world in which this process is killed, as by ``kill -9``, at a side effect."""
    return Interrupting(lambda: os.kill(os.getpid(), signal.SIGKILL), at=at, number=number, when=when)


def failing(error: int, *, at: str | None = None, number: int = 1, when: When = "before") -> Interrupting:
    """A world in which a side effect fails with an error of the operating system, such as ``errno.ENOSPC``.

    Failing after it means that it was done, and reported as failed.
    """

    def fail() -> None:
        raise OSError(error, os.strerror(error))

    return Interrupting(fail, at=at, number=number, when=when)


class Within(Recording):
    """Does one side effect in a changed world: on a smaller disk, on a broken one.

    Args:
        enter: changes the world, just before.
        leave: changes it back.
        at: name of the side effect.
        number: 1 for the first of that name.
    """

    def __init__(self, enter: Callable[[], object], leave: Callable[[], object], *, at: str, number: int = 1) -> None:
        super().__init__()
        self._enter, self._leave, self._at, self._left = enter, leave, at, number

    def do(self, name: str, effect: Callable[[], T]) -> T:
        self._left -= name == self._at
        if name != self._at or self._left != 0:
            return super().do(name, effect)
        self._enter()
        try:
            return super().do(name, effect)
        finally:
            self._leave()
