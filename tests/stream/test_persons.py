"""Streams that protect persons: what is counted, promised, published and refused, end to end."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import synthstream
from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.config.config import After, load
from synthstream.environment import Env
from synthstream.errors import BatchConflict, ConfigError, SchemaError, StateCorrupt, StateError, StateMismatch
from synthstream.forecast.planning import plan
from synthstream.ingest.counting import encode
from synthstream.kernel.gate import Gate
from synthstream.publish.outlets import simulated
from synthstream.report.public import public_page
from synthstream.stream import opening
from synthstream.stream.succession import succeed
from synthstream.stream.verification import verify
from synthstream.synthesizers.assembly import claim_of, group_factor, synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.aligned import Aligned, files
from tests.support.gates import Call, ReplayingGate, TracingGate, path_cost
from tests.support.visits import TOML, exact, finish, seeded, total

T = TypeVar("T")

PERSONS = TOML.replace('unit = "event"', 'unit = { person = "id", max_events = 3 }')


def with_unit(limits: str, text: str = PERSONS) -> str:
    return text.replace("max_events = 3", limits)


def configured(folder: Path, text: str = PERSONS) -> StreamConfig:
    folder.mkdir(exist_ok=True)
    return StreamConfig.from_toml(text, base=folder)


def rows(days: list[int], who: list[Any], *, ward: str | list[str] = "A", op: int = 1) -> pl.DataFrame:
    """One row per given day of January 2026, each of a person."""
    return pl.DataFrame(
        {
            "when": [datetime(2026, 1, d, 12) for d in days],
            "ward": [ward] * len(days) if isinstance(ward, str) else ward,
            "age": [30.0] * len(days),
            "id": who,
            "op": [op] * len(days),
        },
        strict=False,
    )


def crowd(seed: int, people: int = 12, n: int = 80) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    wards = rng.choice(["A", "B", "C", "?"], n).tolist()
    return rows(rng.integers(1, 6, n).tolist(), [f"p{i}" for i in rng.integers(0, people, n)], ward=wards)


def begun(config: StreamConfig, gates: Callable[[int], Gate] = exact, seed: int | None = None) -> StreamConfig:
    """A state of one and the same secret: the order of rows within a tick follows from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_bytes", lambda size: b"\x33" * size)
        Stream(config, gates=gates, seed=seed).close()
    return config


# -- what counts ----------------------------------------------------------------------------------------------------


def test_of_each_person_so_many_rows_count(tmp_path: Path) -> None:
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(rows([1, 1, 1, 1, 2], ["x", "x", "y", "x", "x"]))
        assert round(total(stream.release())) == 4  # three of x, one of y
        stream.update(rows([2, 2, 2, 2], ["x", "y", "y", "y"]))
        assert round(total(stream.release())) == 6  # x has had all; y has two left
        stream.update(rows([3] * 9, ["x", "y", "z"] * 3))
        assert round(total(finish(stream))) == 9


def test_limits_in_a_tick_and_in_a_period(tmp_path: Path) -> None:
    text = with_unit('max_events = 3, max_per_tick = 2, per = "2d"')
    with Stream(configured(tmp_path, text), gates=exact) as stream:
        stream.update(rows([1] * 5 + [2] * 5 + [3] * 5 + [5] * 5, ["x"] * 20))
        found = []
        while stream.due():
            found.append(round(total(stream.release())))
        assert found == [2, 3, 5, 5, 7]


def test_deletions_count_towards_the_limit(tmp_path: Path) -> None:
    text = with_unit("max_events = 2").replace("[privacy]", 'op = "op"\n[privacy]')
    with Stream(configured(tmp_path, text), gates=exact) as stream:
        stream.update(pl.concat([rows([1], ["x"]), rows([2], ["x"], op=-1), rows([3, 3], ["x", "x"])]))
        assert [round(total(stream.release())) for _ in range(5)] == [1, 0, 0, 0, 0]
    assert "counts as one of them" in plan(configured(tmp_path, text)).meaning


def test_late_rows_and_rows_ahead_of_time(tmp_path: Path) -> None:
    with Stream(configured(tmp_path, with_unit("max_events = 1")), gates=exact) as stream:
        stream.update(rows([3], ["x"]))  # waits for its tick
        assert round(total(stream.release())) == 0
        stream.update(rows([1], ["x"]))  # late: it counts in the tick that is open, before the one that waits
        assert [round(total(stream.release())) for _ in range(3)] == [1, 1, 1]


NOBODY: list[Any] = [None, "", float("nan"), pd.NA]


