"""The crash suite in numbers, for docs/reliability.md: ``python -m tests.crash.report --part 0.1``; it takes long."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

RUNS = {
    "kills": (10_000, ("--at-random", "0.3")),
    "power loss": (2_000, ("--power", "full", "--at-random", "0.2")),
    "full and failing disks": (500, ("--faults",)),
    "control: publishes first": (60, ("--control", "publish-first", "--kinds", "table,epochs")),
    "control: publishes first, unchecked": (60, ("--control", "publish-first-unchecked", "--kinds", "table,epochs")),
    "control: power loss, synchronous=NORMAL": (60, ("--power", "normal", "--at-random", "0")),
}
"""By name: kills or failures of a release, and the arguments of the harness."""


def run(number: int, *arguments: str, seed: int = 0) -> tuple[str, dict[str, Any]]:
    """One run of the harness, in a process of its own: its line, and all that it counted."""
    command = [sys.executable, "-m", "tests.crash.harness", "--kills", str(number), "--seed", str(seed), *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"the harness failed:\n{done.stderr}")
    line, counted = done.stdout.splitlines()[-2:]
    print(line, flush=True)
    return line, json.loads(counted)


def main() -> None:
    """Print one line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=float, default=1.0, help="of the kills of a release")
    part = parser.parse_args().part
    for name, (number, arguments) in RUNS.items():
        print(f"{name}: ", end="", flush=True)
        run(max(1, round(number * part)) if "control" not in name else number, *arguments)


if __name__ == "__main__":
    main()
