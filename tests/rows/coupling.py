"""What can be seen of two neighbours whose noise is aligned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from synthstream import Stream, StreamConfig
from synthstream.kernel.gate import Gate
from tests.rows.aligned import Aligned, Run
from tests.rows.observing import INPUT, Observed, command_line, observe
from tests.rows.streams import FILES, Batches, Pair, frame_of_rows, write_file


class Seen(NamedTuple):
    """What can be seen of two runs."""

    one: Observed
    two: Observed
    calls: tuple[dict[int, int], dict[int, int]]

    def differs(self) -> list[str]:
        """Names of what differs."""
        found = [name for name in Observed._fields if getattr(self.one, name) != getattr(self.two, name)]
        return [*found, *(["calls"] if self.calls[0] != self.calls[1] else [])]


def see(folder: Path, pair: Pair, seed: int, capfd: pytest.CaptureFixture[str]) -> Seen:
    """Run both streams in the same folder, one after the other."""
    gates = Aligned(seed)
    one = _see_one(folder, pair, pair.one, gates, "one", capfd)
    two = _see_one(folder, pair, pair.two, gates, "two", capfd)
    return Seen(one, two, gates.calls())


def _see_one(
    folder: Path, pair: Pair, batches: Batches, gates: Aligned, run: Run, capfd: pytest.CaptureFixture[str]
) -> Observed:
    (folder / INPUT).mkdir(parents=True)
    how = _by_command if pair.way in FILES else _by_calls
    with gates.kary(run):
        return observe(folder, lambda: how(folder, pair, batches, partial(gates.gate, run)), capfd)


def _by_calls(folder: Path, pair: Pair, batches: Batches, gates: Callable[[int], Gate]) -> None:
    config = StreamConfig.from_toml(pair.text, base=folder)
    stream = Stream(config, gates=gates)
    try:
        for number, (rows, moment) in enumerate(zip(batches, pair.moments, strict=True)):
            stream.update(frame_of_rows(rows, pair.columns, pair.way), batch_id=f"batch {number}")
            while stream.due(until=datetime.fromisoformat(moment).replace(tzinfo=UTC)):
                print(stream.release(until=datetime.fromisoformat(moment)))
            print(stream.status())
            if pair.reopen:
                stream.close()
                stream = Stream(config, gates=gates)
        if stream.last is not None:
            print(stream.rows().rows(), stream.last.tables.rows())
    finally:
        stream.close()


def _by_command(folder: Path, pair: Pair, batches: Batches, gates: Callable[[int], Gate]) -> list[str]:
    """The command line, with other noise in the place of the system's."""
    path = folder / "stream.toml"
    path.write_text(pair.text)
    defaults: Any = Stream.__init__.__kwdefaults__
    exits = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "gates", gates)
        for number, (rows, moment) in enumerate(zip(batches, pair.moments, strict=True)):
            write_file(folder, number, rows, pair.columns, pair.way)
            exits.append(_exit("run", str(path), "--yes", "--until", moment))
        exits.append(_exit("status", str(path)))
        if "[sink]" in pair.text:
            exits.append(_exit("sample", str(path), "-n", "5", "--seed", "1"))
    return exits


def _exit(*command: str) -> str:
    try:
        command_line(*command)
    except SystemExit as error:
        return f"{command[0]}: exit {error.code}"
    return f"{command[0]}: came back"