def test_rows_without_a_person_are_left_out(tmp_path: Path) -> None:
    frames = [
        rows([1, 1, 1], [None, "", "x"]),
        rows([1, 1], [float("nan"), None]),
        rows([1], ["x"]).with_columns(id=pl.Series([["x"]])),
        rows([1] * 4, ["q"] * 4).to_pandas().assign(id=pd.Series(NOBODY, dtype=object)),
        rows([1], ["q"]).to_arrow().drop_columns("id").append_column("id", pa.array([None], pa.int64())),
    ]
    with Stream(configured(tmp_path), gates=exact) as stream:
        for frame in frames:
            stream.update(frame)
        assert round(total(stream.release())) == 1


class Alike:
    """Equal to all others, and shown as the place where it lies."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(("make", "counted"), [(lambda: memoryview(b"anna"), 3), (Alike, 0), (lambda: [1, 2], 0)])
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_objects_that_are_equal_are_one_person_or_nobody(
    tmp_path: Path, make: Callable[[], Any], counted: int, kind: str
) -> None:
    keys = [make() for _ in range(9)]
    frame: Any = rows([1] * 9, ["-"] * 9)
    if kind == "pandas":
        frame = frame.to_pandas().assign(id=pd.Series(keys, dtype=object))
    else:
        frame = frame.with_columns(pl.Series("id", keys, dtype=pl.Object))
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(frame)
        assert round(total(stream.release())) == counted


def test_keys_that_are_no_text_are_told_apart(tmp_path: Path) -> None:
    keys = [number.to_bytes(8, "big") for number in range(128, 192)]
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(rows([1] * 64, ["-"] * 64).with_columns(id=pl.Series(keys)))
        assert round(total(stream.release())) == 64
        stream.update(rows([1] * 192, ["-"] * 192).to_pandas().assign(id=pd.Series(keys * 3, dtype=object)))
        assert round(total(stream.release())) == 192


SAME: list[Any] = [
    pl.Series(["7"]),
    pl.Series([7]),
    pl.Series([7], dtype=pl.UInt8),
    pl.Series([7.0]),
    pl.Series([7.0], dtype=pl.Float32),
    pl.Series([b"7"]),
    pl.Series(["7"], dtype=pl.Categorical),
    pl.Series([Decimal(7)]),
]


def test_one_key_in_every_type_is_one_person(tmp_path: Path) -> None:
    config = configured(tmp_path, with_unit("max_events = 1"))
    keys = [encode(config, rows([1], ["-"]).with_columns(id=cell)).people for cell in SAME]
    assert all(found is not None and found.to_list() == ["7"] for found in keys)
    with Stream(config, gates=exact) as stream:
        for cell in SAME:
            stream.update(rows([1], ["-"]).with_columns(id=cell))
        stream.update(rows([1], ["-"]).to_pandas().assign(id=[7]))
        path = tmp_path / "more.csv"
        rows([1], ["7"]).write_csv(path)
        stream.update(path)
        assert round(total(stream.release())) == 1
        stream.update(rows([2] * 3, ["7 ", "07", "7.0"]))  # other texts are other people
        assert round(total(stream.release())) == 4


def test_the_key_may_be_a_column_too(tmp_path: Path) -> None:
    text = PERSONS.replace('person = "id"', 'person = "ward"')
    with Stream(configured(tmp_path, text), gates=exact) as stream:
        stream.update(rows([1] * 5, ["-"] * 5, ward=["A", "A", "A", "A", "B"]))
        assert stream.release().table(["ward"])["measured"].round().to_list() == [3, 1, 0, 0, 0]


def test_files_batches_and_frames_count_alike(tmp_path: Path) -> None:
    frame = crowd(3)
    parts = [frame[:20], frame[20:21], frame[21:]]
    configs = [configured(tmp_path / name) for name in ("files", "batches", "reversed")]
    for i, part in enumerate(parts):
        part.write_parquet(tmp_path / "files" / f"visits-{i}.parquet")
    found = []
    for config, batches in zip(configs, ([], parts, [frame.reverse()]), strict=True):
        with Stream(begun(config), gates=exact) as stream:
            for i, part in enumerate(batches):
                stream.update(part, batch_id=f"b{i}")
            if config is configs[0]:
                assert stream.ingest() == 3
            found.append(finish(stream).measured.values.tolist())
    assert found[0] == found[1] == found[2]


def test_a_batch_with_another_person_is_another_batch(tmp_path: Path) -> None:
    with Stream(configured(tmp_path), gates=exact) as stream:
        stream.update(rows([1, 1], ["x", "y"]), batch_id="a")
        stream.update(rows([1, 1], ["x", "y"]), batch_id="a")
        for other in (["x", "z"], ["xy", ""], ["y", "x"]):
            with pytest.raises(BatchConflict):
                stream.update(rows([1, 1], other), batch_id="a")
        assert round(total(stream.release())) == 2


def test_a_missing_person_column_is_told(tmp_path: Path) -> None:
    with Stream(configured(tmp_path)) as stream, pytest.raises(SchemaError, match="column 'id' is missing"):
        stream.update(rows([1], ["x"]).drop("id"))


@pytest.mark.parametrize(
    ("limits", "how"),
    [
        ("max_events = 3", "refresh"),
        ("max_events = 9, max_per_tick = 1", "refresh"),
        ("max_events = 10, max_per_tick = 1", "always"),
        ("max_events = 10, max_per_tick = 2", "refresh"),
        ('max_events = 10, max_per_tick = 1, per = "9d"', "refresh"),  # nine count
        ('max_events = 60, max_per_tick = 2, per = "10d"', "always"),
    ],
)
def test_all_is_measured_at_every_tick_where_that_costs_persons_far_less(tmp_path: Path, limits: str, how: str) -> None:
    """Otherwise tables that are measured at refreshes are more exact. So it is where no more ticks let events in."""
    text = with_unit(limits)
    assert configured(tmp_path, text.replace("horizon = 8", "horizon = 10")).measures == how
    assert configured(tmp_path, text.replace("horizon = 8", "horizon = 9")).measures == "refresh"


@pytest.mark.parametrize("delta", ["1e-9", "0"])
@pytest.mark.parametrize(
    ("limits", "how", "together"),
    [
        ("max_events = 9, max_per_tick = 1", "refresh", False),
        ('max_events = 20, max_per_tick = 1, per = "9d"', "refresh", False),
        ("max_events = 20, max_per_tick = 1", "always", True),
        ('max_events = 60, max_per_tick = 2, per = "20d"', "always", True),
    ],
)
def test_what_is_measured_is_what_is_claimed(tmp_path: Path, limits: str, how: str, together: bool, delta: str) -> None:
    """Whoever says nothing gets the mechanism of that name, and the factor that is proven of it."""
    text = with_unit(limits).replace("delta = 1e-9", f"delta = {delta}").replace("horizon = 8", "horizon = 40")
    text = text.replace(
        "[source]", '[synthesizer]\nmeasure = "auto"\n[[columns]]\nname = "up"\ntype = "boolean"\n[source]'
    )
    how, together = (how, together) if delta != "0" else ("epochs", False)
    found, said = (configured(tmp_path, text.replace('"auto"', f'"{measure}"')) for measure in ("auto", how))
    assert found.measures == said.measures == how
    mechanism = synthesizer_of(found).mechanism
    assert mechanism.fingerprint() == synthesizer_of(said).mechanism.fingerprint()
    claim = claim_of(found, mechanism)
    assert claim == claim_of(said, mechanism)
    assert {"always": "marginals", "refresh": "refreshed", "epochs": "epochs"}[how] == claim.theorems[0]
    assert ("participation" in claim.theorems, "group" in claim.theorems) == (together, not together)
    assert (group_factor(found) < found.privacy.unit.events_in(found.clock.horizon)) == together


@pytest.mark.parametrize(
    ("limits", "horizon", "most"),
    [
        ("max_events = 9", "5", 9),
        ("max_events = 9, max_per_tick = 2", "4", 8),
        ("max_events = 9, max_per_tick = 2", "5", 9),
        ("max_events = 9, max_per_tick = 2", '"unbounded"', 9),
        ('max_events = 9, max_per_tick = 1, per = "7d"', "5", 5),
        ('max_events = 9, max_per_tick = 1, per = "7d"', "8", 7),
    ],
)
@pytest.mark.parametrize("delta", ["1e-9", "0"])
def test_no_more_events_are_paid_for_than_all_ticks_let_in(
    tmp_path: Path, limits: str, horizon: str, most: int, delta: str
) -> None:
    text = with_unit(limits).replace("horizon = 8", f"horizon = {horizon}").replace("delta = 1e-9", f"delta = {delta}")
    found = configured(tmp_path, text.replace("until = 2026-01-06\n", ""))
    mechanism = synthesizer_of(found).mechanism
    one, claim = mechanism.claim(), claim_of(found, mechanism)
    assert group_factor(found) == most
    assert (claim.rho, claim.pure) == (one.rho * most**2, None if one.pure is None else one.pure * most)
    assert "group" in claim.theorems


def test_after_a_cut_no_more_events_count_than_the_ticks_left_let_in(tmp_path: Path) -> None:
    text = with_unit("max_events = 20, max_per_tick = 1")
    old = configured(tmp_path, text.replace("horizon = 8", "horizon = 40"))
    found = replace(old, after=After(config=old, schema=old.schema, tick=28))
    assert group_factor(found) == group_factor(configured(tmp_path, text.replace("horizon = 8", "horizon = 12")))
    assert group_factor(found) < 12 < group_factor(old)
    new = configured(tmp_path, text.replace("horizon = 8", "horizon = 40").replace("1e-9", "0"))
    assert group_factor(replace(new, after=After(config=new, schema=new.schema, tick=34))) == 6


@pytest.mark.parametrize("growth", ["", "growth = 1.5", "growth = 1.2"])
def test_a_stream_that_began_with_all_at_every_tick_does_not_go_on_at_refreshes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, growth: str
) -> None:
    text = with_unit("max_events = 3, max_per_tick = 1").replace("[source]", f"[synthesizer]\n{growth}\n[source]")
    with monkeypatch.context() as patch:
        patch.setattr("synthstream.config.synthesis._MANY", 3)
        config = configured(tmp_path, text)
        assert config.measures == "always"
        with Stream(config, gates=exact) as stream:
            stream.release()
        Stream(config, gates=exact).close()
    assert config.measures == "refresh"
    with pytest.raises(StateMismatch, match="synthesizer.growth" if not growth else "other coefficients"):
        Stream(config, gates=exact)


@pytest.mark.parametrize(
    ("what", "then", "now"),
    [
        ("config.synthesis._MANY", 3, 99),
        ("config.synthesis._MANY", 99, 3),
        ("kernel.tables.Refreshed.resolution", 1.0, 2.0),
    ],
)
@pytest.mark.parametrize("since", [0, 2, 1], ids=["at once", "ticks later", "after another cut"])
def test_a_life_before_a_cut_is_never_read_as_another_mechanism_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, then: float, now: float, since: int
) -> None:
    text = with_unit("max_events = 5, max_per_tick = 1").replace("[source]", "[synthesizer]\ngrowth = 1.5\n[source]")
    (tmp_path / "old.toml").write_text(text)
    old = load(tmp_path / "old.toml")
    new = text.replace("growth = 1.5", 'measure = "always"').replace("epsilon = 1.0", "epsilon = 2.0")
    (tmp_path / "new.toml").write_text(new := f'{new}[after]\nconfig = "old.toml"\n')
    third = new.replace("epsilon = 2.0", "epsilon = 3.0").replace("old.toml", "new.toml")
    with monkeypatch.context() as patch:
        patch.setattr(f"synthstream.{what}", then)
        with Stream(old, gates=exact) as stream:
            stream.release()
        config = succeed(old, load(tmp_path / "new.toml"), gates=exact)
        with Stream(config, gates=exact) as stream:
            for _ in range(since):
                stream.release()
        if since == 1:
            config = succeed(config, configured(tmp_path, third), gates=exact)
            with Stream(config, gates=exact) as stream:
                stream.release()
    monkeypatch.setattr(f"synthstream.{what}", now)
    with pytest.raises(StateError, match="other coefficients"):
        Stream(config, gates=exact)
    assert verify(config).findings


# -- what it costs --------------------------------------------------------------------------------------------------

ALWAYS = '[synthesizer]\nmeasure = "always"\ncounter = "{}"\n'
CAPPED = "max_events = 3, max_per_tick = 1"
KINDS: dict[str, tuple[str, str, str]] = {
    "table, zcdp": ("1e-9", "max_events = 3", ""),
    "table, unbounded": ("1e-9", CAPPED, "unbounded"),
    **{f"table, {kind}": ("1e-9", CAPPED, ALWAYS.format(kind)) for kind in ("simple", "toeplitz", "blt")},
    "table, simple, pure": ("0", "max_events = 9, max_per_tick = 1", ALWAYS.format("simple")),
    "table, periods": ("1e-9", 'max_events = 3, per = "2d"', ""),
    "epochs": ("0", "max_events = 3", ""),
    "epochs that choose": ("0", "max_events = 3", '[synthesizer]\nmeasure = "epochs"\npicks = 1\n'),
    "epochs with delta": ("1e-9", "max_events = 3", '[synthesizer]\nmeasure = "epochs"\n'),
    "selective": ("0", "max_events = 3", '[synthesizer]\nkind = "selective"\npicks = 2\nfit = "mw"\n'),
    "selective, capped": ("1e-9", CAPPED, '[synthesizer]\nkind = "selective"\npicks = 2\nfit = "mw"\n'),
    "stream-mwem, capped": ("1e-9", CAPPED, '[synthesizer]\nkind = "stream-mwem"\npicks = 2\nfit = "mw"\n'),
    "stream-mwem": ("0", "max_events = 3", '[synthesizer]\nkind = "stream-mwem"\npicks = 2\nfit = "mw"\n'),
}
POINTS = PERSONS.replace('name = "ward"\ntype = "category"\nvalues = ["A", "B", "C"]', 'name = "x"\ntype = "number"')
POINTS = POINTS.replace('type = "number"\n[[', 'type = "number"\nmin = 0\nmax = 1\nmissing = 0\n[[')
POINTS = POINTS.replace("[source]", '[synthesizer]\nkind = "points"\ndepth = 8\n[source]')
POINTS = POINTS.replace("bins = 4", "missing = 0").replace("epsilon = 1.0", "epsilon = 40.0")


def text_of(kind: str) -> str:
    if kind.startswith("points"):
        text = with_unit(CAPPED, POINTS) if "capped" in kind else POINTS
        text = text.replace("[privacy]", 'op = "op"\n[privacy]') if "signed" in kind else text
        return text.replace("delta = 1e-9", "delta = 0") if "pure" in kind else text
    delta, limits, section = KINDS[kind]
    text = with_unit(limits).replace("delta = 1e-9", f"delta = {delta}")
    if section == "unbounded":
        return text.replace("horizon = 8", 'horizon = "unbounded"')
    return text.replace("[source]", section + '[[columns]]\nname = "up"\ntype = "boolean"\n[source]')


def traced(folder: Path, text: str, frame: pl.DataFrame, gates: Callable[[int], Gate]) -> list[int]:
    """Ticks that were closed, with gates that keep what passes."""
    with Stream(begun(configured(folder, text), gates), gates=gates) as stream:
        stream.update(frame[: len(frame) // 2])
        stream.release()
        stream.update(frame[len(frame) // 2 :])
        finish(stream)
        return list(range(stream.closed))


@pytest.mark.sparing(4, 17)  # with the days in this order these hold every kind, and the four cases that spend all
@pytest.mark.parametrize("kind", [*KINDS, "points, zcdp", "points, zcdp, capped", "points, pure", "points, signed"])
@pytest.mark.parametrize("days", [[1] * 6, [5, 5, 1, 1, 2], [1, 2, 3, 4, 5, 5]], ids=["at once", "late", "spread"])
def test_one_person_more_costs_no_more_than_the_claim(tmp_path: Path, kind: str, days: list[int]) -> None:
    """A run with a person of more rows than count, one without, and the same answers: the exact cost of the path."""
    text = text_of(kind).replace("horizon = 8", "horizon = 5")
    extra = pl.DataFrame({"up": [True], "x": [0.3]})
    base = crowd(1).join(extra, how="cross")
    person = rows(days, ["new"] * len(days), ward="B").join(extra, how="cross")
    person = person.with_columns(op=pl.Series([-1, 1, 1, -1, -1, 1][: len(days)], dtype=base["op"].dtype))
    more = pl.concat([base[:30], person, base[30:]])
    traces: dict[int, list[Call]] = {}
    replays: dict[int, ReplayingGate] = {}

    def record(tick: int) -> Gate:
        gate = TracingGate(SeededGate(tick))
        traces[tick] = gate.trace
        return gate

    def replay(tick: int) -> Gate:
        replays[tick] = ReplayingGate(traces.get(tick, []))
        return replays[tick]

    ticks = traced(tmp_path / "with", text, more, record)
    # The same rows come while the first tick is open, and the rest while the second is.
    half = len(more) // 2
    lone = pl.concat([more[:half].filter(pl.col("id") != "new"), more[half:].filter(pl.col("id") != "new")])
    config = begun(configured(tmp_path / "without", text), replay)
    with Stream(config, gates=replay) as stream:
        cut = len(more[:half].filter(pl.col("id") != "new"))
        stream.update(lone[:cut])
        stream.release()
        stream.update(lone[cut:])
        finish(stream)
    parts = [path_cost(traces[tick], replays[tick].trace) for tick in ticks]
    claim = claim_of(config, synthesizer_of(config).mechanism)
    periods = 1 if config.privacy.unit.period is None else 3
    if claim.pure is None:
        assert 0 < sum(rho for rho, _ in parts) <= periods * claim.rho
    else:
        assert 0 < sum(epsilon for _, epsilon in parts) <= periods * claim.pure
        assert sum(rho for rho, _ in parts) == 0
    together = {"table, zcdp": True, "table, simple": False, "table, toeplitz": False, "table, simple, pure": False}
    worst = [1] * 6 if together.get(kind) else [1, 2, 3, 4, 5, 5]
    if kind in together and days == worst:  # then all that is promised is spent
        allowed = claim.rho if claim.pure is None else claim.pure
        assert sum(rho + epsilon for rho, epsilon in parts) > allowed * Fraction(999, 1000)


@pytest.mark.parametrize(
    "kind", ["selective, capped", "stream-mwem, capped", "points, zcdp, capped", "epochs with delta"]
)
def test_a_cap_in_a_tick_gains_nothing_where_a_person_is_measured_at_other_times(tmp_path: Path, kind: str) -> None:
    config = configured(tmp_path, text_of(kind))
    assert group_factor(config) == 3
    assert "group" in claim_of(config, synthesizer_of(config).mechanism).theorems


@pytest.mark.sparing(4, 20)
@pytest.mark.parametrize("text", [PERSONS, PERSONS.replace("delta = 1e-9", "delta = 0")], ids=["zcdp", "pure"])
@pytest.mark.parametrize("many", [1, 3, 40])
def test_a_person_with_aligned_noise_cannot_be_seen(tmp_path: Path, text: str, many: int) -> None:
    """Coupling: one person more, and noise shifted to hide it, changes no published byte."""
    aligned = Aligned()

    def observe(folder: Path, frame: pl.DataFrame, gates: Callable[[int], Gate]) -> tuple[dict[str, bytes], str]:
        config = configured(folder, text)
        frame.write_parquet(folder / "visits-1.parquet")
        with Stream(config, gates=gates) as stream:
            assert len(list(stream.run())) == 5
            return files(folder / "releases"), str(stream.status())

    base = crowd(2)
    one = observe(tmp_path / "one", base, aligned.record)
    person = rows([1 + i % 5 for i in range(many)], ["new"] * many, ward="?")
    assert one == observe(tmp_path / "two", pl.concat([base, person]), aligned.replay)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_simulated_run_counts_the_same_rows_each_time(tmp_path: Path, seed: int) -> None:
    """And no other run has a secret that follows from anything, nor one with a key from the seed alone."""

    def secret(name: str, seen: list[Any], more: str = "", **how: Any) -> bytes:
        with Stream(configured(tmp_path / name, with_unit("max_events = 1") + more), **how) as stream:
            stream.update(rows([1] * 90, [f"p{i % 9}" for i in range(90)], ward=[*"ABC"] * 30))
            seen.append(stream.release().tables.to_dict(as_series=False))
            return stream._store.secret

    seen: list[Any] = []
    assert (one := secret("a", seen, simulate=seed)) == secret("b", seen, simulate=seed)
    assert seen[0] == seen[1]
    others = [secret("c", seen, simulate=8), *(secret(name, seen, gates=seeded, seed=seed) for name in "de")]
    for name in ("key", "other"):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(name[:1].encode().hex() * 32)
        others.append(secret(f"with {name}", seen, f'[encryption]\nkey_file = "../{name}"\n', simulate=seed))
    assert len({one, secret("f", seen), secret("g", seen), *others}) == 8


# -- restarts -------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ended."""


