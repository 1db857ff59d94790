"""What a result must be read with: the edition of the defaults, the machine and the versions."""

from __future__ import annotations

import os
import platform
import resource
from importlib.metadata import version
from typing import Any

from synthstream.kinds import EDITION


def environment() -> dict[str, Any]:
    """Edition of the defaults, machine and versions, for a JSON line."""
    return {
        "edition": EDITION,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("synthstream", "numpy", "numba", "polars")},
    }


def peak_mb() -> float:
    """Largest memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
