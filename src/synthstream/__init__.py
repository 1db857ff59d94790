"""Synthstream: a synthetic copy of a private event stream, kept up to date under one privacy budget."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from synthstream.environment import use_a_writable_cache

if TYPE_CHECKING:  # `as` tells checkers of types that a name is public
    from synthstream.config.config import StreamConfig as StreamConfig
    from synthstream.errors import SynthstreamError as SynthstreamError
    from synthstream.evaluate.check_page import check as check
    from synthstream.forecast.planning import Plan as Plan
    from synthstream.forecast.planning import plan as plan
    from synthstream.ingest.counting import CountsByTick as CountsByTick
    from synthstream.measured import Measured as Measured
    from synthstream.privacy import Budget as Budget
    from synthstream.privacy import Claim as Claim
    from synthstream.privacy import Unit as Unit
    from synthstream.publish.catalogue import describe as describe
    from synthstream.publish.published import Releases as Releases
    from synthstream.publish.published import releases as releases
    from synthstream.release.release import Release as Release
    from synthstream.schema.binned import Datetime as Datetime
    from synthstream.schema.binned import Integer as Integer
    from synthstream.schema.binned import Number as Number
    from synthstream.schema.clock import Clock as Clock
    from synthstream.schema.columns import Boolean as Boolean
    from synthstream.schema.columns import Category as Category
    from synthstream.schema.columns import Words as Words
    from synthstream.schema.schema import Schema as Schema
    from synthstream.stream.counting_elsewhere import Counting as Counting
    from synthstream.stream.stream import Stream as Stream
    from synthstream.stream.stream import open as open  # noqa: A004 - synthstream.open is the name
    from synthstream.stream.succession import succeed as succeed
    from synthstream.workload import Workload as Workload

if "NUMBA_CACHE_DIR" not in os.environ:
    use_a_writable_cache()

# Where each public name is defined. Modules are loaded when a name of theirs is first used, so that a command that
# needs none of them answers at once.
_HOMES = {
    "Boolean": "schema.columns",
    "Budget": "privacy",
    "Category": "schema.columns",
    "Claim": "privacy",
    "Clock": "schema.clock",
    "Counting": "stream.counting_elsewhere",
    "CountsByTick": "ingest.counting",
    "Datetime": "schema.binned",
    "Integer": "schema.binned",
    "Measured": "measured",
    "Number": "schema.binned",
    "Plan": "forecast.planning",
    "Release": "release.release",
    "Releases": "publish.published",
    "Schema": "schema.schema",
    "Stream": "stream.stream",
    "StreamConfig": "config.config",
    "SynthstreamError": "errors",
    "Unit": "privacy",
    "Words": "schema.columns",
    "Workload": "workload",
    "check": "evaluate.check_page",
    "describe": "publish.catalogue",
    "open": "stream.stream",
    "plan": "forecast.planning",
    "releases": "publish.published",
    "succeed": "stream.succession",
}

if not TYPE_CHECKING:  # checkers of types, which read no list that is computed, take what is imported above
    __all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *_HOMES})