class Mortal(Env):
    """A world that ends before or after one of its effects."""

    def __init__(self, last: int, *, before: bool) -> None:
        self._left, self._before = count(last, -1), before

    def do(self, name: str, effect: Callable[[], T]) -> T:
        left = next(self._left)
        if left == 0 and self._before:
            raise Killed
        result = effect()
        if left == 0:
            raise Killed
        return result


def test_no_real_run_begins_with_the_secret_of_a_simulation_that_ended_early(tmp_path: Path) -> None:
    refused = list[bool]()
    for last in range(9):
        config = configured(tmp_path / str(last), with_unit("max_events = 1"))
        with contextlib.suppress(Killed):
            Stream(config, simulate=7, env=Mortal(last, before=True)).close()
        simulation = opening.store_of(simulated(configured(tmp_path / "other")), Env(), simulate=7)
        simulation.close()
        try:
            with Stream(simulated(config)) as stream:
                assert stream._store.secret != simulation.secret
            refused.append(False)
        except StateMismatch:
            refused.append(True)
    assert refused == sorted(refused)
    assert len(set(refused)) == 2
    with pytest.raises(StateMismatch, match="another seed"):
        Stream(configured(tmp_path / "6", with_unit("max_events = 1")), simulate=8)


# Quick: test_seen_once kills an adoption anywhere, test_disks a stream of events.
@pytest.mark.parametrize(
    "some", [pytest.param(True, marks=pytest.mark.slow), pytest.param(False, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("kind", ["table, zcdp", "selective"])
def test_killed_anywhere_it_ends_the_same(tmp_path: Path, kind: str, some: bool) -> None:
    text = text_of(kind)
    frame = crowd(5).with_columns(up=pl.lit(value=True))
    parts = {f"b{i}": frame[i * 20 : i * 20 + 20] for i in range(4)}

    def work(config: StreamConfig, env: Env) -> None:
        with Stream(config, gates=seeded, seed=1, env=env) as stream:
            for name, part in list(parts.items())[:2]:
                if stream.closed == 0:
                    stream.update(part, batch_id=name)
            if stream.closed == 0:
                stream.release()
            for name, part in parts.items():
                if stream.closed == 1 and name in ("b2", "b3"):
                    stream.update(part, batch_id=name)
            finish(stream)

    whole = begun(configured(tmp_path / "whole", text), seeded, 1)
    work(whole, Env())
    expected = files(tmp_path / "whole" / "releases")
    assert len(expected) == 25
    step = {"table, zcdp": 9, "selective": 17}[kind] if some else 1
    for last in range(3, 400, step):  # odd steps: one kill is before an effect, and the next one after it
        folder = tmp_path / f"k{last}"
        config = begun(configured(folder, text), seeded, 1)
        try:
            work(config, Mortal(last, before=last % 2 == 0))
        except Killed:
            work(config, Env())
            assert files(folder / "releases") == expected
        else:
            assert last > 40
            return
    pytest.fail("the run never came to its end")


# -- what is said ---------------------------------------------------------------------------------------------------


def test_the_promise_names_the_person(tmp_path: Path) -> None:
    config = configured(tmp_path)
    found = plan(config)
    assert "all events of any one person (at most 3 count) being added or removed" in found.words
    assert "whether or not any one person was in the stream" in found.meaning
    assert any("about 3 times as large" in caution.words for caution in found.cautions)
    assert any("the longer a stream runs, the fewer can count" in note for note in found.notes)
    assert found.claim.theorems[-2:] == ("group", "exact-gaussian")
    assert found.claim.fits(config.privacy.budget)
    event = plan(configured(tmp_path / "event", TOML))
    assert found.forecasts[-1].stderr[1] == pytest.approx(3 * event.forecasts[-1].stderr[1], rel=1e-4)
    assert "somebody with many rows is protected less" in event.meaning
    assert not any("limit" in note for note in event.notes)
    with Stream(config, gates=exact) as stream:
        stream.update(rows([1], ["x"]))
        stream.release()
        assert stream.status()["spent"][0]["max_events"] == 3
        stream.release()
        stream.release()
    manifest = json.loads((tmp_path / "releases" / "000000" / "manifest.json").read_text())
    assert manifest["claim"]["unit"] == "person"
    assert "any one person" in manifest["claim"]["words"]
    page = public_page(config, tmp_path / "r.html", progress=lambda steps, _: steps)
    assert "of them hold the true number of events within the limit." in page
    assert '<p class="box warning">Counts hold the events' in page


def test_periods_promise_less_and_say_so(tmp_path: Path) -> None:
    text = with_unit('max_events = 20, max_per_tick = 1, per = "20d"')
    found = plan(configured(tmp_path, text.replace("horizon = 8", "horizon = 40")))
    assert "within any one period of 20d" in found.words
    assert "epsilon counts k times" in found.meaning
    assert "Periods are fixed" in found.meaning
    assert found.claim.theorems[-2:] == ("participation", "exact-gaussian")


def test_the_command_line_speaks_of_persons(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(PERSONS)
    crowd(1).write_parquet(tmp_path / "visits-1.parquet")
    config = str(tmp_path / "stream.toml")
    said = []
    for command in (["plan", config], ["run", config, "--yes"], ["status", config]):
        found = CliRunner().invoke(app, command)
        assert found.exit_code == 0, found.output
        said.append(found.output)
    assert "any one row" not in said[0]
    assert "nobody is told" in said[0]
    assert "any one person (at most 3 count)" in said[2]


def test_a_running_stream_keeps_its_unit(tmp_path: Path) -> None:
    Stream(configured(tmp_path)).close()
    others = {
        TOML: 'privacy.unit: was "person", is "event"',
        with_unit("max_events = 4"): "privacy.unit.max_events",
        with_unit("max_events = 3, max_per_tick = 3"): "privacy.unit.max_per_tick",
        with_unit('max_events = 3, per = "1d"'): "privacy.unit.per",
        PERSONS.replace('"id"', '"op"'): "privacy.unit.person",
    }
    for text, changed in others.items():
        with pytest.raises(StateMismatch, match=f"other settings: {changed}"):
            Stream(configured(tmp_path, text))
    Stream(configured(tmp_path)).close()


def test_other_settings_are_refused_in_the_same_words_whether_rows_wait_or_not(tmp_path: Path) -> None:
    said = set()
    for name, number in (("none", 0), ("one", 1)):
        with Stream(configured(tmp_path / name)) as stream:
            stream.update(rows([1], ["x"])[:number])
        with pytest.raises(StateMismatch, match="Nothing has been released") as refused:
            Stream(configured(tmp_path / name, with_unit("max_events = 4")))
        said.add(str(refused.value).replace(str(tmp_path / name), ""))
    assert len(said) == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE person SET used = 1",
        "DELETE FROM person",
        "UPDATE person SET used = 3 - used",  # as many persons, and as many events
        "UPDATE person SET who = randomblob(16) WHERE used = 2",
        "UPDATE person SET window = 1",
    ],
)
def test_who_has_counted_cannot_be_lost_unnoticed(tmp_path: Path, change: str) -> None:
    """Changed behind the program's back, persons could count again."""
    with Stream(configured(tmp_path)) as stream:
        stream.update(rows([1, 2, 1, 3], ["x", "x", "y", "z"]))
        stream.release()
        stream.release()
    Stream(configured(tmp_path)).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "store.db")) as db, db:
        assert sorted(db.execute("SELECT used FROM person")) == [(1,), (2,)]
        assert db.execute(change).rowcount > 0
    for _ in range(2):
        with pytest.raises(StateCorrupt, match="persons could count again"):
            Stream(configured(tmp_path))


