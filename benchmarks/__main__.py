"""All benchmarks, one JSON line per result: make bench."""

from __future__ import annotations

import subprocess
import sys

TABULAR = ["--data", "adult", "--method", "marginals"]
RUNS = [
    ["benchmarks.sampling"],
    ["benchmarks.coverage"],
    ["benchmarks.counters"],
    ["benchmarks.hypercube"],
    *(
        [
            "benchmarks.tabular",
            *TABULAR,
            "--order",
            "random",
            "--batch",
            "200",
            "--epsilon",
            epsilon,
            "--delta",
            "1e-9",
        ]
        for epsilon in ("0.5", "1", "4")
    ),
    [
        "benchmarks.tabular",
        *TABULAR,
        "--order",
        "by-row-number",
        "--batch",
        "50",
        "--epsilon",
        "1",
        "--delta",
        "1e-9",
    ],
    ["benchmarks.tabular", *TABULAR, "--order", "random", "--batch", "200", "--epsilon", "1", "--delta", "0"],
]

if __name__ == "__main__":
    for module, *arguments in RUNS:
        # A process each, so that peak memory is that of one benchmark.
        subprocess.run([sys.executable, "-m", module, *arguments], check=True)  # noqa: S603 - our own modules
