"""A file that is none is left out whole, before any of it counts, with a message that does not depend on its rows."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthstream import Stream, StreamConfig
from synthstream.errors import FileDamaged, SchemaError
from tests.rows.bad_rows import BROKEN, TOML
from tests.rows.observing import INPUT, Observed, observe
from tests.support.gates import ExactGate

Rows = tuple[str, int]


def csv_of(rows: Rows, header: str = "c,n,t") -> bytes:
    text, number = rows
    return (header + "\n" + f"{text},{number},2026-01-02\n" * 500).encode()


def parquet_of(rows: Rows, names: tuple[str, str, str] = ("c", "n", "t")) -> bytes:
    text, number = rows
    file = io.BytesIO()
    columns = ([text] * 500, [number] * 500, ["2026-01-02"] * 500)
    table = pa.table(dict(zip(names, columns, strict=True)))
    pq.write_table(table, file, row_group_size=100, compression="none", use_dictionary=False, write_statistics=False)
    return file.getvalue()


def _spoiled(content: bytes, place: int) -> bytes:
    return content[:place] + b"\xff" * 16 + content[place + 16 :]


MALFORMED: dict[str, tuple[str, Callable[[Rows], bytes]]] = {
    "empty csv": ("csv", lambda rows: b""),
    "csv without a header": ("csv", lambda rows: csv_of(rows).split(b"\n", 1)[1]),
    "csv with another header": ("csv", lambda rows: csv_of(rows, "c,n,when")),
    "csv with a column twice": ("csv", lambda rows: csv_of(rows, "c,c,n,t")),
    "csv with semicolons": ("csv", lambda rows: csv_of(rows).replace(b",", b";")),
    "csv in UTF-16": ("csv", lambda rows: csv_of(rows).decode().encode("utf-16")),
    "csv that is a Parquet file": ("csv", lambda rows: parquet_of(rows)),
    "csv that begins with a blank line": ("csv", lambda rows: b"\n" + csv_of(rows)),
    "empty parquet": ("parquet", lambda rows: b""),
    "parquet that is a csv": ("parquet", csv_of),
    "parquet cut at its beginning": ("parquet", lambda rows: parquet_of(rows)[4:]),
    "parquet cut in its middle": ("parquet", lambda rows: parquet_of(rows)[: len(parquet_of(rows)) // 2]),
    "parquet cut at its end": ("parquet", lambda rows: parquet_of(rows)[:-1]),
    "parquet without its footer": ("parquet", lambda rows: b"PAR1" + b"\0" * 100 + b"PAR1"),
    "parquet with another size of its footer": (
        "parquet",
        lambda rows: parquet_of(rows)[:-8] + b"\xff\xff\xff\x7fPAR1",
    ),
    "parquet spoiled in its first page": ("parquet", lambda rows: _spoiled(parquet_of(rows), 4)),
    "parquet spoiled in its footer": ("parquet", lambda rows: _spoiled(parquet_of(rows), len(parquet_of(rows)) - 60)),
    "parquet with another column": ("parquet", lambda rows: parquet_of(rows, ("c", "n", "when"))),
    "parquet with other columns": ("parquet", lambda rows: parquet_of(rows, ("x", "y", "z"))),
}


def left_out(folder: Path, kind: str, content: bytes, capfd: pytest.CaptureFixture[str]) -> Observed:
    """A stream that meets a good file, then a bad one, then the same file mended."""
    (folder / INPUT).mkdir(parents=True)
    text = TOML.replace("parquet", kind, 1).replace('op = "op"\n', "") + BROKEN
    config = StreamConfig.from_toml(text, base=folder)
    plain = pl.DataFrame({"c": ["red"] * 7, "n": [5] * 7, "t": ["2026-01-02"] * 7})

    def write(name: str) -> None:
        frame = plain.with_columns(note=pl.lit(name))
        (frame.write_csv if kind == "csv" else frame.write_parquet)(folder / INPUT / name)

    def run() -> None:
        write(f"a.{kind}")
        bad = folder / INPUT / f"b.{kind}"
        bad.write_bytes(content)
        with Stream(config, gates=lambda _: ExactGate()) as stream:
            print(stream.ingest(), stream.findings)
            assert list(stream.findings) == [bad]
            assert re.search(r"b\.\w+:? .*[Nn]othing (of it )?was counted", stream.findings[bad])
            with pytest.raises((FileDamaged, SchemaError)) as caught:
                stream.update(bad)
            assert str(caught.value) == stream.findings[bad]
            assert int(stream._store.pending(1).numbers.sum()) == 7 * len(stream.mechanism.workload.marginals)
            write(f"b.{kind}")
            print(stream.ingest())
            assert not stream.findings
            stream.update(plain)
            while stream.due():
                stream.release()
            print(round(float(stream.last.measured.values[0])) if stream.last else None)

    return observe(folder, run, capfd)


@pytest.mark.sparing(4)
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_left_out_whole(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kind, make = MALFORMED[name]
    ways: list[Rows] = [("red", 1), ("canary7319402658", 7319402658)]
    one, two = (left_out(tmp_path / "x", kind, make(rows), capfd) for rows in ways)
    assert one == two
    assert one.ending == "returned None"
    assert one.out.splitlines()[-2:] == ["1", "21"]
    assert "7319402" not in "\n".join(two.texts())
