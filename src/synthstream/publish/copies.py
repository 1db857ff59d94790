"""Other places of publication, as witnesses and as readers have them: asked before a draw, copied to afterwards."""

from __future__ import annotations

from synthstream.config.config import StreamConfig
from synthstream.environment import REAL, Env
from synthstream.errors import PlaceError, SinkError, StateRolledBack
from synthstream.publish.folder import ParquetSink
from synthstream.publish.mirrors import Heads, catch_up, refuse_fork
from synthstream.publish.outlets import places_of

_AGAIN = "What is published stays published in the sink, and will be copied when you run again."


class Copies:
    """The places of ``[[also]]``, by kind and number, as in ``delta 1``: their names may hold what is not public.

    A place that was published to knows of releases that a state and a sink have forgotten, if both were put back from a
    snapshot. So every place is asked what it holds when a state is opened, and again before each draw: two copies of a
    state that go on at once, each with a sink of its own, have nothing else in common.

    Args:
        config: of the stream.
        env: does the side effects.
        unchecked: open also without places that cannot be asked.

    Raises:
        SinkError: a package that a place needs is not installed.
    """

    def __init__(self, config: StreamConfig, env: Env = REAL, *, unchecked: bool = False) -> None:
        names = [f"{also.kind} {number}" for number, also in enumerate(config.also, 1)]
        self._places = dict(zip(names, places_of(config, env), strict=True))
        self._answered, self._may_lack = set[str](), unchecked
        self._failed: SinkError | None = None  # what the first one said that could not be asked
        self._forked: str | None = None

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The places that have not answered yet."""
        return tuple(name for name in self._places if name not in self._answered)

    def open(self, heads: Heads) -> None:
        """As :meth:`ask`, when a state is opened or adopted: a place that cannot be asked is an error.

        Raises:
            PlaceError: a place cannot be asked.
            StateRolledBack: see :meth:`ask`.
        """
        self.ask(heads)
        if self._failed is not None and not self._may_lack:
            raise PlaceError(
                f"{self._failed} Nobody can tell whether it holds a release that is not known here, and whether noise "
                "would be drawn twice. Mend that; or go on without asking, with --unchecked (in Python, "
                "unchecked=True): the manifest of every release says so that is drawn before the place answers. No "
                "noise was drawn."
            )

    def ask(self, heads: Heads) -> tuple[str, ...]:
        """Ask every place what it holds, before noise is drawn. One that has answered before, and fails now, is told of
        when it cannot be copied to; it delays nothing.

        Args:
            heads: of the chain that goes on, by tick.

        Returns:
            :attr:`unchecked`.

        Raises:
            StateRolledBack: one holds, or once held, a release that is not of this chain.
        """
        self._failed = None
        if self._forked is not None:
            raise StateRolledBack(self._forked)
        for name, place in self._places.items():
            try:
                refuse_fork(place, place.newest(), heads)
                self._answered.add(name)
            except SinkError as error:
                self._failed = self._failed or error
            except StateRolledBack as error:
                self._forked = str(error)
                raise
        return self.unchecked

    def publish(self, sink: ParquetSink) -> int:
        """Copy to every place what it lacks, also if one before it fails.

        Returns:
            Number of releases that were copied.

        Raises:
            PlaceError: what the first one that failed said.
            StateRolledBack: one holds a release that is not of this chain: nothing more may be drawn.
        """
        copied, failed, forked = 0, list[SinkError](), list[StateRolledBack]()
        for name, place in self._places.items():
            try:
                copied += catch_up(sink, place)
                self._answered.add(name)
            except SinkError as error:
                failed.append(error)
            except StateRolledBack as error:
                forked.append(error)
        if forked:
            self._forked = str(forked[0])
            raise forked[0]
        if failed:
            raise PlaceError(f"{failed[0]} {_AGAIN}") from failed[0]
        return copied
