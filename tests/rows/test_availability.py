"""Which releases exist, and when, is decided by the configuration, the clock and what is there alone.

The real program runs in two neighbouring worlds with the same noise at its gate (theorem availability). What is public
must be the same in both: files, places, and what ``status``, ``verify`` and ``sample`` say. What ``run`` itself says,
and its exit status, are for the operator.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import deltalake
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.errors import SourceError, SynthstreamError
from synthstream.stream.stream import Stream as StreamClass
from tests.rows.aligned import Aligned
from tests.rows.bad_rows import BROKEN, TOML
from tests.rows.observing import INPUT, command_line, public_files
from tests.support.gates import ExactGate

Source = Literal["parquet", "csv", "updates", "log"]
How = Literal["run", "follow", "python"]
HOWS: tuple[How, ...] = ("run", "follow", "python")
Row = tuple[str | None, str | None, str | None]

FIRST, SECOND = "2026-01-03", "2026-01-06"
TICKS = 5
PLAIN: list[Row] = [("red", "5", "2026-01-02"), ("blue", "-7", "2026-01-04")] * 10
PLACES = {
    "folder": "",
    "folder and table": '[[mirror]]\nkind = "delta"\npath = "lake"\n',
    "nowhere": None,
}

# What is in the second world and not in the first, in files: what counted before, or came new in the same batch.
ODD: dict[str, Row] = {
    "one row more": ("red", "5", "2026-01-02"),
    "a row of nothing": (None, None, None),
    "a row with an odd cell": ("\ufffd\u2028" * 9, "1e999", "0000-99-99"),
    "a quotation mark that is never closed": ('"red', "5", "2026-01-02"),
    "a quotation mark in the last cell": ("red", "5", '"2026-01-02'),
}
CHANGES = ("appended to a counted file", "a file of one event", "the first file, of one event", "damaged", "no column")


class World(NamedTuple):
    """What comes of a run: what everybody sees, and what the operator alone does."""

    public: dict[str, Any]
    told: list[str]


def content(rows: Sequence[Row], kind: str, names: str = "cnt") -> bytes:
    """A file. In a CSV file cells stand as they are: what a quotation mark does is tested."""
    if kind == "csv":
        lines = [",".join(cell or "" for cell in row) for row in rows]
        return "\n".join([",".join(names), *lines, ""]).encode()
    file = io.BytesIO()
    pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row").write_parquet(file)
    return file.getvalue()


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys("cnt", pl.String), orient="row")


class Log:
    """A log in memory, in the place of a server's: its cursor is the number of rows before it."""

    name = "kafka visits"
    waits = False

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def look(self) -> None:
        """It is there."""

    def read(self, after: bytes | None) -> Iterator[tuple[pl.DataFrame, bytes]]:
        """See :class:`synthstream.ingest.cursors.CursorSource`."""
        place = int(after or b"0")
        for start in range(place, len(self.rows), 7):
            part = self.rows[start : start + 7]
            yield frame(part), str(start + len(part)).encode()

    def close(self) -> None:
        """Nothing is open."""


def configuration(source: Source, places: str) -> str:
    text = TOML.replace('op = "op"\n', "") + BROKEN
    section = '[source]\nkind = "parquet"\npath = "input/*"\n'
    assert section in text
    by = {"updates": "", "log": '[source]\nkind = "kafka"\ntopic = "visits"\n'}
    text = text.replace(section, by.get(source, section.replace("parquet", source)))
    mirror = PLACES[places]
    if mirror is None:
        return text.replace('[sink]\nkind = "parquet"\npath = "releases"\n', "")
    return text + mirror


