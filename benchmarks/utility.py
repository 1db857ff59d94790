"""How useful synthetic rows are, by the yardsticks that officials and papers use: JSON lines.

    python -m benchmarks.utility [--method ours mst aim] [--ticks 20] [--epsilon 1] [--delta 1e-9] [--seed 0]

UCI Census Income; a fifth of the rows, chosen at random, is held out before the stream begins, and never counted. The
others come in random order over the ticks. Lines: the true rows themselves; independent columns, each with its true
shares; the rows that were held out, beside what had come at the same ticks, for what chance alone does; ours at ticks
1, 2, 5, 10 and so on, and the last. Income is predicted from the other columns. MST and AIM see all rows that are not
held out at once, and release once (``make bench-peers``: half an hour).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import adult
from benchmarks.environment import environment
from benchmarks.peers import PYTHON, synthetic
from benchmarks.yardsticks import distance, impossible, k_marginal, propensity, tables_of, tstr
from synthstream import Stream, StreamConfig
from synthstream.release.tables import TableRelease
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import CodeArray

_HELD_OUT, _TARGET, _TABLES = 0.2, "income>50K", 100
# Numbers of ticks after which there is a line, beside the last one.
_SHOWN = (1, 2, 5, 10, 20, 50, 100)


def measures(
    true: CodeArray, rows: CodeArray, test: CodeArray, sizes: tuple[int, ...], target: int
) -> dict[str, float]:
    """All yardsticks of rows."""
    two, three = (tables_of(sizes, k, number=_TABLES) for k in (2, 3))
    score, ratio = propensity(true, rows, sizes)
    return {
        "k_marginal_2": k_marginal(true, rows, two),
        "k_marginal_3": k_marginal(true, rows, three),
        "three_way_distance": distance(true, rows, three),
        "impossible": impossible(true, rows, sizes),
        "pmse": score,
        "pmse_ratio": ratio,
        "tstr_auc": tstr(rows, test, sizes, target),
    }


def coverage(release: TableRelease, true: CodeArray) -> float:
    """Share of measured cells whose 95 % bar holds the true count."""
    known = release.measured
    late = known.tick if known.measured_at is None else known.measured_at
    now = np.repeat(np.broadcast_to(late == known.tick, known.since.shape), known.workload.lengths)
    error = np.repeat(np.sqrt(known.variance), known.workload.lengths)
    return float((np.abs(known.values - known.workload.count(true)) <= 1.96 * error)[now].mean())


def lines(
    method: list[str], python: Path, ticks: int, epsilon: float, delta: float, seed: int
) -> Iterator[dict[str, Any]]:
    """A line for each method and tick."""
    codes, sizes = adult("random", seed)
    names = list(json.loads((Path(__file__).parents[1] / "examples/data/adult-domain.json").read_text()))
    target = names.index(_TARGET)
    held = int(_HELD_OUT * len(codes))
    test, train = codes[:held], codes[held:]
    about = {"data": "adult", "held_out": held, "epsilon": epsilon, "delta": delta, "unit": "event", "seed": seed}
    about |= {"neighbours": "add-remove"}
    for peer in [name for name in method if name != "ours"]:
        rows, seconds = synthetic(train, sizes, peer, epsilon, delta, seed, python)
        yield {"method": peer, **about, **measures(train, rows, test, sizes, target), "seconds": seconds}
    if "ours" not in method:
        return
    about["ticks"] = ticks
    rng = np.random.default_rng(seed)
    independent = np.stack([rng.permutation(column) for column in train.T], axis=1)
    for name, rows in (("real rows", train), ("independent columns", independent)):
        yield {"method": name, **about, **measures(train, rows, test, sizes, target)}
    ranges = [{"min": 0, "max": size - 1, "missing": 0} for size in sizes]
    columns = [{"name": name, "type": "integer", **ends} for name, ends in zip(names, ranges, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        config = StreamConfig.of(
            name="adult",
            state="state",
            privacy={"epsilon": epsilon, "delta": delta, "unit": "event"},
            clock={"start": date(2000, 1, 1), "every": "1d", "horizon": ticks},
            columns=columns,
            base=Path(folder),
        )
        with Stream(config, gates=lambda tick: SeededGate(f"{seed}/{tick}"), seed=seed) as stream:
            yield from _ours(stream, train, test, sizes, target, ticks, about)


def _ours(
    stream: Stream,
    train: CodeArray,
    test: CodeArray,
    sizes: tuple[int, ...],
    target: int,
    ticks: int,
    about: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    import polars as pl

    names, ends = stream.config.schema.names, np.linspace(0, len(train), ticks + 1).astype(int)
    for tick in range(ticks):
        if tick + 1 in (*_SHOWN, ticks):
            found = measures(train[: ends[tick + 1]], test, test, sizes, target)
            del found["tstr_auc"]  # it would be tried on the rows that it was trained on
            yield {"method": "held-out rows", "tick": tick, **about, **found}
        stream.update(pl.DataFrame(train[ends[tick] : ends[tick + 1]], schema=list(names)))
        began = time.perf_counter()
        release = stream.release()
        if tick + 1 in (*_SHOWN, ticks) and isinstance(release, TableRelease):
            seen, rows = train[: ends[tick + 1]], release.model.codes.astype(np.int32)
            found = measures(seen, rows, test, sizes, target)
            found |= {"coverage": coverage(release, seen), "seconds": time.perf_counter() - began}
            yield {"method": "synthstream", "tick": tick, **about, **found}


def main() -> None:
    """Print the lines."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--method", nargs="+", choices=["ours", "mst", "aim"], default=["ours"])
    asked.add_argument("--python", type=Path, default=PYTHON, help="of an environment with dpmm, for mst and aim")
    asked.add_argument("--ticks", type=int, default=20)
    asked.add_argument("--epsilon", type=float, default=1.0)
    asked.add_argument("--delta", type=float, default=1e-9)
    asked.add_argument("--seed", type=int, default=0)
    for line in lines(**vars(asked.parse_args())):
        print(json.dumps(line | environment()), flush=True)


if __name__ == "__main__":
    main()
