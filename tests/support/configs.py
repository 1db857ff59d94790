"""Configurations of small streams: one builder, and the sections that most of them have."""

from __future__ import annotations

import json

URGENT = '[[columns]]\nname = "urgent"\ntype = "boolean"\n'
SINK = '[sink]\nkind = "parquet"\npath = "releases"\n'


def category(name: str, *values: str) -> str:
    """A column of these values."""
    return f'[[columns]]\nname = "{name}"\ntype = "category"\nvalues = {json.dumps(values)}\n'


def number(name: str, rest: str, *, kind: str = "number", low: float | str = 0, high: float | str = 100) -> str:
    """A column of numbers or times between two bounds; ``rest``: its bins, or what is missing."""
    return f'[[columns]]\nname = "{name}"\ntype = "{kind}"\nmin = {low}\nmax = {high}\n{rest}\n'


WARD, AGE = category("ward", "A", "B", "C"), number("age", "bins = 4")


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
    column: str | None = "when",
    until: str | None = "2026-01-06",
    horizon: int = 8,
) -> str:
    """A ``stream.toml`` of a stream whose ticks are days from 2026-01-01 on; further sections in their order.

    ``column`` and ``until``: of the clock, None to leave them out.
    """
    privacy = f"[privacy]\nepsilon = {epsilon}\ndelta = {delta}\nunit = {unit}\n"
    if neighbours is not None:
        privacy += f'neighbours = "{neighbours}"\n'
    clock = "[clock]\n" + (f'column = "{column}"\n' if column else "") + 'start = 2026-01-01\nevery = "1d"\n'
    clock += (f"until = {until}\n" if until else "") + f"horizon = {horizon}\n"
    return "".join([f'name = "{name}"\nstate = "state"\n', privacy, clock, *sections])


# Each key stands in it.
GOOD = stream_toml(WARD.replace(', "C"', ""), AGE, SINK)
