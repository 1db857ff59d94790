"""What tests of following share."""

from __future__ import annotations

from datetime import UTC, datetime

from synthstream.environment import Env

START = datetime(2026, 1, 1, tzinfo=UTC)


class Hand(Env):
    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment
