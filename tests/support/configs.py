"""A configuration in which each key stands."""

from __future__ import annotations

GOOD = """\
name = "visits"
state = "state"
[privacy]
epsilon = 1.0
delta = 1e-9
unit = "event"
[clock]
column = "when"
start = 2026-01-01
every = "1d"
until = 2026-01-06
horizon = 8
[[columns]]
name = "ward"
type = "category"
values = ["A", "B"]
[[columns]]
name = "age"
type = "number"
min = 0
max = 100
bins = 4
[sink]
kind = "parquet"
path = "releases"
"""
