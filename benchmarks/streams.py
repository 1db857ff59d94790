"""Every stream to tune on, one JSON line for each run and a table of them: ten minutes for two seeds.

    python -m benchmarks.streams --delta 0 1e-9 --seeds 2 --out benchmarks/results/streams-edition-15.jsonl
    python -m benchmarks.streams --stream switch seasonal --delta 0 --set growth=2 --out /tmp/other.jsonl
    python -m benchmarks.streams --show benchmarks/results/streams-edition-15.jsonl /tmp/other.jsonl
    python -m benchmarks.streams --beside-peers benchmarks/results/streams-edition-15.jsonl   (for docs/accuracy.md)
    python -m benchmarks.streams --unseen --seeds 2 --out benchmarks/results/unseen.jsonl   (in make bench-unseen)

Runs go on where a file ends: what is in it is not run again, unless by an older edition of the defaults. ``--show``
runs nothing; with more than one file it puts what they have in common side by side, with the ratio to the first. How to
read it: ``benchmarks.tabular``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.beside import quarters, ratio, table
from benchmarks.data import STREAMS, TO_TUNE_ON, UNSEEN
from benchmarks.environment import environment
from benchmarks.peers import RESULTS as PEERS
from benchmarks.peers import SAME_ROWS
from benchmarks.tabular import Setting, parsed, run
from synthstream.kinds import EDITION

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """Finished runs."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def by_run(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines of all seeds together, of the newest edition: by stream, epsilon and delta, in the order of the streams."""
    places = list(STREAMS)
    groups: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: (line["epsilon"], line["delta"], places.index(line["stream"]))):
        groups.setdefault(f"{line['stream']}, {line['epsilon']:g}, {line['delta']:g}", []).append(line)
    last = {name: max(line.get("edition") or 0 for line in found) for name, found in groups.items()}
    return {name: [x for x in found if (x.get("edition") or 0) == last[name]] for name, found in groups.items()}


def shown(files: Mapping[str, Sequence[Line]]) -> str:
    """One table; of several files, with the ratio of each to the first, over the seeds that both have."""
    (first, *others), names = ([by_run(lines) for lines in files.values()], list(files))
    if not others:
        return table(first)
    parts = [table({})]
    for name, lines in first.items():
        parts += table({f"{name}: {names[0]}": lines}).splitlines()[2:]
        for label, other in zip(names[1:], others, strict=True):
            seeds = {line["seed"] for line in lines} & {line["seed"] for line in other.get(name, [])}
            if seeds:
                parts += table({f"{name}: {label}": other[name]}).splitlines()[2:]
                parts.append(ratio(*([x for x in some if x["seed"] in seeds] for some in (lines, other[name]))))
    return "\n".join(parts)


def beside_peers(lines: Sequence[Line]) -> str:
    """AvgRelL1 at the quarters, over the last whole cycle and of the last release, AvgWE of the same, and independent
    columns.

    Beside them offline releases of all rows, as the last release is one: they see no order, so streams of the same rows
    share their figures. Of runs of AIM with models of several sizes the last one counts.
    """
    offline = {(line["stream"], line["method"], line["delta"]): _offline(line) for line in read(PEERS)}
    head = ["stream", "delta", "seeds", "25 %", "50 %", "75 %", "100 %", "last cycle", "last release"]
    head += ["AvgWE at 100 %", "last cycle", "last release"]
    head += ["independent, no noise", "offline MST", "offline AIM"]
    found = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for runs in by_run(lines).values():
        name, delta = runs[0]["stream"], runs[0]["delta"]
        peers = [offline.get((SAME_ROWS.get(name, name), method, delta), "") for method in ("mst", "aim")]
        cells = [
            f"`{name}`",
            f"{delta:g}",
            str(len(runs)),
            *(f"{value:.3f}" for value in quarters(runs, "avg_rel_l1")),
            *(_mean(runs, name, "avg_rel_l1", 3) for name in ("cycle", "final")),
            f"{quarters(runs, 'avg_we')[-1]:.5f}",
            *(_mean(runs, name, "avg_we", 5) for name in ("cycle", "final")),
            f"{quarters(runs, 'independent_avg_rel_l1')[-1]:.3f}",
            *peers,
        ]
        found.append(f"| {' | '.join(cells)} |")
    return "\n".join(found)


def _mean(runs: Sequence[Line], name: str, key: str, digits: int) -> str:
    """Mean over the last whole cycle, or of the last release; nothing of runs from before there was such a figure."""
    found = [line[name][key] for line in runs if name in line]
    return f"{sum(found) / len(found):.{digits}f}" if found else ""


def _offline(line: Line) -> str:
    """Its error, with the size of AIM's model where that is not the default."""
    return f"{line['avg_rel_l1']:.3f}" + (" (40 MB)" if line.get("max_model_mb") == 40 else "")


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", nargs="+", choices=list(STREAMS), default=TO_TUNE_ON)
    parser.add_argument("--unseen", dest="stream", action="store_const", const=UNSEEN, help="real tables kept aside")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--delta", type=float, nargs="+", default=[0.0, 1e-9])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", default="", metavar="KEY=VALUE,...", help="keys of [synthesizer]")
    parser.add_argument("--processes", type=int, default=2)
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results / f"streams-edition-{EDITION}.jsonl")
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--beside-peers", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.beside_peers:
        print(beside_peers(read(args.beside_peers)))
        return
    if args.show:
        print(shown({path.stem: read(path) for path in args.show}))
        return
    keys = parsed(args.set)
    known = {_key(line) for line in read(args.out)}
    settings = [
        Setting(data=name, order="", batch=0, every="", epsilon=epsilon, delta=delta, method="marginals", seed=seed)
        for seed in range(args.seeds)
        for epsilon in args.epsilon
        for delta in args.delta
        for name in args.stream
    ]
    missing = [
        s for s in settings if _key({**vars(s), "stream": s.stream, "set": keys, "edition": EDITION}) not in known
    ]
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run, setting, keys=keys) for setting in missing]
        for finished in as_completed(running):
            with args.out.open("a") as file:
                file.write(json.dumps({"bench": "streams", **finished.result(), **environment()}) + "\n")
    mine = [line for line in read(args.out) if line.get("set", {}) == keys and line.get("edition") == EDITION]
    print(table(by_run(mine)))


def _key(facts: Mapping[str, Any]) -> str:
    names = ("stream", "epsilon", "delta", "seed")
    return json.dumps([*(facts[name] for name in names), facts.get("set", {}), facts.get("edition")], sort_keys=True)


if __name__ == "__main__":
    main()
