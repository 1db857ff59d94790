"""Every error that Synthstream raises on purpose, and what keeps private values from going along with any.

    SynthstreamError
    ├── ConfigError           a key of the configuration is missing, unknown or impossible
    ├── SchemaError           a frame lacks a column of the schema, or a column has an unusable type
    ├── BudgetExceeded        the ledger refuses a charge, before any noise is drawn
    ├── HorizonExhausted      the stream has released all the ticks that were paid for
    ├── TickNotOver           a tick was to be closed before the public clock reached its end
    ├── SourceError           a file or log is missing or cannot be read
    │   ├── FileDamaged       the bytes of a file are not of its kind
    │   └── FilesLeftOut      what the content of some files keeps from counting; all else was counted
    ├── BatchConflict         a batch id came again with other content
    ├── CountsMismatch        counts that were made elsewhere are not those of this stream
    ├── EngineError           the engine that counts elsewhere cannot be used, or failed
    ├── StateError            the state folder cannot be used
    │   ├── StateLocked       another process holds it
    │   ├── StateMismatch     it belongs to another configuration
    │   ├── StateRolledBack   published releases are newer than it: an old copy was restored
    │   ├── StateCorrupt      it is damaged, or not a Synthstream state
    │   └── RecoveryRefused   there is nothing to recover, or it cannot be done without harm
    ├── NotReleased           what is asked for is not among the releases, and cannot be made of them
    └── SinkError             the place of publication cannot be written, or holds something else
        └── MirrorError       a mirror failed, or cannot be asked what it holds

Messages say what was expected, what was found and what to do. They never carry a private value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import update_wrapper
from pathlib import Path
from traceback import clear_frames
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class SynthstreamError(Exception):
    """Base of all errors in this package."""


class ConfigError(SynthstreamError, ValueError):
    """A key of the configuration is missing, unknown or impossible."""


class SchemaError(SynthstreamError, ValueError):
    """A frame does not fit the schema: a column is missing or has an unusable type."""


class BudgetExceeded(SynthstreamError):
    """The ledger refuses a charge. Raised before any noise is drawn."""


class HorizonExhausted(SynthstreamError):
    """All ticks that were paid for have been released."""


class TickNotOver(SynthstreamError):
    """The public clock has not reached the end of the open tick."""


class SourceError(SynthstreamError):
    """A file, table or topic is missing or cannot be read, or is another one than it was."""


class FileDamaged(SourceError):
    """The bytes of a file are not of its kind: truncated, empty or spoiled. Nothing of it was counted."""


class FilesLeftOut(SourceError):
    """Some files hold what cannot be counted: damaged, without a column, or changed after they were counted.

    What files hold decides about no other row and no release, so this is raised last: everything else was counted, and
    what was due is published. It is for the operator alone.

    Args:
        findings: what is wrong, by file.
    """

    def __init__(self, findings: Mapping[Path, str]) -> None:
        super().__init__("\n".join(findings.values()))
        self.findings = dict(findings)


class BatchConflict(SynthstreamError):
    """A batch id came again with other content; nothing was counted."""


class CountsMismatch(SynthstreamError):
    """Counts that were made elsewhere are not those of this stream, or are no counts."""


class EngineError(SynthstreamError):
    """The engine that counts elsewhere cannot be used, failed, or goes on from another place than the state."""


class StateError(SynthstreamError):
    """The state folder cannot be used."""


class StateUnbegun(StateError):
    """The first run ended before anything was written down."""


class StateLocked(StateError):
    """Another process holds the state folder."""


class StateMismatch(StateError):
    """The state folder belongs to another configuration."""


class StateRolledBack(StateError):
    """Published releases, or a copy of them in a mirror, are newer than the state: an old one was restored."""


class StateCorrupt(StateError):
    """The state is damaged, or is not a Synthstream state."""


class RecoveryRefused(StateError):
    """There is nothing to recover, or it cannot be done without harm."""


class NotReleased(SynthstreamError, LookupError):
    """What is asked for is not among the releases, and cannot be made of them."""


class SinkError(SynthstreamError):
    """The place of publication cannot be written, or holds something else."""


class MirrorError(SinkError):
    """A mirror (``[[mirror]]``) failed, or cannot be asked what it holds before noise is drawn."""


class RowsRepeat(UserWarning):
    """More rows were asked for than satisfy a condition, so some are given more than once. No error."""


def secretive(function: Callable[P, T]) -> Callable[P, T]:
    """A function that is handed what is private, and is :func:`discreet`."""

    def kept(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with discreet():
                return function(*args, **kwargs)
        finally:
            del args, kwargs  # rows

    return update_wrapper(kept, function)


@contextmanager
def discreet() -> Iterator[None]:
    """What is inside holds rows and exact counts. An error that leaves it keeps its lines, and loses its variables:
    tools that show the locals of a traceback, as notebooks and monitors do, would show them.
    """
    before = sys.exception()  # of the caller's: its variables are not ours to clear
    try:
        yield
    except BaseException as error:
        seen, left = set[int](), [error]
        while left:
            if id(one := left.pop()) not in seen:
                seen.add(id(one))
                clear_frames(one.__traceback__)
                others = (one.__cause__, one.__context__, *getattr(one, "exceptions", ()))
                left += [other for other in others if other is not None and other is not before]
        raise