@pytest.mark.parametrize("number", [0, -1, 4, 2**40])
@pytest.mark.parametrize("most", [4, 99])
def test_a_damaged_number_lets_no_more_rows_count(tmp_path: Path, number: int, most: int) -> None:
    text = with_unit(f"max_events = {most}, max_per_tick = 3")
    with Stream(configured(tmp_path, text)) as stream:
        stream.update(rows([1, 1, 2], ["x", "x", "x"]))
        stream.release()
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "store.db")) as db, db:
        assert db.execute("UPDATE waiting SET number = ?", (number,)).rowcount == 1
    with Stream(configured(tmp_path, text)) as stream:
        with pytest.raises(StateCorrupt, match="more rows of a person wait than may count"):
            stream.release()
        assert stream.closed == 1


UNIT = 'unit = { person = "id", max_events = 3 }'
REFUSED = [
    ('unit = "person"', ["line 6", "privacy.unit = 'person'", "max_events = 20"]),
    ("unit = 3", ["line 6", "privacy.unit = 3"]),
    ('unit = { person = "id" }', ["line 6", "max_events", "required"]),
    ("unit = { max_events = 3 }", ["line 6", "person", "required"]),
    ('unit = { person = "id", max_events = 0 }', ["line 6", "max_events = 0", "greater than or equal to 1"]),
    ('unit = { person = "id", max_events = 2.5 }', ["line 6", "max_events = 2.5", "integer"]),
    ('unit = { person = "", max_events = 2 }', ["line 6", "person = ''"]),
    ('unit = { person = "id", max_event = 3 }', ["Did you mean 'max_events'?"]),
    ('unit = { person = "id", max_events = 3, max_per_tick = 4 }', ["line 6", "max_per_tick = 4 has no effect"]),
    ('unit = { person = "id", max_events = 3, max_per_tick = 0 }', ["line 6", "max_per_tick = 0"]),
    ('unit = { person = "id", max_events = 3, per = "30" }', ["line 6", "per = '30'", '"30d"']),
    ('unit = { person = "id", max_events = 3, per = "36h" }', ["line 6", "not a whole number of ticks"]),
    ('unit = { person = "id", max_events = 3, per = "1mo" }', ["not a whole number of ticks", "say days or weeks"]),
    ('unit = { person = "when", max_events = 3 }', ["line 6", "person = 'when' is the column of [clock] too"]),
    (UNIT + '\nneighbours = "replace-one"', ["line 6", "Leave neighbours out"]),
    ('unit = { person = "id", max_events = 1000000 }', ["leaves too little for one event"]),
]


