"""Delta Lake: a table that holds the newest release, and older ones in its history. It takes the package deltalake."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import polars as pl

from synthstream.environment import REAL, Env
from synthstream.errors import SinkError
from synthstream.kinds import Content
from synthstream.publish.mirrors import Copied, OfFrames

# A release is never forgotten unless its owner says so.
_FOR_EVER = "interval 36500 days"
_TICK, _HEAD, _MANIFEST = "synthstream.tick", "synthstream.head", "synthstream.manifest"


class DeltaTable(OfFrames):
    """A Delta table; every release is one commit that takes the place of all rows.

    The commit names stream and tick as an application's transaction, so that a release is committed once, whatever
    happens in between; its metadata hold the manifest.

    Args:
        place: a folder, or an address that the package deltalake knows; its credentials come from the environment.
        stream: what tells this stream from all others: the head of its chain before the first tick.

    Raises:
        SinkError: the package deltalake is not installed.
    """

    history = True

    def __init__(self, place: str, *, stream: str, content: Content = "rows", env: Env = REAL) -> None:
        try:
            import deltalake
        except ImportError:
            raise SinkError("Delta Lake is not installed here. Say: pip install 'synthstream[delta]'") from None
        self._lake: Any = deltalake
        self.name = f"Delta table {place}"
        self._place, self._content, self._env = place, content, env
        self._application = f"synthstream/{stream}/{content}"

    def newest(self) -> Copied | None:
        try:
            table = self._lake.DeltaTable(self._place)
        except self._lake.exceptions.TableNotFoundError:
            return None
        except (self._lake.exceptions.DeltaError, OSError) as error:
            raise self._failed("read", error) from None
        tick = table.transaction_version(self._application)
        if tick is None:
            raise SinkError(f"{self.name} is another table, not this stream's. Nothing was changed; name a new place.")
        head = next((entry.get(_HEAD) for entry in table.history() if entry.get(_TICK) == str(tick)), None)
        return Copied(int(tick), None if head is None else str(head))

    def put(self, frame: pl.DataFrame, *, tick: int, manifest: dict[str, Any]) -> None:
        facts = {_TICK: str(tick), _HEAD: str(manifest["chain"]["head"])}
        facts |= {_MANIFEST: json.dumps(manifest, sort_keys=True)}
        transaction = self._lake.Transaction(self._application, tick)
        write = partial(
            self._lake.write_deltalake,
            self._place,
            frame.to_arrow(),
            mode="overwrite",
            schema_mode="overwrite",  # a successor may have other columns
            configuration={
                "delta.logRetentionDuration": _FOR_EVER,
                "delta.deletedFileRetentionDuration": _FOR_EVER,
            },
            commit_properties=self._lake.CommitProperties(custom_metadata=facts, app_transactions=[transaction]),
        )
        try:
            self._env.do("commit to Delta", write)
        except (self._lake.exceptions.DeltaError, OSError) as error:
            raise self._failed("write", error) from None

    def _failed(self, what: str, error: Exception) -> SinkError:
        # The package's own texts may hold addresses with secrets in them.
        return SinkError(
            f"{self.name}: cannot be used ({what}: {type(error).__name__}). Check that the place is there, and that it "
            "can be read and written."
        )
