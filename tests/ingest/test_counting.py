"""Counting rows over cells: the same numbers whichever way they are counted, and however rows are split."""

from __future__ import annotations

import traceback
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synthstream import Counting, CountsByTick, Stream, StreamConfig
from synthstream.counts import Counts
from synthstream.errors import BatchConflict, ConfigError, CountsMismatch, SchemaError
from synthstream.evaluate.custodian import Truth
from synthstream.ingest.counting import encode
from synthstream.kernel.counters.matrix import Encoded
from synthstream.papers.counters.sparse import Arrivals
from synthstream.schema.binned import bins_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Workload
from tests.support.environments import At
from tests.support.gates import ExactGate
from tests.support.streams import KINDS, PERSONS, configured, published, rows


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    sizes = tuple(draw(st.lists(st.integers(1, 12), min_size=1, max_size=6)))
    every = [m for k in range(len(sizes) + 1) for m in combinations(range(len(sizes)), k)]
    chosen = draw(st.lists(st.sampled_from(every), min_size=1, max_size=12, unique=True))
    return Workload(sizes=sizes, marginals=tuple(chosen))


@settings(deadline=None)  # compiled when first called
@given(workload=workloads(), seed=st.integers(0, 2**32), number=st.sampled_from((0, 1, 511, 512, 513, 1030)))
def test_cells_are_counted_one_by_one(workload: Workload, seed: int, number: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, workload.sizes, (number, len(workload.sizes))).astype(np.int32)
    weights = rng.choice([-1, 1], number)
    expected = np.zeros(workload.cells, dtype=np.int64)
    for marginal, shape, offset in zip(workload.marginals, workload.shapes, workload.offsets, strict=False):
        cells = np.zeros(number, dtype=np.int64)
        if marginal:
            cells = np.ravel_multi_index(tuple(codes[:, c] for c in marginal), shape)
        np.add.at(expected, offset + cells, weights)
    assert workload.count(codes, weights).tolist() == expected.tolist()


@settings(deadline=None)  # compiled when first called
@given(
    edges=st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=20, unique=True).map(sorted),
    more=st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=10),
)
def test_bins_are_those_of_a_search(edges: list[float], more: list[float]) -> None:
    around = [side(edge, to) for edge in edges for side, to in ((np.nextafter, -np.inf), (np.nextafter, np.inf))]
    values = np.array([*edges, *around, *more], dtype=np.float64)
    searched = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    expected = np.where(np.isnan(values), 99, searched)
    assert bins_of(values, np.array(edges), 99).tolist() == expected.tolist()


@pytest.mark.parametrize("codes", [[[0, 3]], [[-1, 0]], [[0, 0]] * 600 + [[2, 0]]])
def test_codes_of_another_schema_are_refused(codes: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="not from this workload"):
        Workload.all_up_to(2, sizes=(2, 3)).count(np.array(codes, dtype=np.int32))


@pytest.mark.parametrize(
    ("codes", "weights"),
    [
        (np.zeros((5, 1), dtype=np.int32), None),
        (np.zeros((5, 900), dtype=np.int32), None),
        (np.zeros(5, dtype=np.int32), None),
        (np.zeros((5, 2), dtype=np.int32), np.ones(4, dtype=np.int64)),
        (np.full((5, 2), 2**32), None),
    ],
    ids=["narrow", "wide", "flat", "few weights", "cut to 32 bits"],
)
def test_rows_of_another_shape_never_reach_compiled_code(codes: Any, weights: Any) -> None:
    with pytest.raises(ValueError, match="codes:"):
        Workload.all_up_to(2, sizes=(2, 3)).count(codes, weights)


def test_cells_beyond_64_bits_are_counted_whole_and_refused() -> None:
    workload = Workload(sizes=(2**16,) * 4, marginals=((), (0, 1, 2, 3)))
    assert workload.cells == 2**64 + 1
    with pytest.raises(ValueError, match="cannot be numbered in 32 bits"):
        workload.count(np.zeros((1, 4), dtype=np.int32))
    columns = ", ".join(f'{{ name = "c{i}", type = "number", min = 0, max = 1, bins = 65535 }}' for i in range(4))
    text = (
        'name = "s"\nstate = "state"\nprivacy = { epsilon = 1.0, delta = 1e-9, unit = "event" }\n'
        'clock = { column = "day", start = 2026-01-01, every = "1d", horizon = 365 }\n'
        f'columns = [{columns}]\nsynthesizer = {{ kind = "table", marginals = [["c0", "c1", "c2", "c3"]] }}\n'
    )
    with pytest.raises(ConfigError, match="18,446,744,073,709,551,617 cells in 2 tables are too many"):
        StreamConfig.from_toml(text)


