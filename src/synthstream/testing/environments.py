"""Worlds for tests: stopped clocks."""

from __future__ import annotations

from datetime import datetime

from synthstream.environment import Env


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
