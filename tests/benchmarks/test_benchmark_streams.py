"""Streams to tune on: they are what their names say. And what a run tells of them."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.beside import quarters
from benchmarks.data import STREAMS, TO_TUNE_ON, Batches
from benchmarks.streams import shown
from benchmarks.tabular import Setting, run
from numpy.typing import NDArray

from benchmarks import data, streams, tabular
from benchmarks import parts as parts_of_the_fit
from synthstream.errors import ConfigError
from synthstream.kinds import EDITION
from synthstream.synthesizers.assembly import synthesizer_for
from synthstream.workload import Workload

TINY = Setting(data="tiny", order="", batch=0, every="", epsilon=10.0, delta=1e-9, method="marginals")


@lru_cache(maxsize=1)
def stream(name: str, seed: int = 0) -> Batches:
    return STREAMS[name](seed)


def parts(found: Batches, number: int) -> list[NDArray[np.int32]]:
    """The rows of halves, or quarters, of the ticks."""
    ticks = len(found.ends)
    cuts = [0, *(found.ends[ticks * part // number - 1] for part in range(1, number + 1))]
    return [found.codes[begin:end] for begin, end in pairwise(cuts)]


def distance(found: Batches, first: NDArray[np.int32], second: NDArray[np.int32], columns: int) -> float:
    """L1 between the shares of two sets of rows, mean over all tables of so many columns."""
    every = Workload.all_up_to(columns, sizes=found.sizes).marginals
    tables = Workload(sizes=found.sizes, marginals=tuple(m for m in every if len(m) == columns))
    gap = np.abs(tables.count(first) / len(first) - tables.count(second) / len(second))
    return float(gap.sum() / len(tables.marginals))


def tiny(seed: int) -> Batches:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 3, 800)
    codes = np.stack([first, (first + rng.integers(0, 2, 800)) % 4], axis=1).astype(np.int32)
    return Batches(codes=codes, sizes=(3, 4), ends=list(range(100, 900, 100)), expected=100, horizon=30)


@pytest.mark.parametrize("name", TO_TUNE_ON)
def test_codes_are_in_range_and_ticks_hold_all_rows(name: str) -> None:
    found = stream(name)
    assert found.codes.dtype == np.int32
    assert found.codes.shape == (found.ends[-1], len(found.sizes))
    assert found.codes.min() >= 0
    assert np.all(found.codes.max(axis=0) < found.sizes)
    assert found.ends == sorted(found.ends)
    assert found.declared == (60 if name.startswith("wide") else len(found.ends))
    assert len(found.ends) / 2 < len(found.codes) / found.expected < len(found.ends) * 2


@pytest.mark.parametrize("name", ["switch", "seasonal", "associations", "dependent", "flags", "lookup", "wide-groups"])
def test_seeds_draw_other_rows_of_the_same_stream(name: str) -> None:
    one, again, other = STREAMS[name](1), STREAMS[name](1), STREAMS[name](2)
    assert np.array_equal(one.codes, again.codes)
    assert not np.array_equal(one.codes, other.codes)
    assert one.sizes == other.sizes
    assert distance(one, one.codes, other.codes, 1) < 0.04


@pytest.mark.parametrize(
    "name", ["adult-by-age", "adult-by-education-num", "switch", "seasonal", "earthquakes", "bursts"]
)
def test_drifting_streams_drift(name: str) -> None:
    first, *_, last = parts(stream(name), 4)
    assert distance(stream(name), first, last, 1) > 0.09


@pytest.mark.parametrize("name", ["adult-random", "associations", "dependent", "flags", "wide-independent"])
def test_the_others_do_not(name: str) -> None:
    first, *_, last = parts(stream(name), 4)
    assert distance(stream(name), first, last, 1) < 0.045


def test_only_associations_change() -> None:
    random, found = STREAMS["adult-random"](0), stream("associations")
    assert np.array_equal(np.sort(random.codes, axis=0), np.sort(found.codes, axis=0))
    first, second = parts(found, 2)
    assert distance(found, first, second, 1) < 0.02
    before, after = parts(random, 2)
    assert distance(found, first, second, 2) > 2 * distance(random, before, after, 2)


def test_a_switch_begins_as_random_order() -> None:
    first = parts(stream("switch"), 2)[0]
    assert np.array_equal(first, STREAMS["adult-random"](0).codes[: len(first)])


def test_columns_that_follow_others() -> None:
    codes = stream("dependent").codes
    for parent, child in ((0, 4), (3, 7), (5, 13)):
        best = sum(np.bincount(codes[codes[:, parent] == v, child]).max() for v in np.unique(codes[:, parent]))
        assert best / len(codes) > 0.94
    flag = stream("flags").codes.astype(bool)
    assert flag.mean(axis=0).max() < 0.32
    assert flag[flag[:, 16], 4].mean() > 5 * flag[:, 4].mean()


def test_a_code_decides_its_group_and_most_codes_are_rare() -> None:
    code, group = stream("lookup").codes[:, :2].T
    assert len(np.unique(code)) == len(np.unique(np.stack([code, group]), axis=1).T) == 250
    assert len(np.unique(group)) == 180
    assert np.median(np.bincount(code)) < 0.003 * len(code)


def test_most_products_are_rare_and_some_come_late() -> None:
    product, group = stream("products").codes[:, :2].T
    assert len(np.unique(np.stack([product, group]), axis=1).T) == len(np.unique(product)) > 2_500
    often = np.sort(np.bincount(product))[::-1]
    assert often[:5].min() > 500
    assert np.mean(often < 40) > 0.9
    late = product >= 2_900
    assert late[24_000:].mean() > 5 * late[:24_000].mean()


def test_ages_of_those_screened_are_even_and_most_charges_are_rare() -> None:
    age, charge = (np.bincount(column) for column in stream("screenings").codes[:, :2].T)
    assert len(age) == 82
    assert np.abs(np.diff(age)).mean() < 0.2 * age.mean()
    assert np.sort(charge)[::-1][:175].sum() > 0.85 * charge.sum()
    assert np.mean(charge < 20) > 0.8


def test_bursts_differ_and_a_value_comes_late() -> None:
    found = stream("bursts")
    sizes = np.diff([0, *found.ends])
    assert np.sum(sizes == 5_000) == 8
    assert np.mean(sizes == 0) > 0.1
    assert np.median(sizes[sizes < 5_000]) <= 6
    ticks = parts(found, 300)
    bursting = [np.bincount(rows[:, 0]).argmax() for rows in ticks if len(rows) == 5_000]
    assert bursting == list(range(8))
    late = np.array([7 in rows[:, 3] for rows in ticks])
    assert not late[:240].any()
    assert np.mean(np.concatenate(ticks[240:])[:, 3] == 7) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("name", ["wide", "wide-independent", "wide-groups"])
def test_other_and_missing_never_occur(name: str) -> None:
    assert stream(name).codes.max() + 2 == stream(name).sizes[0] - 1


def test_a_run_declares_the_horizon_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def made(settings: Any, **facts: Any) -> Any:
        asked.append({"growth": settings.growth, **facts})
        return synthesizer_for(settings, **facts)

    monkeypatch.setitem(STREAMS, "tiny", tiny)
    monkeypatch.setattr(tabular, "synthesizer_for", made)
    line = run(TINY, keys={"measure": "epochs", "growth": 2})
    assert asked[0]["horizon"] == 30
    assert asked[0]["growth"] == 2
    assert line["set"] == {"measure": "epochs", "growth": 2}
    assert line["stream"] == "tiny"
    with pytest.raises(ConfigError, match="picks: has no effect"):
        run(TINY, keys={"picks": 2})


def test_a_run_tells_its_errors_at_each_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STREAMS, "tiny", tiny)
    line = run(TINY, curve=True)
    assert [(quarter["ticks"], quarter["events"]) for quarter in line["quarters"]] == [
        (2, 200),
        (4, 400),
        (6, 600),
        (8, 800),
    ]
    for quarter in line["quarters"]:
        span = [p["avg_rel_l1"] for p in line["curve"] if quarter["ticks"] - 2 <= p["tick"] < quarter["ticks"]]
        assert quarter["avg_rel_l1"] == pytest.approx(np.mean(span), rel=1e-3)
        assert quarter["avg_rel_l1"] < 0.2 < quarter["independent_avg_rel_l1"]
    assert line["all_ticks"]["avg_we"] == pytest.approx(np.mean([p["avg_we"] for p in line["curve"]]), rel=1e-3)
    assert 0 < line["changed_second_half"] < 1
    assert "cycle" not in line  # refreshed at every tick
    cycle = run(TINY, keys={"growth": 2}, curve=True)
    within = [p["avg_rel_l1"] for p in cycle["curve"] if p["tick"] + 1 in range(3, 5)]
    assert cycle["cycle"]["ticks"] == [3, 4]
    assert cycle["cycle"]["avg_rel_l1"] == pytest.approx(np.mean(within), rel=1e-3)
    assert line["slowest_release"] >= line["seconds_per_release"] > 0


def test_all_rows_may_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STREAMS, "tiny", tiny)
    line = run(TINY, once=True)
    assert (line["once"], line["ticks"]) == (True, 1)
    assert [quarter["events"] for quarter in line["quarters"]] == [800] * 4


def test_keys_side_by_side_in_one_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(STREAMS, "tiny", tiny)
    monkeypatch.setattr(sys, "argv", ["tabular", "--stream", "tiny", "--set", "", "--set", "measure=epochs,growth=2"])
    tabular.main()
    shown = capsys.readouterr()
    assert [json.loads(line).get("set") for line in shown.out.splitlines()] == [
        None,
        {"measure": "epochs", "growth": 2},
    ]
    assert "| 1: defaults | 1 |" in shown.err
    assert "| 2: measure=epochs,growth=2 | 1 |" in shown.err
    assert "| *second / first* |" in shown.err


def test_files_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STREAMS, "tiny", tiny)
    line = run(TINY)
    worse = {**line, "quarters": [{**q, "avg_we": 2 * q["avg_we"]} for q in line["quarters"]]}
    text = shown({"before": [line, {**line, "seed": 1}], "after": [worse]})
    assert "| tiny, 10, 1e-09: before | 2 |" in text
    assert "| *second / first* | | 2.000 2.000 2.000 2.000 | 1.000 1.000 1.000 1.000 |" in text
    assert quarters([line, worse], "avg_we") == pytest.approx(1.5 * quarters([line], "avg_we"))

    path = tmp_path / "streams.jsonl"
    path.write_text(json.dumps({**line, "edition": EDITION}) + "\n")
    command = "streams --stream tiny --epsilon 10 --delta 1e-9 --seeds 1 --out"
    monkeypatch.setattr(sys, "argv", [*command.split(), str(path)])
    streams.main()
    assert "| tiny, 10, 1e-09 | 1 |" in capsys.readouterr().out
    assert len(path.read_text().splitlines()) == 1


def test_a_table_kept_aside_is_read_and_a_missing_one_says_who_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_KEPT_ASIDE", tmp_path)
    with pytest.raises(SystemExit, match=r"tuna\.npz is missing: make bench-unseen writes it"):
        STREAMS["tuna"](0)
    np.savez(tmp_path / "tuna.npz", codes=[[0, 2], [1, 0], [1, 1]], sizes=[2, 3], ends=[1, 3])
    found = STREAMS["tuna"](0)
    assert (found.codes.tolist(), found.sizes, found.ends) == ([[0, 2], [1, 0], [1, 1]], (2, 3), [1, 3])
    assert (found.expected, found.declared) == (1.5, 2)


def test_parts_of_the_fit_are_where_they_are_left_out_and_ratios_are_of_the_same_noise() -> None:
    for module, name, instead in parts_of_the_fit.PARTS.values():
        assert callable(getattr(import_module(f"synthstream.fit.{module}"), name)), name
        assert callable(instead)
    lines = [
        {"without": part, "stream": stream, "delta": 1e-9, "seed": seed, "all_ticks": error, "final": error}
        for part, stream, off in (("", "a", 0.1), ("", "b", 0.2), ("empty", "a", 0.2), ("empty", "b", 0.1))
        for seed, error in [(0, {"avg_rel_l1": off})]
    ]
    lone = {**lines[2], "seed": 1}
    row = parts_of_the_fit.shown([*lines, lone]).splitlines()[2]
    assert row == "| empty | 1e-09 | 2 | 1.000 | 1.000 | a 2.000, b 0.500 | b 0.500, a 2.000 |"
