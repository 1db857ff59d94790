"""Offline AIM and MST on all rows of a stream at once: what one release of everything reaches.

    make bench-peers                                   (builds an environment with dpmm 0.1.9, .venv-peers)
    python -m benchmarks.peers --stream flags evictions-weekly --method mst aim

NOT PRIVATE: errors against the truth. Prints JSON lines, and adds them to results/peers.jsonl; what is in there is not
run again. The order of rows does not matter to an offline method, so streams of the same rows have one run. AIM runs
with dpmm's default, a model of up to 80 MB; lines with ``max_model_mb`` 40 are of half of that. Both size noise by
zCDP. AIM takes from a minute to half an hour, MST from a minute to twenty, and on evictions an hour.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import STREAMS, TO_TUNE_ON, UNSEEN
from benchmarks.environment import environment
from benchmarks.metrics import table_errors
from synthstream.workload import CodeArray, Workload

HERE = Path(__file__).parent
PYTHON = HERE.parent / ".venv-peers" / "bin" / "python"
RESULTS = HERE / "results" / "peers.jsonl"
# Streams of the same rows: of Census Income in other orders, and of evictions in other ticks or with constraints.
SAME_ROWS = dict.fromkeys(("adult-by-age", "adult-by-education-num", "seasonal"), "adult-random")
SAME_ROWS |= {"evictions-fortnightly": "evictions-weekly"}
# Ours is told what cannot occur together, and these methods are not: they are not compared.
TOLD_MORE = ("evictions-crosswalk",)
# Of AIM in dpmm, and its default: the size of its model.
_MODEL_MB = 80


def synthetic(
    codes: CodeArray, sizes: tuple[int, ...], method: str, epsilon: float, delta: float, seed: int, python: Path
) -> tuple[CodeArray, float]:
    """Codes of synthetic rows, as many as the true ones, and the seconds that they took."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "rows.npz", Path(folder) / "synthetic.npz"
        np.savez_compressed(source, codes=codes, sizes=sizes)
        begin = time.perf_counter()
        arguments = [method, str(epsilon), str(delta), str(seed), str(source), str(target)]
        subprocess.run([python, HERE / "peer.py", *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        return np.load(target)["codes"], time.perf_counter() - begin


def run(stream: str, method: str, epsilon: float, delta: float, python: Path) -> dict[str, object]:
    """One release, and its errors over all pairs of columns."""
    data = STREAMS[stream](0)
    pairs = Workload(sizes=data.sizes, marginals=tuple(combinations(range(len(data.sizes)), 2)))
    codes, seconds = synthetic(data.codes, data.sizes, method, epsilon, delta, 0, python)
    errors = table_errors(pairs, true=pairs.count(data.codes), synthetic=pairs.count(codes), events=len(data.codes))
    facts = {"stream": stream, "method": method, "epsilon": epsilon, "delta": delta, "seed": 0}
    facts |= {"max_model_mb": _MODEL_MB} if method == "aim" else {}
    return {"bench": "peers", **facts, **asdict(errors), "seconds": round(seconds), **environment()}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stream", nargs="+", choices=list(STREAMS), default=TO_TUNE_ON)
    parser.add_argument("--unseen", dest="stream", action="store_const", const=UNSEEN, help="real tables kept aside")
    parser.add_argument("--method", nargs="+", choices=["mst", "aim"], default=["mst", "aim"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--python", type=Path, default=PYTHON, help="of an environment with dpmm")
    args = parser.parse_args()
    known = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = {_key(line) for line in known}
    for method in args.method:
        facts = {"method": method, "epsilon": args.epsilon, "delta": args.delta}
        facts |= {"max_model_mb": _MODEL_MB} if method == "aim" else {}
        for stream in dict.fromkeys(SAME_ROWS.get(name, name) for name in args.stream if name not in TOLD_MORE):
            if _key({**facts, "stream": stream}) in done:
                continue
            line = json.dumps(run(stream, method, args.epsilon, args.delta, args.python))
            print(line, flush=True)
            with RESULTS.open("a") as file:
                file.write(line + "\n")


def _key(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(facts.get(name) for name in ("stream", "method", "epsilon", "delta", "max_model_mb"))


if __name__ == "__main__":
    main()
