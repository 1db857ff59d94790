"""Do the error bars of the demo hold? Coverage and spread of the measured tables against the truth.

    python -m benchmarks.coverage

Runs the eviction stream with real noise in a folder of its own and compares every measured cell with the true count at
the tick that it was measured at, which for larger tables is that of the last refresh. The noise is fresh: figures
differ from run to run, and cells of a run share the noise of what they have in common. NOT PRIVATE: this program sees
the truth. At tick t: the share of cells with |measured - true| <= 1.96 stderr (nominal 0.95), the same for 1 stderr
(nominal 0.683), the root mean square of (measured - true) / stderr (nominal 1), and the root mean square of measured -
true beside the one that `synthstream plan` forecasts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.environment import environment
from synthstream.config.config import load
from synthstream.forecast.planning import plan
from synthstream.ingest.counting import encode
from synthstream.stream.stream import Stream

CONFIG = Path(__file__).parent.parent / "examples" / "evictions" / "stream.toml"
AT = (0, 9, 99, 260)


def main() -> None:
    """Run, compare, print one JSON line per tick looked at."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    config = load(CONFIG)
    workload = config.workload
    if workload is None:
        raise SystemExit("the configuration has no tables")
    frame = pl.read_parquet(CONFIG.parent / "../data/sf_evictions_2011_2015.parquet")
    rows = encode(config, frame)
    forecasts = plan(config, at_ticks=[t + 1 for t in AT]).forecasts
    with tempfile.TemporaryDirectory() as folder:
        sink = config.sink.model_copy(update={"path": Path(folder) / "releases"}) if config.sink else None
        with Stream(replace(config, state=Path(folder) / "state", sink=sink)) as stream:
            for release in stream.run():
                if release.tick not in AT:
                    continue
                counts = np.zeros(workload.cells)
                at = np.repeat(release.measured.until, workload.lengths)
                for tick in np.unique(at):
                    past = rows.ticks <= tick
                    weights = None if rows.weights is None else rows.weights[past]
                    counts = np.where(at == tick, workload.count(rows.codes[past], weights), counts)
                stderr = np.repeat(np.sqrt(release.measured.variance), workload.lengths)
                error = release.measured.values - counts
                forecast = forecasts[AT.index(release.tick)]
                line = {
                    "bench": "coverage",
                    "data": "sf_evictions",
                    "tick": release.tick,
                    "cells": workload.cells,
                    "within_1_stderr": round(float(np.mean(np.abs(error) <= stderr)), 4),
                    "within_1.96_stderr": round(float(np.mean(np.abs(error) <= 1.96 * stderr)), 4),
                    "rms_z": round(float(np.sqrt(np.mean((error / stderr) ** 2))), 4),
                    "rms_error": round(float(np.sqrt(np.mean(error**2))), 3),
                    "forecast_2way": round(forecast.stderr[2], 3),
                }
                print(json.dumps({**line, **environment()}), flush=True)


if __name__ == "__main__":
    main()
