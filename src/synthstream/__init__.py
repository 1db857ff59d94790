"""Synthstream: a synthetic copy of a private event stream, kept up to date under one privacy budget."""

from synthstream.clock import Clock
from synthstream.columns import Boolean, Category, Datetime, Integer, Number
from synthstream.config import StreamConfig
from synthstream.errors import SynthstreamError
from synthstream.plan import Plan, plan
from synthstream.privacy import Budget, Claim, Unit
from synthstream.release import Measured, Release
from synthstream.schema import Schema
from synthstream.stream import Stream, open  # noqa: A004 - synthstream.open is the name
from synthstream.workload import Workload

__all__ = [
    "Boolean",
    "Budget",
    "Category",
    "Claim",
    "Clock",
    "Datetime",
    "Integer",
    "Measured",
    "Number",
    "Plan",
    "Release",
    "Schema",
    "Stream",
    "StreamConfig",
    "SynthstreamError",
    "Unit",
    "Workload",
    "open",
    "plan",
]
