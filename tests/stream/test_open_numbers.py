"""Each epoch names anew how many larger tables it measures: ticks that are interrupted within, at any answer."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synthstream import Releases, Stream, StreamConfig
from synthstream.errors import StateCorrupt
from synthstream.fit.ahead import Ahead
from synthstream.kernel.gate import Gate
from synthstream.stream.recovery import adopt
from synthstream.stream.verification import verify
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.configs import AGE, SINK, URGENT, WARD, stream_toml
from tests.support.selective import DAYS, Interrupted, Mortal, lived_one_answer_at_a_time, visits
from tests.support.streams import published

TOML = stream_toml(WARD, AGE, URGENT, SINK, delta=0, epsilon=5.0)
# Of these draws the epochs measure so many larger tables; none ends with the fourth tick.
NUMBERS = [2, 1, 1, 0, 3]
# A total; at an end three tables of one column together, and the larger ones, each chosen unless all are measured.
ANSWERS = [1 + 1 + 2 * 2, 1 + 1 + 2 * 1, 1 + 1 + 2 * 1, 1, 1 + 1 + 3]


def config(folder: Path) -> StreamConfig:
    return StreamConfig.from_toml(TOML, base=folder)


def seeded(tick: int) -> Gate:
    return SeededGate(f"e/{tick}")


def filled(folder: Path) -> StreamConfig:
    """A stream of five ticks, all of which are due."""
    with Stream(config(folder), gates=seeded) as stream:
        stream.update(visits(DAYS))
    return config(folder)


def dying(config: StreamConfig, tick: int, answers: int) -> bool:
    """Close a tick in a process that ends with so many answers. Whether it lived."""

    def mortal(lives: int, tick: int) -> Gate:
        return Mortal(seeded(tick), lives, [])

    try:
        with Stream(config, gates=partial(mortal, answers)) as stream:
            if stream.closed == tick:  # not finished on opening
                stream.release()
    except Interrupted:
        return False
    return True


def test_a_tick_that_is_interrupted_at_any_answer_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the number follows from is the same, to the last bit, whenever the tick is taken up again."""
    asked, honest = dict[int, list[Any]](), Ahead.number

    def number(self: Ahead, scales: Any, events: float, shown: Any, *, whole: bool) -> int:
        rows = None if self.rows is None else self.rows.counts(self.workload).tolist()
        asked.setdefault(self.begun, []).append((sorted(scales), events, shown.tolist(), whole, rows))
        return honest(self, scales, events, shown, whole=whole)

    with Stream(filled(tmp_path / "whole"), gates=seeded) as stream:
        found = [stream.release().measured.workload.order.tolist().count(2) for _ in range(stream.due())]
    assert found == NUMBERS
    broken = filled(tmp_path / "broken")
    monkeypatch.setattr(Ahead, "number", number)
    deaths = [next(lives for lives in range(99) if dying(broken, tick, lives)) for tick in range(5)]
    assert deaths == ANSWERS
    assert published(tmp_path / "broken/releases") == published(tmp_path / "whole/releases")
    monkeypatch.undo()
    assert verify(broken, rebuild=True).findings == []
    assert [len(each) for each in asked.values()] == [number for number in ANSWERS if number > 1]
    assert all(one == each[0] for each in asked.values() for one in each)
    assert [each[0][2][0] for each in asked.values()] == [0, 2, 1, 1]  # what the epoch before showed


def test_nothing_is_drawn_twice_with_real_noise(tmp_path: Path) -> None:
    drawn, found, mine = list[int](), list[int](), config(tmp_path)
    with Stream(mine) as stream:
        stream.update(visits(DAYS))
    lived_one_answer_at_a_time(mine, drawn)
    for tick in range(5):
        found.append(sum(len(table) == 2 for table in Releases(mine).at(tick).measured.workload.marginals))
    ended = [t for t in range(5) if t != 3]
    choices = sum(found[t] for t in ended if found[t] < 3)
    assert len(drawn) == 5 + len(ended) + sum(found) + choices


@pytest.mark.parametrize(("answers", "refused"), [(1, False), (2, True), (3, True), (5, True)])
def test_no_tick_goes_on_with_another_number_once_its_price_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int, refused: bool
) -> None:
    """As another version, or another processor, might name it. Before tables of one column all numbers are as good."""
    mine = filled(tmp_path)
    assert not dying(mine, 0, answers)
    monkeypatch.setattr(Ahead, "number", lambda self, *args, **how: 1)
    if refused:
        with pytest.raises(StateCorrupt, match="does not fit what is asked"):
            Stream(mine, gates=seeded)
        monkeypatch.undo()
    with Stream(mine, gates=seeded) as stream:
        assert stream.last is not None
        assert stream.last.measured.workload.order.tolist().count(2) == (NUMBERS[0] if refused else 1)


def test_another_version_does_not_go_on_with_a_tick_that_one_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may offer other candidates in the same number."""
    mine = filled(tmp_path)
    assert not dying(mine, 0, 5)
    monkeypatch.setattr("synthstream.state.journal._installed", lambda package: "another")
    with pytest.raises(StateCorrupt, match="with the version of Synthstream"):
        Stream(mine, gates=seeded)
    monkeypatch.undo()
    assert dying(mine, 0, 99)


def test_the_state_of_another_tick_draws_nothing(tmp_path: Path) -> None:
    """With that of an earlier one, rows that were measured would be measured again."""
    with Stream(filled(tmp_path), gates=seeded) as stream:
        stream.release()
        before = stream._store.counter()
        assert before is not None
        kept = {name: array.copy() for name, array in before.exact.items()}
        stream.release()
        with stream._store.transaction("test"):
            stream._store.put_counter(kept)
    with Stream(config(tmp_path), gates=seeded) as stream, pytest.raises(StateCorrupt, match="that of another tick"):
        stream.release()


def test_after_a_loss_numbers_begin_anew(tmp_path: Path) -> None:
    """From nothing that was shown, on top of what was published; no tick is drawn twice."""
    with Stream(filled(tmp_path), gates=seeded) as stream:
        before = [stream.release().measured.facts() for _ in range(2)]
    mine = config(tmp_path)
    shutil.rmtree(mine.state)
    adopt(mine, gates=seeded)
    with Stream(mine, gates=seeded) as stream:
        state = stream._store.counter()
        assert state is not None
        assert not np.any(state.exact["shown"])
        stream.update(visits(DAYS), batch_id="again")
        after = [release.measured for release in stream.run()]
        assert [found.tick for found in after] == [2, 3, 4]
    found = Releases(mine)
    assert [found.at(tick).measured.facts() for tick in range(2)] == before
    assert verify(mine, rebuild=True).findings == []
