"""Points in the unit cube, in the order in which they arrive."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from benchmarks.data import FOLDER
from synthstream.workload import FloatArray

Cloud = Literal["uniform", "clustered", "drift", "circles", "earthquakes"]

_CENTRES = np.array([(0.2, 0.3), (0.7, 0.8), (0.75, 0.2), (0.35, 0.6), (0.5, 0.5)])
_SPREADS = np.array([0.01, 0.02, 0.03, 0.015, 0.05])
_SHARES = np.array([0.35, 0.25, 0.2, 0.15, 0.05])
EARTHQUAKES = 136_547


def points(cloud: Cloud, number: int, dimension: int, seed: int) -> FloatArray:
    """The first points of a cloud, shape ``(number, dimension)``; earthquakes are the same for all seeds.

    Args:
        cloud: ``uniform``; ``clustered``, five normal clusters; ``drift``, one whose centre moves; ``circles``, two
            around one centre, blurred (Kumar, Strohmer, Vershynin 2024); or ``earthquakes`` in Southern California, by
            latitude, longitude and depth.
        number: how many, at most ``EARTHQUAKES`` earthquakes.
        dimension: 1, 2 or 3. Clusters and drift are made in two dimensions, one takes the first coordinate, a third is
            normal around 0.5 with the same spread, independent of the others.
    """
    if dimension not in (1, 2, 3):
        raise ValueError(f"clouds are made in 1, 2 or 3 dimensions, not {dimension}")
    if cloud == "earthquakes":
        return _earthquakes(number, dimension)
    rng = np.random.default_rng(seed)
    if cloud == "uniform":
        return rng.random((number, dimension))
    if cloud == "clustered":
        cluster = rng.choice(len(_SHARES), size=number, p=_SHARES)
        centres, spreads = _CENTRES[cluster], _SPREADS[cluster]
        del cluster
    elif cloud == "circles":
        angle, radius = 2 * np.pi * rng.random(number), np.where(rng.random(number) < 0.5, 0.4, 0.4 * 0.667)
        centres = 0.5 + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        spreads = np.full(number, 0.4 * 0.05)
    else:
        time = np.arange(number) / number
        centres, spreads = np.stack([0.2 + 0.6 * time, 0.5 + 0.3 * np.sin(6 * time)], axis=1), np.full(number, 0.03)
    found = rng.normal(size=(number, 2))  # in place: memory is measured, too
    found *= spreads[:, None]
    found += centres
    if dimension == 3:
        found = np.column_stack([found, 0.5 + spreads * rng.normal(size=number)])
    return np.clip(found[:, :dimension], 0, 1)


def _earthquakes(number: int, dimension: int) -> FloatArray:
    """Scaled to latitudes 32 to 37, longitudes -122 to -114 and depths 0 to 30 km."""
    if number > EARTHQUAKES:
        raise ValueError(f"there are {EARTHQUAKES} earthquakes, not {number}")
    table = pl.read_parquet(FOLDER / "socal_earthquakes_2020_2026.parquet").sort("time", maintain_order=True)
    places = table.head(number).select("lat", "lon", "depth_km").to_numpy().astype(np.float64)
    return np.clip((places - [32, -122, 0]) / [5, 8, 30], 0, 1)[:, :dimension]
