"""Tables 1 to 3 of paper 2 with our figures beside them: make bench-tables. Goes on where it stopped.

A run of our default by an older edition does not count as finished.

Every finished run is a line of ``results/tables.jsonl``; ``results/tables.md`` and the figures are made of these lines.

    python -m benchmarks.tables --seeds 3          # what is missing, then the document
    python -m benchmarks.tables --seeds 0          # the document alone
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.environment import environment
from benchmarks.report import write
from benchmarks.tabular import Setting, run
from synthstream.kinds import EDITION

RESULTS = Path(__file__).parent / "results"
EPSILONS = (0.5, 1.0, 2.0, 4.0)
DELTA = 1e-9
STREAMS: tuple[dict[str, Any], ...] = (
    {"data": "evictions", "order": "", "batch": 0, "every": "1w"},
    {"data": "evictions", "order": "", "batch": 0, "every": "2w"},
    {"data": "adult", "order": "random", "batch": 50, "every": ""},
    {"data": "adult", "order": "random", "batch": 200, "every": ""},
    {"data": "adult", "order": "by-row-number", "batch": 50, "every": ""},
    {"data": "adult", "order": "by-row-number", "batch": 200, "every": ""},
)
# Those of table 3, where the paper compares its counters.
_BLOCK = (0, 2, 4)


def settings(seed: int) -> Iterator[Setting]:
    """The runs of one seed that the document's claims need."""
    methods = [("marginals", 0.0), ("selective", 0.0), ("stream-mwem", 0.0), ("marginals", DELTA)]
    for (method, delta), stream in itertools.product(methods, STREAMS):
        yield from (Setting(**stream, method=method, delta=delta, epsilon=e, seed=seed) for e in EPSILONS)
    if seed == 0:
        yield from (Setting(**stream, method="independent", delta=0.0, epsilon=1.0) for stream in STREAMS)


def other_counters(seed: int) -> Iterator[Setting]:
    """Table 3: the block counter."""
    for stream, epsilon in itertools.product((STREAMS[i] for i in _BLOCK), EPSILONS):
        yield Setting(**stream, method="selective", delta=0.0, counter="block", epsilon=epsilon, seed=seed)


def other_picks(seed: int) -> Iterator[Setting]:
    """Another rule for k: three picks, whatever the budget; on Adult."""
    for stream, epsilon in itertools.product(STREAMS[2:], EPSILONS):
        yield Setting(**stream, method="selective", delta=0.0, k=3, epsilon=epsilon, seed=seed)


# Beside the main part, of one seed.
OTHERS = (other_counters, other_picks)


def done(path: Path) -> dict[str, dict[str, Any]]:
    """Finished runs by their settings."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {key(line): line for line in lines}


def key(facts: dict[str, Any]) -> str:
    """The settings among the facts of a run, as one text, and of our default its edition: other methods have none."""
    edition = facts.get("edition") if facts["method"] == "marginals" else None
    return json.dumps([{name: facts[name] for name in Setting.__dataclass_fields__}, edition], sort_keys=True)


def newest(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each choice of settings, all seeds together, those of the newest edition that was run."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault(key({**line, "seed": 0, "edition": None}), []).append(line)
    last = {name: max(line.get("edition") or 0 for line in found) for name, found in groups.items()}
    return [line for name, found in groups.items() for line in found if (line.get("edition") or 0) == last[name]]


def main() -> None:
    """Run what is missing, then write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    path = RESULTS / "tables.jsonl"
    known = done(path)
    wanted = [s for seed in range(args.seeds) for s in settings(seed)]
    wanted += [s for part in OTHERS for s in part(0) if args.seeds]
    missing = [s for s in wanted if key({**asdict(s), "edition": EDITION}) not in known]
    # Fresh processes, so that each run's memory and threads are its own.
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run, setting, curve=setting.seed == 0) for setting in missing]
        for finished in track(as_completed(running), total=len(running), description="runs"):
            with path.open("a") as file:
                file.write(json.dumps({**finished.result(), **environment()}) + "\n")
    write(newest(done(path).values()), RESULTS)


if __name__ == "__main__":
    main()
