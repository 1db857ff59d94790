"""The fit of tables without one of its parts, beside the whole: what each part gives. An hour for a seed.

    python -m benchmarks.parts --without slopes order --seeds 1 --out /tmp/parts.jsonl
    python -m benchmarks.parts --show benchmarks/results/parts.jsonl

A part earns its lines if it makes errors smaller by more than they differ between seeds, on some stream at least, and
harms none. Ratios of AvgRelL1 are those without a part to those with all, of the same noise: above 1 the part helps.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import STREAMS, TO_TUNE_ON, UNSEEN
from benchmarks.environment import environment
from benchmarks.streams import read
from benchmarks.tabular import Setting, run
from synthstream.fit.lowrank import NOTHING
from synthstream.fit.rare import Rare
from synthstream.workload import FloatArray

_RESULTS = Path(__file__).parent / "results" / "parts.jsonl"
_ALL = ""
_MOST = 4  # streams named for each part


def _no_noise(counts: Sequence[FloatArray], _errors: object) -> list[Rare]:
    """All codes occur, as often as they were counted."""
    return [Rare(np.ones(one.size), np.zeros(one.size, dtype=np.bool_), np.zeros(one.size)) for one in counts]


# Where a part is called from, under which name, and what stands there without it.
_Part = tuple[str, str, Callable[..., Any]]
PARTS: Mapping[str, _Part] = {
    "empty": ("aims", "emptied", lambda mean, *_: mean),
    "rare": ("rare", "rare", _no_noise),
    "evened": ("joints", "evened", lambda own, variance, *_: (own, variance)),
    "lately": ("aims", "lately", lambda *_: []),
    "slopes": ("aims", "with_slopes", lambda _looked, _whole, _tables, best: best),
    "order": ("beyond", "in_order", lambda *_: {}),
    "common": ("beyond", "common", lambda *_, **__: NOTHING),
}


def one(part: str, stream: str, delta: float, seed: int) -> dict[str, Any]:
    """A whole stream without a part, or with all, in a process of its own."""
    if part != _ALL:
        module, name, instead = PARTS[part]
        setattr(import_module(f"synthstream.fit.{module}"), name, instead)
    setting = Setting(data=stream, order="", batch=0, every="", epsilon=1.0, delta=delta, method="marginals", seed=seed)
    return {"bench": "parts", "without": part, **run(setting), **environment()}


def shown(lines: Sequence[Mapping[str, Any]]) -> str:
    """For each part its ratios over all streams, and the streams where it gives, or takes, most."""
    head = "| without | delta | streams | all ticks | last release | most, over all ticks | least |"
    rows, found = [head, "| --- " * 7 + "|"], {_key(line): line for line in lines}
    for delta in sorted({line["delta"] for line in lines}, reverse=True):
        for part in PARTS:
            mine = [line for line in lines if (line["without"], line["delta"]) == (part, delta)]
            both = [(line, found[_ALL, *_key(line)[1:]]) for line in mine if (_ALL, *_key(line)[1:]) in found]
            if not both:
                continue
            ratios = np.array(
                [[a[k]["avg_rel_l1"] / b[k]["avg_rel_l1"] for k in ("all_ticks", "final")] for a, b in both]
            )
            means = np.exp(np.mean(np.log(ratios), axis=0))
            order = np.argsort(-ratios[:, 0], kind="stable")
            named = [f"{both[i][0]['stream']} {ratios[i, 0]:.3f}" for i in order]
            cells = [part, f"{delta:g}", f"{len(both)}", *(f"{mean:.3f}" for mean in means)]
            rows.append(f"| {' | '.join([*cells, ', '.join(named[:_MOST]), ', '.join(named[:-3:-1])])} |")
    return "\n".join(rows)


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["without"], line["stream"], line["delta"], line["seed"]


def main() -> None:
    """Run what is missing in the file, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", nargs="+", choices=[_ALL, *PARTS], default=[_ALL, *PARTS])
    parser.add_argument("--stream", nargs="+", choices=list(STREAMS), default=[*TO_TUNE_ON, *UNSEEN])
    parser.add_argument("--delta", type=float, nargs="+", default=[1e-9])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=_RESULTS)
    parser.add_argument("--show", type=Path, metavar="FILE")
    args = parser.parse_args()
    path = args.show or args.out
    lines = read(path)
    if args.show is None:
        asked = [
            (part, stream, delta, seed)
            for seed in range(args.seeds)
            for delta in args.delta
            for part in args.without
            for stream in args.stream
        ]
        known = {_key(line) for line in lines}
        # A process takes no second task: it would be without two parts.
        with ProcessPoolExecutor(args.processes, get_context("spawn"), max_tasks_per_child=1) as pool:
            running = [pool.submit(one, *task) for task in asked if task not in known]
            for finished in as_completed(running):
                lines.append(finished.result())
                with path.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print(shown(lines))


if __name__ == "__main__":
    main()
