"""A picture of true and synthetic points side by side, for the custodian's eyes. NOT PRIVATE.

python -m synthstream.evaluate.density stream.toml -o density.png
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from synthstream.config.config import StreamConfig, load
from synthstream.errors import ConfigError, SynthstreamError
from synthstream.ingest.counting import encode, files_of
from synthstream.ingest.files import FileSource
from synthstream.publish.outlets import simulated
from synthstream.publish.published import Releases
from synthstream.schema.coordinates import Coordinate
from synthstream.workload import FloatArray, IntArray

STAMP = "NOT PRIVATE: shows the true data. For the custodian alone; do not publish."
_BINS = 200

# Rows, and what each adds.
_Events = tuple[pl.DataFrame, IntArray]
_CHUNK = 250_000


def density(config: StreamConfig, path: Path, *, across: str | None = None, up: str | None = None) -> None:
    """Write a PNG, readable by its owner alone: true events up to the newest release, and that release's rows.

    Args:
        config: a stream of points with a source and a sink, and at least one release.
        path: where to write.
        across, up: columns of the two axes; left out: the second and the first. One column alone is drawn as lines.

    Raises:
        ConfigError: there is no source or sink, or a column is not there.
        NotReleased: there is no release.
    """
    from matplotlib.figure import Figure  # an extra; slow to load

    files = files_of(config)
    if files is None or config.sink is None:
        raise ConfigError("a picture needs [source] and [sink]")
    last = Releases(config).last
    synthetic, tick = last.rows(), last.tick
    true, weights = _events(config, files, tick)
    columns = {column.name: column for column in config.schema.columns if isinstance(column, Coordinate)}
    names = list(columns)
    axes = [across or names[min(1, len(names) - 1)], up or names[0]][: min(2, len(names))]
    for name in axes:
        if name not in columns:
            raise ConfigError(f"{name!r} is not a column of numbers; columns are {names}")
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    pair = {
        f"true: {weights.sum():,} events": (true, weights),
        f"synthetic: {synthetic.height:,} rows": (synthetic, np.ones(synthetic.height, dtype=np.int64)),
    }
    if len(axes) == 1:
        _lines(figure, pair, columns[axes[0]])
    else:
        _maps(figure, pair, columns[axes[0]], columns[axes[1]])
    figure.suptitle(f"{config.name}, events before {config.clock.boundary(tick + 1):%Y-%m-%d}", fontsize=12)
    figure.supxlabel(STAMP, color="#b00020", fontweight="bold", fontsize=11)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
    path.chmod(0o600)
    figure.savefig(path, dpi=130)


def _events(config: StreamConfig, files: FileSource, tick: int) -> _Events:
    """Rows of ticks up to one, and what each adds to the true events: 1 or -1."""
    nothing = np.empty((0, len(config.schema.columns)), dtype=np.int32)
    parts = [config.schema.decode(nothing, np.random.default_rng(0))]
    weights = [np.zeros(0, dtype=np.int64)]
    for path in files.files():
        for chunk in files.read(path, chunk_rows=_CHUNK):
            rows = encode(config, chunk)
            here = rows.ticks <= tick
            parts.append(config.schema.decode(rows.codes[here], np.random.default_rng(0)))
            weights.append(np.ones(here.sum(), dtype=np.int64) if rows.weights is None else rows.weights[here])
    return pl.concat(parts), np.concatenate(weights)


def _maps(figure: Any, frames: dict[str, _Events], x: Coordinate, y: Coordinate) -> None:
    """Events by cell of a grid, in colours on a logarithmic scale, the same for both."""
    from matplotlib.colors import LogNorm

    grids = {title: _grid(events, x, y) for title, events in frames.items()}
    norm = LogNorm(1, max(2.0, *(float(grid.max()) for grid in grids.values())))
    shared = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, (title, grid) in zip(shared, grids.items(), strict=True):
        image = axes.imshow(
            np.where(grid > 0, grid, np.nan).T,
            origin="lower",
            extent=(x.min, x.max, y.min, y.max),
            aspect="auto",
            norm=norm,
            cmap="viridis",
            interpolation="nearest",
        )
        axes.set(title=title, xlabel=x.name, facecolor="#f2f2f2")
    shared[0].set_ylabel(y.name)
    figure.colorbar(image, ax=shared, label="events in a cell", shrink=0.9)


def _grid(events: _Events, x: Coordinate, y: Coordinate) -> FloatArray:
    frame, weights = events
    values = [frame[column.name].to_numpy() for column in (x, y)]
    ranges = np.array([(column.min, column.max) for column in (x, y)])
    grid: FloatArray = np.histogram2d(values[0], values[1], bins=_BINS, range=ranges, weights=weights)[0]
    return grid


def _lines(figure: Any, frames: dict[str, _Events], x: Coordinate) -> None:
    axes = figure.subplots()
    for (title, (frame, weights)), colour in zip(frames.items(), ("#222222", "#0072b2"), strict=True):
        values, span = frame[x.name].to_numpy(), (x.min, x.max)
        axes.hist(values, bins=_BINS, range=span, weights=weights, histtype="step", label=title, color=colour)
    axes.set(xlabel=x.name, ylabel="events in a bin")
    axes.legend()


def main() -> None:
    """Parse, draw, say where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--across", help="column from left to right")
    parser.add_argument("--up", help="column from bottom to top")
    parser.add_argument("--simulate", action="store_true", help="of the simulated run")
    args = parser.parse_args()
    try:
        config = load(args.config)
        density(simulated(config) if args.simulate else config, args.output, across=args.across, up=args.up)
    except SynthstreamError as error:
        raise SystemExit(f"Error: {error}") from None
    print(f"{args.output}. {STAMP}")


if __name__ == "__main__":
    main()
