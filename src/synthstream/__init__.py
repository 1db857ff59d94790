"""Synthstream: a synthetic copy of a private event stream, kept up to date under one privacy budget."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from synthstream.compiling import use_a_writable_cache

if TYPE_CHECKING:
    from synthstream.clock import Clock
    from synthstream.columns import Boolean, Category, Datetime, Integer, Number
    from synthstream.config import StreamConfig
    from synthstream.counting import CountsByTick
    from synthstream.counting_elsewhere import Counting
    from synthstream.errors import SynthstreamError
    from synthstream.measured import Measured
    from synthstream.planning import Plan, plan
    from synthstream.privacy import Budget, Claim, Unit
    from synthstream.published import Releases, releases
    from synthstream.release import Release
    from synthstream.schema import Schema
    from synthstream.stream import Stream, open  # noqa: A004 - synthstream.open is the name
    from synthstream.workload import Workload

if "NUMBA_CACHE_DIR" not in os.environ:
    use_a_writable_cache()

# Where each public name is defined. Modules are loaded when a name of theirs is first used, so that a command that
# needs none of them answers at once.
_HOMES = {
    "Boolean": "columns",
    "Budget": "privacy",
    "Category": "columns",
    "Claim": "privacy",
    "Clock": "clock",
    "Counting": "counting_elsewhere",
    "CountsByTick": "counting",
    "Datetime": "columns",
    "Integer": "columns",
    "Measured": "measured",
    "Number": "columns",
    "Plan": "planning",
    "Release": "release",
    "Releases": "published",
    "Schema": "schema",
    "Stream": "stream",
    "StreamConfig": "config",
    "SynthstreamError": "errors",
    "Unit": "privacy",
    "Workload": "workload",
    "open": "stream",
    "plan": "planning",
    "releases": "published",
}

__all__ = [
    "Boolean",
    "Budget",
    "Category",
    "Claim",
    "Clock",
    "Counting",
    "CountsByTick",
    "Datetime",
    "Integer",
    "Measured",
    "Number",
    "Plan",
    "Release",
    "Releases",
    "Schema",
    "Stream",
    "StreamConfig",
    "SynthstreamError",
    "Unit",
    "Workload",
    "open",
    "plan",
    "releases",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
