"""Streams by the methods of paper 2: the file, the plan, releases, and ticks that are interrupted between two draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.errors import ConfigError, StateCorrupt
from synthstream.forecast.planning import plan
from synthstream.kernel.gate import Gate
from synthstream.kinds import Queries
from synthstream.papers.fit.rounds import Rounds
from synthstream.privacy import Budget
from synthstream.synthesizers.assembly import synthesizer_for, synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Workload
from tests.support.gates import ExactGate
from tests.support.selective import DAYS, TOML, Interrupted, Mortal, config, lived_one_answer_at_a_time, visits
from tests.support.streams import text_of

KINDS = [("selective", "mw"), ("selective", "pgm"), ("stream-mwem", "mw"), ("stream-mwem", "pgm")]


def published(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted((folder / "releases").rglob("*.*"))}


@pytest.mark.parametrize(("kind", "fit"), KINDS)
def test_a_stream_by_a_method_of_the_paper(tmp_path: Path, kind: str, fit: str) -> None:
    with Stream(config(tmp_path, kind, fit), gates=lambda _: ExactGate()) as stream:
        stream.update(visits(DAYS))
        releases = [stream.release() for _ in range(stream.due())]
        assert [len(r.rows()) for r in releases] == [30, 80, 80, 100, 140]
        tables = releases[-1].tables
        assert sum(tables["measured"].is_not_null()) > 0
        measured = [m for m in releases[-1].measured.workload.marginals if m]
        assert len(measured) == 2
        assert releases[-1].table(["ward", "age"])["count"].sum() == 140
    with Stream(config(tmp_path, kind, fit), gates=lambda _: ExactGate()) as again:
        assert again.last is not None
        assert again.last.rows().equals(releases[-1].rows())


@pytest.mark.parametrize(("kind", "fit"), KINDS)
def test_single_queries(tmp_path: Path, kind: str, fit: str) -> None:
    single = config(tmp_path, kind, fit, more='queries = "single"', text=TOML.replace("picks = 2", "picks = 5"))
    with Stream(single, gates=lambda tick: SeededGate(tick)) as stream:
        stream.update(visits(DAYS))
        for _ in range(stream.due()):
            release = stream.release()
            own = release.measured.values[1:]
            assert sum(~np.isnan(own)) == 5
            assert release.tables["measured"].is_not_null().sum() == 6
            unmeasured = release.tables.filter(pl.col("measured").is_null())
            assert unmeasured["stderr"].is_null().all()
            assert unmeasured["since"].is_null().all()


def in_epochs(folder: Path) -> StreamConfig:
    """Our own tables, of which one is chosen in an epoch."""
    return StreamConfig.from_toml(TOML.replace('"selective"\npicks = 2', '"table"\npicks = 1'), base=folder)


@pytest.mark.sparing(2)
@pytest.mark.parametrize("make", [*(partial(config, kind=k, fit=f) for k, f in KINDS), in_epochs])
def test_an_interrupted_tick_goes_on_from_the_answers_that_were_drawn(
    tmp_path: Path, make: Callable[[Path], StreamConfig]
) -> None:
    """Each call of every tick is the last of its process once; releases are those of a run without interruption."""

    def mortal(lives: int, tick: int) -> Gate:
        return Mortal(SeededGate(f"x/{tick}"), lives, [])

    with Stream(make(tmp_path / "whole"), gates=lambda t: SeededGate(f"x/{t}")) as stream:
        stream.update(visits(DAYS))
        for _ in range(stream.due()):
            stream.release()
    broken = make(tmp_path / "broken")
    with Stream(broken, gates=lambda t: SeededGate(f"x/{t}")) as stream:
        stream.update(visits(DAYS))
    deaths = 0
    for tick in range(5):
        for lives in range(100):  # the same tick, interrupted one call later each time
            try:
                with Stream(broken, gates=partial(mortal, lives)) as stream:
                    if stream.closed == tick:  # not finished on opening
                        stream.release()
                break
            except Interrupted:
                deaths += 1
    # A total, and two times a choice and a measurement, at each of five ticks; in epochs a total at each, and at four
    # of them three tables of one column together, a choice and a table.
    assert deaths == (5 + 4 * 3 if make is in_epochs else 5 * 5)
    assert published(tmp_path / "broken") == published(tmp_path / "whole")


def test_nothing_is_drawn_twice_with_real_noise(tmp_path: Path) -> None:
    drawn: list[int] = []
    mine = config(tmp_path)
    with Stream(mine) as stream:
        stream.update(visits(DAYS))
    lived_one_answer_at_a_time(mine, drawn)
    assert len(drawn) == 5 * 5
    assert len([name for name in published(tmp_path) if name.endswith("manifest.json")]) == 5


def test_rows_that_come_while_a_tick_is_half_drawn_count_in_the_next(tmp_path: Path) -> None:
    mine = config(tmp_path)
    gates: Iterator[Gate] = iter([ExactGate(), Mortal(ExactGate(), 2, [])])
    with Stream(mine, gates=lambda _: next(gates, ExactGate())) as stream:
        stream.update(visits([1] * 30))
        with pytest.raises(Interrupted):
            stream.release()
        stream.update(visits([1] * 7))  # finishes the half-drawn tick first
        assert stream.closed == 1
        assert stream.last is not None
        assert float(stream.last.measured.values[0]) == 30
        assert float(stream.release().measured.values[0]) == 37


def test_a_fit_that_fails_keeps_what_was_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Rounds) -> None:
        raise MemoryError

    monkeypatch.setattr(Rounds, "_fitted", fails)
    with Stream(config(tmp_path), gates=lambda _: ExactGate()) as stream:
        stream.update(visits(DAYS))
        assert len(stream.release().rows()) == 30  # uniform ones


def test_an_answer_that_does_not_fit_is_noticed(tmp_path: Path) -> None:
    mine = config(tmp_path)
    with Stream(mine) as stream, stream._store.transaction("test"):
        stream._store.put_answer(0, 0, "of another version", np.array([1]))
    with pytest.raises(StateCorrupt, match="with the version of Synthstream, and on the type of machine"):
        Stream(mine)


def test_noise_alone_makes_no_more_rows_than_a_computer_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synthstream.synthesizers.papers.MOST_ROWS", 60)
    with Stream(config(tmp_path), gates=lambda _: ExactGate()) as stream:
        stream.update(visits(DAYS))
        releases = [stream.release() for _ in range(stream.due())]
        assert [len(r.model.codes) for r in releases] == [30, 60, 60, 60, 60]
        assert [r.table(["ward"])["count"].sum() for r in releases] == [30, 80, 80, 100, 140]
    tiny = TOML.replace("epsilon = 1.0", "epsilon = 1e-6")
    with pytest.raises(ConfigError, match="too small for stream-mwem: noise would make about 20,000,000 rows"):
        plan(config(tmp_path, "stream-mwem", text=tiny))


BAD = [
    ('kind = "selectve"', "", "Did you mean 'selective'"),
    ("picks = 2", "", "events_per_tick, a public guess"),
    ("picks = 2", "picks = 4", "between 1 and 3: there are so many tables"),
    ("picks = 2", "picks = 2\ngrowth = 2.0", 'growth: has no effect with kind = "selective"'),
    ('kind = "selective"', "", "picks: has no effect when"),
]


@pytest.mark.parametrize(("old", "new", "says"), BAD)
def test_what_cannot_be_is_refused_with_the_fix(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = TOML.replace('kind = "selective"', old if "selectve" in old else 'kind = "selective"')
    text = text.replace(old, new) if "selectve" not in old else text
    if "has no effect when" in says:
        text = text.replace("delta = 0.0", "delta = 1e-9")
    with pytest.raises(ConfigError, match=says):
        plan(StreamConfig.from_toml(text, base=tmp_path))


def test_a_domain_too_large_for_weights_is_refused_with_its_number_of_cells(tmp_path: Path) -> None:
    wide = "".join(f'[[columns]]\nname = "c{i}"\ntype = "integer"\nmin = 0\nmax = 99\n' for i in range(4))
    with pytest.raises(ConfigError, match=r"[0-9,]{10,} combinations of codes are too many"):
        plan(config(tmp_path, text=TOML.replace("[sink]", wide + "[sink]")))


def test_a_column_with_one_value_serves(tmp_path: Path) -> None:
    text = TOML.replace("[sink]", '[[columns]]\nname = "one"\ntype = "integer"\nmin = 3\nmax = 3\n[sink]')
    for kind, fit in KINDS:
        mine = config(tmp_path / f"{kind}-{fit}", kind, fit, more='score = "paper"', text=text)
        with Stream(mine, gates=lambda tick: SeededGate(tick)) as stream:
            stream.update(visits(DAYS).with_columns(one=3))
            assert stream.release().tick == 0


@pytest.mark.parametrize("kind", ["selective", "stream-mwem"])
def test_the_plan_explains_and_forecasts(tmp_path: Path, kind: str) -> None:
    text = TOML.replace("picks = 2", "events_per_tick = 400")
    found = plan(config(tmp_path, kind, text=text))
    assert "selected privately" in found.how
    assert found.claim.fits(StreamConfig.from_toml(TOML, base=tmp_path).privacy.budget)
    assert all(np.isfinite(value) for f in found.forecasts for value in f.stderr.values())
    assert json.loads(config(tmp_path, kind, text=text).public_json())["synthesizer.events_per_tick"] == 400


def test_the_rule_gives_the_main_algorithm_three_picks_at_most() -> None:
    """Of whole tables. The baseline keeps the rule alone, and so do single queries."""

    def picks(kind: str, queries: Queries = "workloads") -> int:
        settings = SynthesizerConfig(kind=kind, events_per_tick=1e9, queries=queries)
        workload, budget = Workload.all_up_to(2, sizes=(2, 3, 4, 5)), Budget(epsilon=1.0, delta=0.0)
        made = synthesizer_for(settings, workload=workload, budget=budget, horizon=10)
        return int(made.mechanism.picks)  # type: ignore[attr-defined]

    assert [picks("selective"), picks("stream-mwem")] == [3, 6]
    assert picks("selective", "single") > 3


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('neighbours = "replace-one"', 'neighbours = "add-remove"', "publishes the exact number of events"),
        ('state = "state"', 'state = "state"\nop = "op"', "publishes the exact number of events"),
        ("delta = 0", "delta = 1e-9", "has no use for delta"),
    ],
)
def test_the_method_of_points_refuses_what_its_proof_does_not_cover(old: str, new: str, says: str) -> None:
    config = StreamConfig.from_toml(text_of("hypercube").replace(old, new))
    with pytest.raises(ConfigError, match=says):
        synthesizer_of(config)