def test_cells_whose_differences_wrap_are_not_in_order() -> None:
    cells = np.array([0, 2**63 - 1, -(2**63), -1, 4])
    assert not Counts(cells, np.ones(5, dtype=np.int64)).within(5)


def test_counts_do_not_show_themselves(tmp_path: Path) -> None:
    found = Counting(configured(tmp_path, "always")).count(rows(20, 1))
    assert "array" not in f"{found!r} {found.ticks!r}"


def config_of(kind: str, folder: Path) -> StreamConfig:
    config = configured(folder, kind)
    return replace(config, source=None)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(seed=st.integers(0, 2**32), parts=st.integers(1, 9), kind=st.sampled_from(["always", "points", "points-signed"]))
def test_any_split_in_any_order_merges_to_the_same_bytes(tmp_path: Path, seed: int, parts: int, kind: str) -> None:
    counting, rng = Counting(configured(tmp_path / kind, kind)), np.random.default_rng(seed)
    frame = rows(300, seed)
    whole = counting.count(frame)
    place = rng.integers(0, parts, frame.height)
    pieces = [counting.count(frame.filter(place == part)) for part in rng.permutation(parts)]
    assert reduce(CountsByTick.merge, pieces).to_bytes() == whole.to_bytes()
    assert CountsByTick.from_bytes(whole.to_bytes()).to_bytes() == whole.to_bytes()
    halves = [frame.head(100), frame.tail(200)]
    assert counting.count_all(halves, threads=2).to_bytes() == whole.to_bytes()
    total = sum(counts.dense(whole.cells)[0] for counts in whole.ticks.values())
    assert kind != "always" or total == 300


@pytest.mark.sparing(4)
@pytest.mark.parametrize("kind", KINDS)
def test_counts_made_elsewhere_give_the_same_releases(tmp_path: Path, kind: str) -> None:
    frame = rows(400, 7)
    for name in ("rows", "counts"):
        config = config_of(kind, tmp_path / name)
        counting = Counting(config)
        with Stream(config, gates=lambda tick: SeededGate(f"5/{tick}"), seed=5) as stream:
            if name == "rows":
                stream.update(frame)
            else:
                pieces = [counting.count(part).to_bytes() for part in frame.iter_slices(90)]
                stream.add(reduce(CountsByTick.merge, map(CountsByTick.from_bytes, pieces)))
            assert sum(1 for _ in stream.run()) == 8
    assert published(tmp_path / "rows" / "releases") == published(tmp_path / "counts" / "releases")


def test_counts_count_once_under_their_id_and_late_ones_in_the_open_tick(tmp_path: Path) -> None:
    config = config_of("always", tmp_path)
    counting = Counting(config)
    early, late = rows(50, 1), rows(30, 2)
    with Stream(config, gates=lambda tick: ExactGate(), env=At(datetime(2026, 1, 3, tzinfo=UTC))) as stream:
        for _ in range(2):
            stream.add(counting.count(early), batch_id="one")
        with pytest.raises(BatchConflict, match="'one' was counted before"):
            stream.add(counting.count(late), batch_id="one")
        *_, last = stream.run()
        assert last.tick == 1
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        stream.add(counting.count(late))
        *_, last = stream.run()
        assert last.measured.marginal(())[0] == 80


