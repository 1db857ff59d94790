"""Writes the states that later versions must be able to open: ``python -m tests.crash.store_state [KIND ...]``.

Those of former formats stay as they are.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from synthstream import Stream
from synthstream.kinds import EDITION
from synthstream.state.store import FORMAT
from tests.support.streams import KINDS, PERSONS, configured, rows

STATES = Path(__file__).parent / "states"


def main() -> None:
    for kind in sys.argv[1:] or (*KINDS, PERSONS):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "stream"
            config = configured(folder, kind, until="2026-01-05")
            rows(40, 1).write_parquet(folder / "rows-1.parquet")
            with Stream(config) as stream:
                list(stream.run())
            configured(folder, kind)
            (folder / "rows-1.parquet").unlink()
            target = STATES / f"format-{FORMAT}-edition-{EDITION}-{kind}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target, ignore=shutil.ignore_patterns("lock", "*-wal", "*-shm"))


if __name__ == "__main__":
    main()
