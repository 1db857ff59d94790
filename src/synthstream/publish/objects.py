"""An object store that gets each release file by file, as the sink has it: others read it as a sink."""

from __future__ import annotations

from functools import partial

from synthstream.config.objects import ObjectPath
from synthstream.environment import REAL, Env
from synthstream.errors import SinkError
from synthstream.publish.folder import ParquetSink
from synthstream.publish.mirrors import Copied


class ObjectFolder:
    """A folder of an object store. Its releases are those that have a manifest, which is written last.

    A copy that was cut short has none, is no release for any reader, and is written again. Every object is written
    whole or not at all; stores promise that, and that what was written is read.

    Args:
        place: the folder.
        stream: what tells this stream from all others: the head of its chain before the first tick.
    """

    history = True

    def __init__(self, place: ObjectPath, *, stream: str, env: Env = REAL) -> None:
        self._place, self._stream, self._env = place, stream, env
        self.name = f"files {place}"

    def newest(self) -> Copied | None:
        published = ParquetSink(self._place)
        ticks = published.ticks()
        if not ticks:
            return None
        first, last = published.manifest(ticks[0]), published.manifest(ticks[-1])
        if first["tick"] == 0 and first["chain"].get("previous") != self._stream:
            raise SinkError(f"{self.name} holds another stream's releases. Nothing was changed; name a new place.")
        return Copied(ticks[-1], str(last["chain"]["head"]))

    def copy(self, sink: ParquetSink, tick: int) -> bool:
        place, files = self._place / sink.place(tick).name, sink.files(tick)
        try:
            for name, content in files.items():
                self._env.do(f"put {name}", partial((place / name).put, content))
        except OSError as error:
            raise SinkError(f"{self.name}: {error.strerror}.") from None
        return True
