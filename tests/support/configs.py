"""Configurations of small streams: one builder, and the sections that most of them have."""

from __future__ import annotations

WARD = '[[columns]]\nname = "ward"\ntype = "category"\nvalues = ["A", "B", "C"]\n'
URGENT = '[[columns]]\nname = "urgent"\ntype = "boolean"\n'
SINK = '[sink]\nkind = "parquet"\npath = "releases"\n'


def number(name: str, rest: str, *, high: int = 100) -> str:
    """A column of numbers from 0 on; ``rest``: its bins, or what is missing."""
    return f'[[columns]]\nname = "{name}"\ntype = "number"\nmin = 0\nmax = {high}\n{rest}\n'


AGE = number("age", "bins = 4")


def source(path: str) -> str:
    """Parquet files to count."""
    return f'[source]\nkind = "parquet"\npath = "{path}"\n'


def stream_toml(
    *sections: str,
    name: str = "visits",
    epsilon: float = 1.0,
    delta: float | str = "1e-9",
    unit: str = '"event"',
    neighbours: str | None = None,
    until: str = "2026-01-06",
    horizon: int = 8,
) -> str:
    """A ``stream.toml`` of a stream whose ticks are days from 2026-01-01 on; further sections in their order."""
    privacy = f"[privacy]\nepsilon = {epsilon}\ndelta = {delta}\nunit = {unit}\n"
    if neighbours is not None:
        privacy += f'neighbours = "{neighbours}"\n'
    clock = f'[clock]\ncolumn = "when"\nstart = 2026-01-01\nevery = "1d"\nuntil = {until}\nhorizon = {horizon}\n'
    return "".join([f'name = "{name}"\nstate = "state"\n', privacy, clock, *sections])


# Each key stands in it.
GOOD = stream_toml(WARD.replace(', "C"', ""), AGE, SINK)
