"""What tests of following share."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from synthstream.environment import Env

START = datetime(2026, 1, 1, tzinfo=UTC)


class Hand(Env):
    def __init__(self) -> None:
        self.moment = START

    def now(self) -> datetime:
        return self.moment

    def appeared(self, path: Path) -> datetime:
        return datetime.min.replace(tzinfo=UTC)
