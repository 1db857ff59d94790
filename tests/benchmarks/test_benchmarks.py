"""The harness: which runs there are, that a run is what its settings say, and the document made of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.data import Batches
from benchmarks.published import PUBLISHED
from benchmarks.report import write
from benchmarks.tables import OTHERS, done, key, newest, settings
from benchmarks.tabular import Setting, run

from benchmarks import tabular

FIRST = Setting(data="adult", order="random", batch=50, every="", epsilon=1.0, delta=0.0, method="marginals")


def small(seed: int) -> Batches:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 3, 600)
    codes = np.stack([first, (first + rng.integers(0, 2, 600)) % 4, rng.integers(0, 2, 600)], axis=1).astype(np.int32)
    return Batches(codes=codes, sizes=(3, 4, 2), ends=list(range(50, 650, 50)), expected=50)


def test_every_published_stream_has_its_runs() -> None:
    runs = [setting for part in (settings, *OTHERS) for setting in part(0)]
    assert {run.stream for run in runs} == set(PUBLISHED)
    assert len({key(asdict(run)) for run in runs}) == len(runs)
    for stream, by_epsilon in PUBLISHED.items():
        for epsilon, figures in by_epsilon.items():
            own = [r for r in runs if r.stream == stream and r.epsilon == epsilon]
            assert {r.method for r in own} >= {"marginals", "selective", "stream-mwem"}
            assert ("block" in {r.counter for r in own}) == ("block" in figures)


@pytest.mark.sparing(4)
@pytest.mark.parametrize("method", ["marginals", "selective", "stream-mwem", "independent"])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_a_run_with_hardly_any_noise_finds_the_tables(
    monkeypatch: pytest.MonkeyPatch, method: str, delta: float
) -> None:
    monkeypatch.setattr(tabular, "adult_batches", lambda order, batch, seed: small(seed))
    line = run(replace(FIRST, epsilon=1e5, delta=delta, method=method, k=3, seed=1), curve=True)
    assert line["avg_rel_l1"] < (0.5 if method == "independent" else 0.08)
    assert [p["tick"] for p in line["curve"]] == list(range(12))


def test_the_document_holds_ours_and_theirs(tmp_path: Path) -> None:
    lines = []
    for stream in ("Adult-randomized-bs-50",):
        for method, delta in (("marginals", 0.0), ("marginals", 1e-9), ("selective", 0.0), ("independent", 0.0)):
            for seed in (0, 1):
                facts = asdict(
                    Setting(
                        data="adult",
                        order="random",
                        batch=50,
                        every="",
                        epsilon=1.0,
                        delta=delta,
                        method=method,
                        seed=seed,
                    )
                )
                metrics = {"avg_we": 0.001 + seed / 1000, "max_we": 0.01, "avg_rel_l1": 0.1, "max_rel_l1": 0.5}
                curve = {"curve": [{"tick": t, **metrics} for t in range(3)]} if seed == 0 else {}
                lines.append({**facts, "stream": stream, **metrics, "seconds_per_release": 0.1, **curve})
    write(lines, tmp_path)
    text = (tmp_path / "tables.md").read_text()
    assert "| 1 | *published: block* | 0 | ? | 0.0058 | 0.0383 | 0.253 | 1.529 | | |" in text
    assert "| 1 | marginals | 1e-09 |  | 0.0015 ±0.0005 | 0.0100 ±0.0000 |" in text
    assert "| Adult-randomized-bs-50 | 1 | 3.9 | 1.0, 1.0, 1.0 | 0.3 |" in text
    assert (tmp_path / "adult-randomized-bs-50.png").stat().st_size > 10_000
    path = tmp_path / "tables.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(done(path)) == len(lines)


def test_a_run_of_an_older_edition_is_not_a_run_of_this_one() -> None:
    old = {**asdict(FIRST), "edition": 14, "avg_we": 1.0}
    new, theirs = {**old, "edition": 15, "avg_we": 2.0}, {**old, "method": "selective"}
    assert key(old) != key(new)
    assert key(theirs) == key({**theirs, "edition": 15})
    assert newest([new, old, {**old, "seed": 1}, theirs]) == [new, theirs]
