"""A folder for streams that are run by the hundred."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")  # noqa: S108 - where there is one, a disk need not be waited for


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where the machine has that."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        yield Path(folder)