def told(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Output and exit status of a command, and what it said to the operator."""
    status: object = "came back"
    try:
        command_line(*words)
    except SystemExit as error:
        status = error.code
    out, err = capfd.readouterr()
    return f"{status}\n{out}", err


def released(config: Path, how: How, until: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Count, and close what is due; the operator's own output."""
    if how != "python":
        more = ["--follow"] if how == "follow" else []
        return "\n".join(told(capfd, "run", str(config), "--yes", "--until", until, *more))
    with Stream(StreamConfig.from_toml(config.read_text(), base=config.parent)) as stream:
        try:
            for _ in stream.run(until=datetime.fromisoformat(until).replace(tzinfo=UTC)):
                pass
        except SynthstreamError as error:
            return f"{type(error).__name__} {error}"
    return "well"


def seen(folder: Path, config: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """All that is public."""
    lake = folder / "lake"
    table = []
    if lake.exists():
        for entry in deltalake.DeltaTable(lake).history():
            version = pl.read_delta(str(lake), version=entry["version"])
            table.append((entry["synthstream.manifest"], version.rows()))
        shutil.rmtree(lake)  # its files have names of chance
    found = {"files": public_files(folder), "table": table}
    sink = "[sink]" in config.read_text()
    for words in (["status"], ["status", "--json"], *([["verify"], ["sample", "-n", "9", "--seed", "1"]] * sink)):
        found[" ".join(words)] = told(capfd, words[0], str(config), *words[1:])
    return found


def in_files(kind: str, name: str | None, folder: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    """What is written before the first run and before the second."""
    change, place = name or "", folder / INPUT
    start: list[Row] = [] if change == "the first file, of one event" or "first" in folder.name else PLAIN

    def first() -> None:
        if start:
            (place / f"a.{kind}").write_bytes(content(start, kind))

    def second() -> None:
        more = [*PLAIN[:3], ODD[change], *PLAIN[3:]] if change in ODD else PLAIN
        if "first" not in folder.name:
            (place / f"b.{kind}").write_bytes(content(more, kind))
        if change == "appended to a counted file":
            (place / f"a.{kind}").write_bytes(content([*start, ODD["one row more"]], kind))
        if "of one event" in change:
            (place / f"c.{kind}").write_bytes(content([ODD["one row more"]], kind))
        if change == "damaged":
            (place / f"c.{kind}").write_bytes(b"" if kind == "csv" else b"PAR1")
        if change == "no column":
            (place / f"c.{kind}").write_bytes(content(PLAIN, kind, names="cnx"))

    return first, second


def world(
    folder: Path, source: Source, places: str, how: How, name: str | None, gates: Any,
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> World:  # fmt: skip
    """Run a stream: something comes, two ticks close; more comes, three more close. Then the folder is gone."""
    (folder / INPUT).mkdir(parents=True)
    config = folder / "stream.toml"
    config.write_text(configuration(source, places))
    operator = []
    with monkeypatch.context() as patch:
        defaults: Any = StreamClass.__init__.__kwdefaults__
        patch.setitem(defaults, "gates", gates)
        if source in ("csv", "parquet"):
            steps = in_files(source, name, folder)
        else:
            steps = in_memory(source, name, config, patch)
        for step, until in zip(steps, (FIRST, SECOND), strict=True):
            step()
            operator.append(released(config, how, until, capfd))
    public = seen(folder, config, capfd)
    shutil.rmtree(folder)
    return World(public, operator)


def in_memory(
    source: Source, name: str | None, config: Path, patch: pytest.MonkeyPatch
) -> tuple[Callable[[], None], Callable[[], None]]:
    log = Log()
    for asks in ("intake", "logs"):
        patch.setattr(f"synthstream.ingest.{asks}.opened", lambda *_: log)
    more = [*PLAIN, *([ODD[name]] if name in ODD else [])]

    def take(rows: list[Row], *, broken: bool) -> None:
        if source == "log":
            log.rows += rows
            return
        with Stream(StreamConfig.from_toml(config.read_text(), base=config.parent)) as stream:
            stream.update(frame(rows), batch_id=str(stream.closed))
            if broken:  # its caller is told at once, and it decides nothing
                (config.parent / INPUT / "x.parquet").write_bytes(b"PAR1")
                with pytest.raises(SourceError, match="truncated"):
                    stream.update(config.parent / INPUT / "x.parquet")

    return partial(take, PLAIN, broken=False), partial(take, more, broken=name == "damaged")


def both(
    folder: Path, source: Source, places: str, how: How, name: str, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[World, World]:  # fmt: skip
    gates = Aligned(3)
    place = folder / ("first" if "first" in name else "x")
    one = world(place, source, places, how, None, partial(gates.gate, "one"), capfd, monkeypatch)
    two = world(place, source, places, how, name, partial(gates.gate, "two"), capfd, monkeypatch)
    return one, two


def cases() -> Iterator[Any]:
    sources: tuple[Source, ...] = ("parquet", "csv", "updates", "log")
    for source in sources:
        names = [*ODD, *CHANGES] if source in ("parquet", "csv") else [*ODD, *(["damaged"] * (source == "updates"))]
        for i, name in enumerate(names):
            # Every change on every source; ways to run and places take turns, but for those that once were wrong.
            hows = HOWS if name in CHANGES else (HOWS[i % 3],)
            for j, how in enumerate(hows):
                places = list(PLACES)[(i + j) % 3]
                yield pytest.param(source, places, how, name, id=f"{source}, {name}, {how}, {places}")


@pytest.mark.sparing(6, 10)
@pytest.mark.parametrize(("source", "places", "how", "name"), list(cases()))
def test_what_is_public_is_the_same_in_both_worlds(
    source: Source, places: str, how: How, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    one, two = both(tmp_path, source, places, how, name, capfd, monkeypatch)
    for key in one.public:
        assert one.public[key] == two.public[key], key
    # Nothing released would be the same in both, too.
    assert json.loads(one.public["status --json"][0].split("\n", 1)[1])["ticks"] == TICKS
    if places != "nowhere":
        assert len([f for f in one.public["files"] if f.endswith("manifest.json")]) == TICKS
    if places == "folder and table":
        assert len(one.public["table"]) == TICKS
    left_out = source in ("parquet", "csv") and name in ("appended to a counted file", "damaged", "no column")
    expected = "FilesLeftOut" if how == "python" else "1\n"
    assert two.told[1].startswith(expected) == left_out, two.told[1]


def counted(rows: Sequence[Row], folder: Path) -> int:
    """Exact number of events that wait, in all ticks."""
    (folder / INPUT).mkdir(parents=True)
    (folder / INPUT / "a.csv").write_bytes(content(rows, "csv"))
    with Stream(
        StreamConfig.from_toml(configuration("csv", "folder"), base=folder), gates=lambda _: ExactGate()
    ) as stream:
        assert stream.ingest() == 1
        *_, last = stream.run()
    return round(float(last.measured.values[0]))


@pytest.mark.parametrize("name", ODD)
def test_one_line_of_a_csv_file_is_one_event(name: str, tmp_path: Path) -> None:
    """A quotation mark that it never closes takes no other row away."""
    with_it = [*PLAIN[:3], ODD[name], *PLAIN[3:]]
    assert counted(with_it, tmp_path / "two") - counted(PLAIN, tmp_path / "one") == 1


def test_a_finding_that_stops_a_run_would_be_seen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test can fail: the rule that was there before, a changed file stops a run before a tick is closed."""
    ingest = Stream.ingest

    def stopping(stream: Stream, **more: Any) -> int:
        new = ingest(stream, **more)
        if stream.findings:
            raise SourceError("stop")
        return new

    monkeypatch.setattr(Stream, "ingest", stopping)
    one, two = both(tmp_path, "parquet", "folder", "run", "appended to a counted file", capfd, monkeypatch)
    assert one.public["files"].keys() > two.public["files"].keys()
    assert one.public["status"] != two.public["status"]
