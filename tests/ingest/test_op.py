"""Rows that add or take away: how an op is read, what it counts, what it may not change, and what is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing.parametric import series
from typer.testing import CliRunner

import synthstream
from synthstream import Releases, Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import BatchConflict, ConfigError, SchemaError, StateMismatch
from synthstream.forecast.planning import plan
from synthstream.ingest.draft import draft
from synthstream.kernel.gate import Gate
from synthstream.schema.coercion import polars_frame, signs
from synthstream.state.sealing import framed
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.aligned import Aligned
from tests.support.environments import At
from tests.support.gates import ExactGate
from tests.support.visits import TOML, exact, finish, total

SIGNED = TOML.replace("[privacy]", 'op = "op"\n[privacy]')
PURE = SIGNED.replace("delta = 1e-9", "delta = 0")


def rows(days: list[int], ops: list[Any], *, ward: str = "A", age: float = 30.0) -> pl.DataFrame:
    """One row per given day of January 2026, with its op."""
    when = [datetime(2026, 1, d, 12) for d in days]
    return pl.DataFrame({"when": when, "ward": [ward] * len(days), "age": [age] * len(days), "op": ops})


def configured(folder: Path, text: str = SIGNED) -> StreamConfig:
    return StreamConfig.from_toml(text, base=folder)


def counts(release: synthstream.Release) -> list[int]:
    return [int(value) for value in np.rint(release.measured.values)]


# -- how it is read ---------------------------------------------------------------------------------------------

READ: list[tuple[pl.Series, list[int]]] = [
    (pl.Series([-1, 1, 0, -2, None, 2**62]), [-1, 1, 1, 1, 1, 1]),
    (pl.Series([-1, 1, None], dtype=pl.Int8), [-1, 1, 1]),
    (pl.Series([-1, 2**100], dtype=pl.Int128), [-1, 1]),
    (pl.Series([1, 255], dtype=pl.UInt8), [1, 1]),
    (pl.Series([2**64 - 1], dtype=pl.UInt64), [1]),
    (pl.Series([-1.0, -1.5, -0.0, float("nan"), float("-inf"), None]), [-1, 1, 1, 1, 1, 1]),
    (pl.Series([-1.0, 1.0], dtype=pl.Float32), [-1, 1]),
    (pl.Series(["-1", " -1 ", "-1.0", "\t-1\n", "1", "+1", "", "- 1", "delete", "--1", None]), [-1] * 4 + [1] * 7),
    (pl.Series(["-1", "1"], dtype=pl.Categorical), [-1, 1]),
    (pl.Series(["-1", "1"], dtype=pl.Enum(["-1", "1"])), [-1, 1]),
    (pl.Series([b"-1", b"\xff", None]), [-1, 1, 1]),
    (pl.Series([True, False, None]), [1, 1, 1]),
    (pl.Series([None, None]), [1, 1]),
    (pl.Series([decimal.Decimal("-1"), decimal.Decimal("-1.5"), None]), [-1, 1, 1]),
    (pl.Series([dt.date(1969, 12, 31), None]), [1, 1]),
    (pl.Series([dt.datetime(1969, 12, 31)]), [1]),
    (pl.Series([-1], dtype=pl.Duration("us")), [1]),
    (pl.Series([[-1], None]), [1, 1]),
    (pl.Series([{"a": -1}]), [1]),
    (pl.Series([-1, -1.0, "-1", decimal.Decimal("-1.0"), None, object(), True], dtype=pl.Object), [-1] * 4 + [1] * 3),
    (pl.Series([], dtype=pl.Null), []),
]


@pytest.mark.parametrize(("cells", "expected"), READ, ids=lambda p: str(p.dtype) if isinstance(p, pl.Series) else "")
def test_only_minus_one_takes_away(cells: pl.Series, expected: list[int]) -> None:
    found = signs(cells)
    assert found.dtype == np.int64
    assert found.tolist() == expected
    assert [int(signs(cells[i : i + 1])[0]) for i in range(len(cells))] == expected


CELLS: list[Any] = [-1, -1.0, " -1.0 ", decimal.Decimal(-1), None, float("nan"), 1, "x", True, np.int8(-1)]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"op": pd.Series(CELLS, dtype=object)}),
        pd.DataFrame({"op": pd.Series([-1, -1, -1, -1, None, None, 1, 2, 3, -1], dtype="Int64")}),
        pd.DataFrame({"op": pd.Series([-1, -1, -1, -1, None, None, 1, 2, 3, -1], dtype="float32")}),
        pd.DataFrame({"op": pd.Series(["-1"] * 4 + ["x"] * 5 + ["-1"], dtype="category")}),
        pa.table({"op": pa.array([-1, -1, -1, -1, None, None, 1, 2, 3, -1], pa.int8())}),
        pa.table({"op": pa.array(["-1"] * 4 + ["x"] * 5 + ["-1"]).dictionary_encode()}),
        pa.table({"op": pa.array([decimal.Decimal(v) for v in (-1, -1, -1, -1, 0, 0, 1, 2, 3, -1)])}),
    ],
)
def test_every_kind_of_frame_reads_alike(frame: Any) -> None:
    assert signs(polars_frame(frame, ["op"])["op"]).tolist() == [-1] * 4 + [1] * 5 + [-1]


@settings(max_examples=150, deadline=None)
@given(cells=series(name="x", max_size=8), cut=st.integers(0, 8))
def test_reading_is_total_and_cell_by_cell(cells: pl.Series, cut: int) -> None:
    found = signs(cells)
    assert set(found.tolist()) <= {-1, 1}
    assert np.array_equal(found, np.concatenate([signs(cells[:cut]), signs(cells[cut:])]))


# -- what it counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SIGNED, PURE], ids=["zcdp", "pure"])
def test_an_event_and_its_deletion_cancel_exactly(tmp_path: Path, text: str) -> None:
    with Stream(configured(tmp_path, text), gates=exact) as stream:
        stream.update(rows([1, 1, 1], ["1", "-1", None], ward="B"))
        first = stream.release()
        stream.update(rows([2], [-1], ward="B"))
        second = stream.release()
    assert total(first) == pytest.approx(1, abs=0.1)
    assert total(second) == pytest.approx(0, abs=0.1)
    assert len(first.rows()) == 1
    assert len(second.rows()) == 0
    if text == SIGNED:  # all running counts are back where they began
        assert set(counts(second)) == {0}


def test_a_deletion_lands_in_the_tick_of_its_time(tmp_path: Path) -> None:
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(rows([1, 1, 3, 5], [1, 1, -1, -1]))
        found = []
        while stream.due():
            found.append(round(total(stream.release())))
    assert found == [2, 2, 1, 1, 0]


def test_a_deletion_changes_its_own_cell_alone(tmp_path: Path) -> None:
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(rows([1, 1], [1, 1]))
        stream.update(rows([1], [-1], ward="B", age=99.0))
        release = stream.release()
    assert release.table(["ward"])["measured"].round().to_list() == [2, -1, 0, 0, 0]
    assert release.table(["age"])["measured"].round().to_list() == [0, 2, 0, -1, 0]
    assert total(release) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_are_counted_with_their_signs(tmp_path: Path, kind: str) -> None:
    frame = rows([1, 1, 2, 2], ["1", "-1.0", None, " -1"])
    frame.write_csv(tmp_path / "v.csv") if kind == "csv" else frame.write_parquet(tmp_path / "v.parquet")
    text = SIGNED.replace('kind = "parquet"\npath = "visits*.parquet"', f'kind = "{kind}"\npath = "v.*"')
    with Stream(configured(tmp_path, text), gates=exact) as stream:
        assert [round(total(release)) for release in stream.run()] == [0] * 5
        stream.update(tmp_path / f"v.{kind}", batch_id="again")
        stream.update(rows([1, 1, 1], [-1, 1, 1]).to_pandas())
        stream.update(rows([1], [-1]).to_arrow())
        assert not stream._store.pending(5).cells.size


def test_empty_batches_and_ticks_count_nothing(tmp_path: Path) -> None:
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(rows([], []), batch_id="none")
        stream.release()
        stream.update(rows([2, 2], [1, -1]), batch_id="both")
        assert set(counts(stream.release())) == {0}
        assert set(counts(finish(stream))) == {0}


ALWAYS = '[synthesizer]\nmeasure = "always"\ncounter = "{}"\n'
SYNTHESIZERS = {
    **{f"zcdp {kind}": (1e-9, ALWAYS.format(kind), "8") for kind in ("auto", "simple", "toeplitz", "blt")},
    **{
        f"pure {kind}": (0, ALWAYS.format(kind), "8")
        for kind in ("auto", "simple", "block", "binary", "hybrid", "kary")
    },
    "zcdp unbounded": (1e-9, ALWAYS.format("auto"), '"unbounded"'),
    "pure unbounded": (0, ALWAYS.format("auto"), '"unbounded"'),
    "zcdp pairs alone": (1e-9, '[synthesizer]\nmarginals = [["ward", "age"]]\n', "8"),
    "epochs": (0, "", "8"),
    "epochs that choose": (0, '[synthesizer]\nmeasure = "epochs"\npicks = 1\n', '"unbounded"'),
}


@pytest.mark.sparing(6, 12)
@pytest.mark.parametrize("how", SYNTHESIZERS)
@pytest.mark.parametrize("gate", [lambda tick: ExactGate(), lambda tick: SeededGate(tick)], ids=["exact", "seeded"])
def test_totals_below_zero_publish_no_rows_and_break_nothing(
    tmp_path: Path, how: str, gate: Callable[[int], Gate]
) -> None:
    delta, section, horizon = SYNTHESIZERS[how]
    text = SIGNED.replace("delta = 1e-9", f"delta = {delta}").replace("horizon = 8", f"horizon = {horizon}")
    text = text.replace("[source]", section + "[source]")
    if "choose" in how:
        text = text.replace("[source]", '[[columns]]\nname = "op2"\ntype = "boolean"\n[source]')
    many = 20_000

    def batch(day: int, op: int, ward: str) -> pl.DataFrame:
        return rows([day] * many, [op] * many, ward=ward).with_columns(op2=pl.lit(value=True))

    lengths, sums = [], []
    with Stream(configured(tmp_path, text), gates=gate) as stream:
        stream.update(batch(1, -1, "A"))  # only deletions, of what was never there
        for day, op, ward in ((3, 1, "B"), (4, 1, "B"), (5, -1, "B")):
            stream.update(batch(day, op, ward))
        while stream.due():
            release = stream.release()
            lengths.append(len(release.rows()))
            sums.append(total(release))
            assert release.tables["count"].min() >= 0  # type: ignore[operator]
    near = pytest.approx(many, rel=0.25)
    assert [-s for s in sums[:2]] == [near, near]
    assert lengths[:2] == [0, 0]
    assert lengths[3] == near
    assert pl.read_parquet(tmp_path / "releases" / "000000" / "rows.parquet").height == 0
    assert len(Releases(configured(tmp_path, text)).at(0).rows(3)) == 0


# -- one batch, one file ----------------------------------------------------------------------------------------


def test_a_batch_with_other_signs_is_another_batch(tmp_path: Path) -> None:
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(rows([1, 1], [1, -1]), batch_id="a")
        stream.update(rows([1, 1], ["+1", "-1.0"]), batch_id="a")  # the same in other words
        with pytest.raises(BatchConflict, match="'a'"):
            stream.update(rows([1, 1], [-1, 1]), batch_id="a")
        stream.update(rows([1, 1], [1, 1]), batch_id="b")
        assert round(total(stream.release())) == 2


def test_streams_without_op_name_their_batches_and_settings_as_before(tmp_path: Path) -> None:
    plain = StreamConfig.from_toml(TOML, base=tmp_path)
    with Stream(plain, gates=exact) as stream:
        frame = rows([1], [-1])
        stream.update(frame, batch_id="a")
        codes, ticks = plain.schema.encode(frame), plain.clock.ticks_of(frame)
        mac = hmac.new(stream._store.secret, framed(codes.tobytes(), ticks.tobytes()), hashlib.sha256)
        assert stream._store.ingested("batch a") == mac.hexdigest()
        assert round(total(stream.release())) == 1  # a column of that name means nothing to it
        assert "signed" not in stream.status()["spent"][0]
    signed = json.loads(configured(tmp_path).public_json())
    assert signed.pop("op") == "op"
    assert signed == json.loads(plain.public_json())


# -- what is promised -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", ["1e-9", "0"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_claim_says_that_events_have_signs(tmp_path: Path, delta: str, neighbours: str) -> None:
    def opened(text: str) -> StreamConfig:
        text = text.replace("delta = 1e-9", f'delta = {delta}\nneighbours = "{neighbours}"')
        return StreamConfig.from_toml(text, base=tmp_path)

    plain, signed = opened(TOML), opened(SIGNED)
    makers = [synthesizer_of(config) for config in (plain, signed)]
    one, two = (made.mechanism for made in makers)
    assert one.fingerprint() != two.fingerprint()
    assert two.claim().unit.signed
    assert two.claim().fits(signed.privacy.budget)
    assert "adding or taking away" in plan(signed).words
    ratio = makers[1].expected_variance(3) / makers[0].expected_variance(3)
    if delta == "0":  # rows of either sign are counted too
        assert np.all((ratio > 1) & (ratio < 5))
    else:
        assert ratio == pytest.approx(2.0 if neighbours == "replace-one" else 1.0, rel=1e-2)
    with Stream(signed) as stream:
        assert stream.status()["spent"][0]["signed"] is True


def test_a_running_stream_neither_gains_nor_loses_its_op(tmp_path: Path) -> None:
    Stream(configured(tmp_path)).close()
    for other in (TOML, SIGNED.replace('op = "op"', 'op = "sign"')):
        with pytest.raises(StateMismatch, match="other settings: op"):
            Stream(configured(tmp_path, other))


@pytest.mark.sparing(4)
@pytest.mark.parametrize("text", [SIGNED, PURE], ids=["zcdp", "pure"])
@pytest.mark.parametrize("op", ["-1", "1", "?", None, "-1.0"])
def test_neighbours_cannot_be_told_apart_by_their_signs(tmp_path: Path, text: str, op: str | None) -> None:
    """Coupling: one signed row more, and noise shifted to hide it, changes no published byte."""
    aligned = Aligned()

    def observe(folder: Path, frame: pl.DataFrame, gates: Callable[[int], Gate]) -> tuple[dict[str, bytes], str]:
        folder.mkdir()
        with Stream(configured(folder, text), gates=gates) as stream:
            stream.update(frame)
            while stream.due():
                stream.release()
            shown = str(stream.status())
        published = sorted((folder / "releases").rglob("*.*"))
        return {str(p.relative_to(folder)): p.read_bytes() for p in published}, shown

    base = rows([1, 2, 2], ["1", "-1", "-1"])
    one = observe(tmp_path / "one", base, aligned.record)
    two = observe(tmp_path / "two", pl.concat([base, rows([2], [op]).cast(base.schema)]), aligned.replay)
    assert one == two


# -- what is refused --------------------------------------------------------------------------------------------

REFUSED = [
    (SIGNED.replace('"op"', '"ward"'), ["line 3", "op = 'ward'", "Remove it from [[columns]]"]),
    (SIGNED.replace('"op"', '"when"'), ["line 3", "op = 'when'", "column of [clock]", "1 and -1"]),
    (SIGNED.replace('"op"', '""'), ["line 3", "op = ''"]),
    (SIGNED.replace('"op"', "-1"), ["line 3", "op = -1", "in quotes"]),
    (TOML.replace('column = "when"', 'column = "when"\nop = "op"'), ["clock.op", "at the top of the file"]),
    (TOML + 'op = "op"\n', ["sink.op", "at the top of the file"]),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_a_mistaken_op_is_named_with_its_fix(text: str, says: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(text, origin="stream.toml")
    for part in says:
        assert part in str(caught.value)


def test_an_op_is_checked_beside_columns_that_are_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(SIGNED.replace('"op"', '"age"').replace("bins = 4", "bins = 0"))
    assert "op = 'age'" in str(caught.value)
    assert "bins" in str(caught.value)


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "csv", "parquet"])
def test_a_missing_op_column_is_told_and_nothing_is_counted(tmp_path: Path, kind: str) -> None:
    frame = rows([1], [-1]).drop("op")
    given: Any = {"polars": frame, "pandas": frame.to_pandas(), "arrow": frame.to_arrow()}.get(kind)
    if given is None:
        given = tmp_path / f"v.{kind}"
        frame.write_csv(given) if kind == "csv" else frame.write_parquet(given)
    with Stream(configured(tmp_path), gates=exact) as stream:
        with pytest.raises(SchemaError, match="column 'op' is missing") as caught:
            stream.update(given, batch_id="a")
        assert "Nothing was counted" in str(caught.value)
        stream.update(rows([1], [1]), batch_id="a")
        assert round(total(stream.release())) == 1


# -- around it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_draft_leaves_the_op_out_of_the_columns(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"v.{kind}"
    frame = rows([1], [-1])
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    found = CliRunner().invoke(app, ["schema", "init", str(path), "--op", "op"])
    assert found.exit_code == 0
    assert found.output == draft(path, op="op")
    assert found.output.count('"op"') == 1
    assert found.output.index('op = "op"') < found.output.index("[privacy]")
    assert 'name = "op"' in draft(path)
    with pytest.raises(SchemaError, match="'opp' is missing"):
        draft(path, op="opp")


def test_simulated_runs_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(SIGNED)
    rows([1] * 3000, [-1] * 3000).write_parquet(tmp_path / "visits-1.parquet")
    config = str(tmp_path / "stream.toml")
    for command in (["plan", config], ["run", config, "--simulate", "--seed", "3"], ["status", config, "--simulate"]):
        found = CliRunner().invoke(app, command)
        assert found.exit_code == 0, found.output
    assert "taking away" in found.output
    found = CliRunner().invoke(app, ["sample", config, "--simulate", "-n", "5"])
    assert found.exit_code == 0
    assert "ward,age" in found.output
    manifest = json.loads((tmp_path / "releases-simulated" / "000004" / "manifest.json").read_text())
    assert manifest["rows"] == 0
    assert manifest["claim"]["signed"] is True


def test_the_clock_takes_no_notice_of_signs(tmp_path: Path) -> None:
    odd = rows([1], [-1]).with_columns(when=pl.lit(None, dtype=pl.Datetime("us")))
    with Stream(configured(tmp_path), gates=exact, env=At(datetime(2030, 1, 1, tzinfo=UTC))) as stream:
        stream.release()
        stream.update(odd)
        assert round(total(stream.release())) == -1
