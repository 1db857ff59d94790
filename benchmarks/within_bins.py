"""How far numbers of rows are from true ones, given the bins that hold them: as rows lie in bins now, and evenly.

    python -m benchmarks.within_bins          (with the tables kept aside, if make bench-unseen has fetched them)

NOT PRIVATE: this program sees the truth. Each column is cut into bins, from its .5 % to its 99.5 % quantile or, as
"cuts", at quantiles; its rows get numbers from their bins alone. W1 is that to the true numbers, divided by that of
rows that lie evenly in the same bins: the geometric mean over all columns, and the worst. Errors of means are divided
likewise; the middle one is told. With noise, each bin has normal noise of that standard deviation. Prints a JSON line
for each setting and puts them into results/within-bins.jsonl, then a table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import wasserstein_distance

from benchmarks.data import EXAMPLES
from benchmarks.environment import environment
from synthstream.errors import SchemaError
from synthstream.schema.binned import Integer, Number
from synthstream.workload import FloatArray

_RESULT = Path(__file__).parent / "results" / "within-bins.jsonl"
_KEPT_ASIDE = Path(__file__).parent / "unseen" / "numbers"
# (how bins are cut, how many, standard deviation of the noise of a bin, rows at most)
SETTINGS = (
    *(("even", bins, 0, 40_000) for bins in (5, 10, 20, 50)),
    *(("even", bins, 50, 20_000) for bins in (5, 10, 20, 50)),
    *(("even", bins, 30, 3_000) for bins in (5, 10, 20)),
    *(("cuts", bins, noise, 40_000 if noise == 0 else 20_000) for noise in (0, 50) for bins in (6, 12)),
)


def columns() -> dict[str, FloatArray]:
    """By name: earthquakes, made ones of eight laws, and numbers kept aside."""
    rng, n = np.random.default_rng(0), 40_000
    quakes = pl.read_parquet(EXAMPLES / "data" / "socal_earthquakes_2020_2026.parquet")
    found = {f"earthquakes {name}": quakes[name].to_numpy() for name in ("lat", "lon", "depth_km", "mag")}
    found |= {
        "exponential": rng.exponential(1, n),
        "lognormal": rng.lognormal(0, 1, n),
        "normal": rng.normal(0, 1, n),
        "gamma": rng.gamma(2, 1, n),
        "two peaks": np.where(rng.random(n) < 0.5, rng.normal(-2, 0.5, n), rng.normal(2, 1, n)),
        "even": rng.random(n),
        "both ends": rng.beta(0.5, 0.5, n),
        "Pareto": rng.pareto(2, n),
    }
    for path in sorted(_KEPT_ASIDE.glob("*.npz")):
        with np.load(path) as kept:
            found |= {f"{path.stem} {name}": kept[name] for name in kept.files}
    return found


def cut(how: str, bins: int, true: FloatArray) -> Number | Integer:
    """A column of these bins.

    Raises:
        SchemaError: the numbers are too few, or too much alike, for so many bins.
    """
    whole = bool(np.all(true == np.rint(true)))
    low, high = np.quantile(true, [0.005, 0.995])
    step = 10 ** np.floor(np.log10(max(high - low, 1e-9) / 10))  # ends as people write them
    low, high = np.floor(low / step) * step, np.ceil(high / step) * step
    if how == "even":
        if whole:
            return Integer(name="x", min=int(low), max=int(high), bins=bins)
        return Number(name="x", min=low, max=high, bins=bins)
    ends = np.unique(np.quantile(true, np.linspace(0, 1, bins + 1)))
    if whole:
        ends = np.unique(np.append(np.floor(ends[:-1]), np.floor(ends[-1]) + 1))
        whole_ends = tuple(int(end) for end in ends)
        return Integer(name="x", min=whole_ends[0], max=whole_ends[-1] - 1, bins=len(ends) - 1, cuts=whole_ends)
    return Number(name="x", min=ends[0], max=ends[-1], bins=len(ends) - 1, cuts=tuple(float(end) for end in ends))


def compared() -> Iterator[dict[str, Any]]:
    """One line for each setting, over the columns that have so many bins, of more than one number."""
    known = columns()
    for how, bins, noise, rows in SETTINGS:
        w1, mean = dict[str, float](), list[float]()
        for name, every in known.items():
            rng = np.random.default_rng([bins, noise, rows])
            true = rng.choice(every, min(rows, every.size), replace=False)
            try:
                column = cut(how, bins, true)
            except SchemaError:
                continue
            if len(column.edges) < 4 or (column.whole and np.all(np.diff(column.edges) == 1)):
                continue
            true = np.clip(true, column.edges[0], column.edges[-1] - column.whole)
            held = np.bincount(column.encode(pl.Series(true)), minlength=column.size)[: len(column.edges) - 1]
            held = np.maximum(np.rint(held + rng.normal(0, noise, held.size)), 0).astype(np.int64)
            codes = rng.permutation(np.repeat(np.arange(held.size), held)).astype(np.int32)
            leant = column.decode(codes, np.random.default_rng(1)).to_numpy()
            even = column.at(codes, np.random.default_rng(1).random(codes.size)).to_numpy()
            w1[name] = round(wasserstein_distance(leant, true) / wasserstein_distance(even, true), 3)
            mean.append(abs(leant.mean() - true.mean()) / max(abs(even.mean() - true.mean()), 1e-12))
        yield {
            "bench": "within_bins",
            "bins": f"{how} {bins}",
            "rows": rows,
            "noise": noise,
            "columns": len(w1),
            "w1": round(float(np.exp(np.mean(np.log([*w1.values()])))), 3),
            "worst": max(w1.values()),
            "mean": round(float(np.median(mean)), 3),
            "w1_by_column": w1,
        }


def table(lines: list[dict[str, Any]]) -> str:
    """Ratios, for each setting over its columns."""
    head = ("bins", "rows", "noise", "columns", "w1", "worst", "mean")
    found = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    return "\n".join(found + [f"| {' | '.join(str(line[key]) for key in head)} |" for line in lines])


def main() -> None:
    """Compare, print, write."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    lines = [{**line, **environment()} for line in compared()]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    _RESULT.write_text(text)
    print(text, end="")
    print(table(lines))


if __name__ == "__main__":
    main()