@pytest.mark.parametrize(("new", "says"), REFUSED)
def test_mistakes_are_named_with_their_fix(tmp_path: Path, new: str, says: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        synthesizer_of(StreamConfig.from_toml(PERSONS.replace(UNIT, new), origin="stream.toml", base=tmp_path))
    for part in says:
        assert part in str(caught.value)


def test_more_that_does_not_go_together(tmp_path: Path) -> None:
    for text, says in (
        (PERSONS.replace("[privacy]", 'op = "id"\n[privacy]'), "person = 'id' is op too"),
        (POINTS.replace('"points"', '"hypercube"'), "cannot protect persons"),
        (PERSONS.replace("epsilon = 1.0", "epsilon = 0.00001"), "epsilon"),
    ):
        with pytest.raises(ConfigError, match=says):
            synthesizer_of(configured(tmp_path, text))
    both = PERSONS.replace(UNIT, 'unit = { person = "id", max_events = 3, max_per_tick = 4 }').replace(
        "bins = 4", "bin = 4"
    )
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(both)
    assert "max_per_tick = 4 has no effect" in str(caught.value)
    assert "Did you mean 'bins'?" in str(caught.value)


def test_periods_in_ticks(tmp_path: Path) -> None:
    for every, per, ticks in (
        ("1d", "30d", 30),
        ("1d", "2w", 14),
        ("6h", "1d", 4),
        ("1mo", "1q", 3),
        ("1mo", "2y", 24),
    ):
        text = with_unit(f'max_events = 3, per = "{per}"').replace('every = "1d"', f'every = "{every}"')
        unit = configured(tmp_path, text.replace("until = 2026-01-06\n", "")).privacy.unit
        assert unit.period == ticks


def test_points_of_persons(tmp_path: Path) -> None:
    frame = crowd(4).with_columns(x=pl.int_range(pl.len()) / 80)
    with Stream(configured(tmp_path, POINTS), gates=seeded) as stream:
        stream.update(frame)
        assert len(finish(stream).rows()) > 0
        assert isinstance(stream.last, synthstream.Release)
