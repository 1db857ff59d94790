"""Configurations that bad rows come to."""

from __future__ import annotations

TOML = """
name = "odd"
state = "state"
op = "op"
[privacy]
epsilon = 1.0
delta = 1e-9
unit = "event"
[clock]
column = "t"
start = 2026-01-01
every = "1d"
until = 2026-01-09
horizon = 8
[source]
kind = "parquet"
path = "input/*"
[sink]
kind = "parquet"
path = "releases"
"""


BROKEN = """
[[columns]]
name = "c"
type = "category"
values = ["red", "blue"]
[[columns]]
name = "n"
type = "number"
min = -100
max = 100
bins = 4
"""
