"""Mirrors, as witnesses and as readers have them: asked before a draw, copied to afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from synthstream.config.config import StreamConfig
from synthstream.environment import REAL, Env
from synthstream.errors import MirrorError, SinkError, StateRolledBack
from synthstream.publish.folder import ParquetSink
from synthstream.publish.mirrors import Heads, asked, catch_up
from synthstream.publish.outlets import mark_of, mirror_of

_AGAIN = "What is published stays published in the sink, and will be copied when you run again."


class Marks(NamedTuple):
    """Where it is remembered that a mirror has held the stream: reads whether a mark is set, and sets one for ever."""

    read: Callable[[str], bool]
    write: Callable[[str], None]


_NONE = Marks(lambda _: False, lambda _: None)


class Copies:
    """The mirrors, by kind and number, as in ``delta 1``: their names may hold what is not public.

    A mirror knows of releases that a state and a sink have forgotten, if both were put back from a snapshot. So
    every mirror is asked what it holds when a state is opened, and again before each draw: two copies of a state that
    go on at once, each with a sink of its own, have nothing else in common. One that holds nothing, although it was
    copied to, is like one that does not answer: its disk may not be mounted.

    Args:
        unchecked: open also without mirrors that cannot be asked.

    Raises:
        SinkError: a package that a mirror needs is not installed.
    """

    def __init__(self, config: StreamConfig, env: Env = REAL, *, unchecked: bool = False) -> None:
        names = [f"{mirror.kind} {number}" for number, mirror in enumerate(config.mirrors, 1)]
        made = [mirror_of(mirror, config.genesis, env) for mirror in config.mirrors]
        self._mirrors = dict(zip(names, made, strict=True))
        self._mark = dict(zip(names, map(mark_of, config.mirrors), strict=True))
        self._answered, self._may_lack, self._marks = set[str](), unchecked, _NONE
        self._failed: SinkError | None = None  # what the first one said that could not be asked
        self._forked: str | None = None

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The mirrors that did not answer when they were last asked, nor were copied to since."""
        return tuple(name for name in self._mirrors if name not in self._answered)

    @property
    def held(self) -> tuple[str, ...]:
        """Marks of the mirrors that have held the stream, as far as is remembered."""
        return tuple(mark for mark in self._mark.values() if self._marks.read(mark))

    def open(self, heads: Heads, marks: Marks = _NONE) -> None:
        """As :meth:`ask`, when a state is opened or adopted: a mirror that cannot be asked is an error.

        Args:
            heads: of the chain that goes on, by tick.
            marks: where the state remembers mirrors from now on; left out: there is no state yet.

        Raises:
            MirrorError: a mirror cannot be asked.
            StateRolledBack: see :meth:`ask`.
        """
        self._marks = marks
        self.ask(heads)
        if self._failed is not None and not self._may_lack:
            raise MirrorError(
                f"{self._failed} Nobody can tell whether it holds a release that is not known here, and whether noise "
                "would be drawn twice. Mend that; or go on without asking, with --unchecked (in Python, "
                "unchecked=True): every release that is drawn before the mirror answers says so in its manifest. No "
                "noise was drawn."
            )

    def ask(self, heads: Heads) -> tuple[str, ...]:
        """Ask every mirror what it holds, before noise is drawn. One that fails then delays nothing: the manifest says
        so, also if it has answered before, as it may have learned of another draw since.

        Args:
            heads: of the chain that goes on, by tick.

        Returns:
            The mirrors that did not answer this time.

        Raises:
            StateRolledBack: one holds, or once held, a release that is not of this chain.
        """
        if self._forked is not None:
            raise StateRolledBack(self._forked)
        self._failed, self._answered = None, set()
        for name, mirror in self._mirrors.items():
            try:
                known = asked(mirror, heads, held=self._held(name))
                self._confirm(name, holds=known is not None)
            except SinkError as error:
                self._failed = self._failed or error
            except StateRolledBack as error:
                self._forked = str(error)
                raise
        return self.unchecked

    def newest(self) -> dict[str, int | None]:
        """The newest tick that each mirror holds, -1 if it holds none; ``None`` if it does not answer."""
        found = dict[str, int | None]()
        for name, mirror in self._mirrors.items():
            try:
                known = mirror.newest()
                found[name] = -1 if known is None else known.tick
            except SinkError:
                found[name] = None
        return found

    def publish(self, sink: ParquetSink) -> int:
        """Copy to every mirror what it lacks, also if one before it fails; returns how many releases were copied.

        Raises:
            MirrorError: what the first one that failed said.
            StateRolledBack: one holds a release that is not of this chain: nothing more may be drawn.
        """
        copied, failed, forked = 0, list[SinkError](), list[StateRolledBack]()
        for name, mirror in self._mirrors.items():
            try:
                taken = catch_up(sink, mirror, held=self._held(name) and not self._may_lack)
                copied += taken
                self._confirm(name, holds=taken > 0)
            except SinkError as error:
                failed.append(error)
            except StateRolledBack as error:
                forked.append(error)
        if forked:
            self._forked = str(forked[0])
            raise forked[0]
        if failed:
            raise MirrorError(f"{failed[0]} {_AGAIN}") from failed[0]
        return copied

    def _held(self, name: str) -> bool:
        """Whether a mirror has held the stream, as far as is remembered."""
        return self._marks.read(self._mark[name])

    def _confirm(self, name: str, *, holds: bool) -> None:
        """A mirror has answered; what holds a release is remembered, should it ever hold nothing."""
        self._answered.add(name)
        if holds and not self._held(name):
            self._marks.write(self._mark[name])