def test_counts_of_others_are_refused(tmp_path: Path) -> None:
    ours, theirs = (Counting(configured(tmp_path / kind, kind)) for kind in ("always", "epochs"))
    frame = rows(10, 1)
    with pytest.raises(CountsMismatch, match="must be the same"):
        ours.count(frame).merge(theirs.count(frame))
    with Stream(config_of("always", tmp_path / "always")) as stream, pytest.raises(CountsMismatch):
        stream.add(theirs.count(frame))
    signed = Counting(configured(tmp_path / "signed", "points-signed"))
    older = replace(signed.count(frame), cells=signed.nothing.cells // 2)
    with pytest.raises(CountsMismatch, match="another version"):
        signed.nothing.merge(older)
    with pytest.raises(ConfigError, match="protects persons"):
        Counting(configured(tmp_path / PERSONS, PERSONS))
    with Stream(config_of(PERSONS, tmp_path / "who")) as stream, pytest.raises(CountsMismatch, match="rows only"):
        stream.add(ours.nothing)
    with pytest.raises(SchemaError, match="'ward' is missing"):
        ours.count(frame.drop("ward"))


def test_a_path_is_no_frame(tmp_path: Path) -> None:
    counting = Counting(configured(tmp_path, "always"))
    for path in ("rows.csv", tmp_path / "rows.csv"):
        with pytest.raises(SchemaError, match="not a path or a text: read the file with every column as text"):
            counting.count(path)


@pytest.mark.parametrize("data", [b"", b"not arrow", Counts.of(np.ones(3, dtype=np.int64)).numbers.tobytes()])
def test_what_is_no_counts_is_refused(data: bytes) -> None:
    with pytest.raises(CountsMismatch, match="to_bytes"):
        CountsByTick.from_bytes(data)


def test_a_sum_that_leaves_64_bits_is_no_sum_of_rows() -> None:
    most = Counts(np.array([3]), np.array([2**63 - 1]))
    assert most.plus(Counts(np.array([4]), np.array([1]))).numbers.tolist() == [2**63 - 1, 1]
    for sign in (1, -1):
        half = Counts(np.array([3]), np.array([sign * 2**62]))
        with pytest.raises(OverflowError, match="64 bits"):
            half.plus(half).plus(half)


@pytest.mark.parametrize(
    "ticks",
    [
        {0: Counts(np.array([99_999]), np.array([1]))},
        {0: Counts(np.array([-1]), np.array([1]))},
        {0: Counts(np.array([2, 1]), np.array([1, 1]))},
        {0: Counts(np.array([1, 1]), np.array([1, 1]))},
        {0: Counts(np.array([1, 2]), np.array([1]))},
        {-7: Counts(np.array([1]), np.array([1]))},
        {2**62: Counts(np.array([1]), np.array([1]))},
    ],
)
def test_what_rows_could_not_have_made_is_refused(tmp_path: Path, ticks: dict[int, Counts]) -> None:
    config = config_of("always", tmp_path)
    nothing = Counting(config).nothing
    with Stream(config, gates=lambda tick: ExactGate()) as stream, pytest.raises((CountsMismatch, ValueError)):
        stream.add(replace(nothing, ticks=ticks))
    with pytest.raises((CountsMismatch, IndexError)):
        CountsByTick.from_bytes(replace(nothing, ticks=ticks).to_bytes())
    with Stream(config, gates=lambda tick: ExactGate()) as stream:
        *_, last = stream.run()
        assert last.measured.marginal(())[0] == 0


@pytest.mark.parametrize("number", [3, 4000])
def test_no_line_of_a_log_shows_what_is_private_or_how_much_of_it_there_is(tmp_path: Path, number: int) -> None:
    config = configured(tmp_path, PERSONS)
    frame = rows(number, 1).with_columns(who=pl.Series(["Jane Doe"] * number))
    encoded = encode(config, frame)
    counts = Counting(configured(tmp_path, "always")).count(frame)
    dense = next(iter(counts.ticks.values())).dense(counts.cells)
    hidden = {
        "PrivateRows": encoded,
        "Counts": Counts.of(dense),
        "Encoded": Encoded({"t": np.array(number)}, dense),
        "Arrivals": Arrivals(number, dense, dense),
        "Truth": Truth(ticks=(), counts=dense[None], events=number),
    }
    assert {name: repr(value) for name, value in hidden.items()} == {name: f"{name}(private)" for name in hidden}
    assert repr(counts) == repr(Counting(configured(tmp_path, "always")).nothing)
    assert "Jane" not in f"{[encoded]} {encoded!s} {traceback_with(encoded)}"


def traceback_with(value: object) -> str:
    """What is printed with the values of all variables, as some tools do."""
    try:
        raise ValueError(value)
    except ValueError as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
