"""Streams that are wrong on purpose: a harness that cannot see what they do wrong proves nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from synthstream.environment import Env
from synthstream.kernel.gate import Gate
from synthstream.publish.folder import ParquetSink
from synthstream.release.release import Release
from synthstream.stream import opening
from synthstream.stream import stream as streams
from synthstream.stream.stream import Stream
from tests.crash import world

CONTROLS = ("publish-first", "publish-first-unchecked", "synchronous-normal")


class PublishesFirst(Stream):
    """Publishes what it is about to commit. Answers of the gate are not kept (:func:`drive`): a tick is drawn again."""

    def _commit(self, gate: Gate) -> None:
        real = self._store.transaction

        @contextmanager
        def early(what: str) -> Iterator[None]:
            with real(what):
                yield
                if what == "measurement":
                    self._sink.publish(self._early(), key=self._store.secret)

        self._store.transaction = early  # type: ignore[method-assign]
        try:
            super()._commit(gate)
        finally:
            self._store.transaction = real  # type: ignore[method-assign]

    def _early(self) -> Release:
        """The release of the tick that is being committed."""
        return self._builder.build(self.closed, self._model, self._models(self.closed) or {})[1]


class Overwriting(ParquetSink):
    """Replaces a release that is there."""

    def publish(self, release: Release, *, key: bytes | None = None, newest: int = 0) -> str:
        """See :meth:`ParquetSink.publish`."""
        final = self.place(release.tick)
        if final.exists() and self._newest(release.tick).head != release.head:
            shutil.rmtree(final)
        return super().publish(release, key=key, newest=newest)


class SyncsLater(Stream):
    """Leaves it to the system when commits reach the disk, and does not empty the log, which would sync them."""

    def _open(self, identity: Mapping[str, str]) -> None:
        self._store.db.execute("PRAGMA synchronous = NORMAL")
        self._store.wipe = lambda: None  # type: ignore[method-assign]
        super()._open(identity)


def drive(control: str | None, folder: Path, kind: str, *, exact: bool, env: Env, ticks: int) -> bool:
    """Like :func:`world.drive`, with a control's stream. In a process of its own: it changes the package."""
    kept: dict[str | None, type[Stream]] = {None: Stream, "synchronous-normal": SyncsLater}
    if control in ("publish-first", "publish-first-unchecked"):
        streams.__dict__.update(JournalGate=lambda gate, store, tick: gate)
    if control == "publish-first-unchecked":

        def overwriting(config: Any, env: Env) -> Any:
            return Overwriting(config.sink.path, rows=config.sink.rows, keep=config.sink.keep, env=env)

        streams.__dict__.update(sink_of=overwriting)
        opening.__dict__.update(compare_with_sink=lambda *_: None)
    return world.drive(folder, kind, exact=exact, env=env, ticks=ticks, stream=kept.get(control, PublishesFirst))


def repair(control: str | None, folder: Path) -> None:
    """What an operator in a hurry does with a control that was refused: removes the newest release and goes on."""
    places = sorted((folder / "releases").glob("[0-9]*"))
    if control is not None and places:
        shutil.rmtree(places[-1])
    anchor = folder / "state.anchor.json"
    if control is not None and anchor.exists():
        stands = json.loads(anchor.read_text())
        if stands["tick"]:
            anchor.write_text(json.dumps({**stands, "tick": stands["tick"] - 1}))
