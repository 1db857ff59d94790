"""The world outside of a stream: its clock, and every side effect whose order matters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")


class Env:
    """What a stream takes from, and does to, the world outside, in one place.

    Every write, sync, link and commit goes through :meth:`do` under a name, so that tests can end the process, or fail
    it, before and after each of them (``synthstream.testing.environments``). Nothing but a constructor's argument
    chooses another environment. Noise does not come from here: the gate asks the operating system by itself.
    """

    def now(self) -> datetime:
        """The machine's clock, with its zone."""
        return datetime.now(UTC)

    def do(self, name: str, effect: Callable[[], T]) -> T:
        """Do one side effect.

        Args:
            name: what it does, in a few words; the same effect always has the same name.
            effect: does it.
        """
        return effect()


REAL = Env()
