"""Counters of the papers: block, binary and hybrid, for Laplace noise."""

from __future__ import annotations

from synthstream.kernel.counters import Served, register
from synthstream.papers.counters.spans import Binary, Block, Hybrid

__all__ = ["Binary", "Block", "Hybrid"]

register("block", Served(lambda horizon, _: Block(horizon=horizon), ("laplace",)))
register("binary", Served(lambda horizon, _: Binary(horizon=horizon or 0), ("laplace",), instead="hybrid"))
register("hybrid", Served(lambda horizon, _: Hybrid(horizon=horizon), ("laplace",)))
