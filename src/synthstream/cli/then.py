"""``synthstream run --then``: a command of the operator's after each release."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

from synthstream.cli.common import note
from synthstream.cli.runtime import fail

if TYPE_CHECKING:
    from synthstream.release.release import Release
    from synthstream.stream.stream import Stream


class Then:
    """A command that no shell reads; it runs once for each release, in order, and delays none that fails.

    Args:
        text: as it was typed; ``None`` for no command.
    """

    def __init__(self, text: str | None) -> None:
        self.failed = False
        try:
            self._words = shlex.split(text or "")
        except ValueError:
            raise SystemExit(fail(f"--then {text}: a quotation mark is not closed.")) from None
        if text is not None and not self._words:
            raise SystemExit(fail("--then: name a command, as in --then 'rsync -a releases/ www:/srv/releases'."))

    def __bool__(self) -> bool:
        return bool(self._words)

    def after(self, stream: Stream, release: Release) -> None:
        """Run it. It finds in its environment which release it is."""
        if not self._words:
            return
        config = stream.config
        told = {
            "SYNTHSTREAM_NAME": config.name,
            "SYNTHSTREAM_TICK": str(release.tick),
            "SYNTHSTREAM_END": release.end.isoformat(),
            "SYNTHSTREAM_RELEASE": "" if config.sink is None else str(config.sink.path / f"{release.tick:06d}"),
        }
        note(f"running {self._words[0]}")
        try:
            done = subprocess.run(  # noqa: S603 - the command is the operator's own, and no shell reads it
                self._words, stdin=subprocess.DEVNULL, env=os.environ | told, cwd=config.base
            )
        except OSError as error:
            self._failed(f"{error.strerror}")
        else:
            if done.returncode:
                self._failed(f"status {done.returncode}")

    def _failed(self, why: str) -> None:
        self.failed = True
        fail(f"--then {self._words[0]}: {why}. The release is published; further ones are, too.")
