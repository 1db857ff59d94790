"""Which rows of a person count: their own alone decide, whatever comes beside them, and however rows are cut."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthstream.counts import Counts
from synthstream.errors import StateCorrupt
from synthstream.ingest import persons as contributions
from synthstream.ingest.bounding import arrivals, counting, from_bytes, span_of, window_of
from synthstream.ingest.counting import PrivateRows
from synthstream.ingest.persons import Contributions
from synthstream.privacy import Unit
from synthstream.state.store import Store
from synthstream.workload import CodeArray, IntArray

TICKS = 4
CODES = 3


class Row(NamedTuple):
    """A row: who, own tick (-1: none), code, sign, and while which tick is open it comes."""

    who: str
    tick: int
    code: int
    sign: int
    comes: int


ROWS = st.lists(
    st.builds(
        Row,
        st.sampled_from("abc"),
        st.integers(-1, TICKS),  # the last one lies ahead, and is never closed
        st.integers(0, CODES - 1),
        st.sampled_from((1, -1)),
        st.integers(0, TICKS - 1),
    ),
    max_size=24,
)
UNITS = st.builds(
    lambda m, c, per: Unit(kind="person", max_events=m, max_per_tick=c and min(c, m), per=per and "x", period=per),
    st.integers(1, 5),
    st.sampled_from((None, 1, 2)),
    st.sampled_from((None, 1, 2, 3)),
)


def encoded(rows: Sequence[Row]) -> PrivateRows:
    return PrivateRows(
        np.array([[row.code] for row in rows], dtype=np.int32).reshape(-1, 1),
        np.array([row.tick for row in rows], dtype=np.int64),
        np.array([row.sign for row in rows], dtype=np.int64),
        pl.Series([row.who for row in rows], dtype=pl.String),
    )


def count(codes: CodeArray, weights: IntArray | None) -> Counts:
    """One cell for each code and sign, so that every row shows."""
    assert weights is not None
    return Counts.at(codes[:, 0].astype(np.int64) * 2 + (weights < 0), np.abs(weights))


def counted(unit: Unit, rows: Iterable[Row], *, chunk: int = 5, seed: int | None = None) -> list[list[int]]:
    """Exact counts by tick, of rows that come in some order, cut into chunks; with a seed, reopened now and then."""
    rng = random.Random(seed)  # noqa: S311 - an order, nothing more
    waiting = defaultdict(list)
    for row in rows:
        waiting[row.comes].append(row)
    found = []
    with TemporaryDirectory() as folder:
        store = opened(Path(folder))
        for tick in range(TICKS):
            people = Contributions(store, unit)
            come = waiting[tick]
            if seed is not None:
                rng.shuffle(come)
            for start in range(0, len(come), chunk):
                with store.transaction("counts"):
                    people.add(encoded(come[start : start + chunk]), tick)
                assert_bounded(store, unit)
                if seed is not None and rng.random() < 0.3:
                    store.close()
                    store = opened(Path(folder))
                    people = Contributions(store, unit)
            found.append(people.counts(tick, count).dense(2 * CODES).tolist())
            with store.transaction("measurement"):
                people.close(tick)
            store.close()
            store = opened(Path(folder))
        store.close()
    return found


def opened(folder: Path) -> Store:
    """A store with one and the same secret."""
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_bytes", lambda size: b"\x5a" * size)
        return Store(folder)


def assert_bounded(store: Store, unit: Unit) -> None:
    """No more rows wait than can count."""
    span = unit.period or 10**6
    found = store.db.execute("SELECT who, tick, sum(number) FROM waiting GROUP BY who, tick").fetchall()
    windows: defaultdict[tuple[bytes, int], int] = defaultdict(int)
    for who, tick, number in found:
        assert number <= unit.in_a_tick
        windows[who, tick // span] += number
    for who, window, used in store.db.execute("SELECT who, window, used FROM person"):
        windows[who, window] += used
    assert max(windows.values(), default=0) <= unit.max_events


def added(parts: Iterable[list[list[int]]]) -> list[list[int]]:
    return np.sum([np.zeros((TICKS, 2 * CODES), dtype=int), *(np.array(p) for p in parts)], axis=0).tolist()  # type: ignore[no-any-return]


def assert_of_ones_own(unit: Unit, rows: Sequence[Row], *, chunk: int = 5) -> None:
    """What a person adds is what it adds alone: so one person more changes nothing of the others."""
    people = sorted({row.who for row in rows})
    alone = [counted(unit, [row for row in rows if row.who == who], chunk=chunk) for who in people]
    assert counted(unit, rows, chunk=chunk) == added(alone)


# -- what a running stream has in its state -------------------------------------------------------------------------


def test_who_and_rank_are_keyed_hashes_of_16_bytes() -> None:
    """As a running stream has them in its state: with others, rows that wait would be taken in another order."""
    codes = np.array([[3, 2**31 - 1], [3, 2**31 - 1], [0, 5]], dtype=np.int32)
    key = b"k" * 32
    found = arrivals(PrivateRows(codes, np.array([2, 2, 9]), None, pl.Series(["a", "a", "b"])), open_tick=4, key=key)
    expected = set()
    for name, tick, (one, two), number in (("a", 4, (3, 2**31 - 1), 2), ("b", 9, (0, 5), 1)):
        who = blake2b(name.encode(), digest_size=16, key=key, person=b"who").digest()
        row = bytes([1]) + one.to_bytes(4, "little") + two.to_bytes(4, "little")
        rank = blake2b(who + tick.to_bytes(8, "big") + row, digest_size=16, key=key, person=b"rank").digest()
        expected.add((who, tick, rank, row, number))
    assert found.columns == ["who", "tick", "rank", "row", "number"]
    assert set(found.iter_rows()) == expected


def test_after_a_cut_the_same_bytes_are_another_row() -> None:
    """Codes of a row that waits moved with its columns, and its rank did not: another row may have its old bytes."""
    rows = PrivateRows(np.array([[3]], dtype=np.int32), np.array([2]), None, pl.Series(["a"]))
    ranks = [arrivals(rows, open_tick=0, key=b"k" * 32, cuts=cuts)["rank"].item() for cuts in (0, 1, 2)]
    assert len(set(ranks)) == 3


def test_periods_follow_each_other() -> None:
    life, three = Unit(kind="person"), Unit(kind="person", per="3d", period=3)
    assert [window_of(tick, three) for tick in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert [span_of(window, three) for window in (0, 1, 2)] == [(0, 2), (3, 5), (6, 8)]
    assert window_of(10**9, life) == 0
    assert span_of(0, life) == (0, 2**40)


@pytest.mark.parametrize(
    ("most", "per_tick", "used", "kept"),
    [
        (100, None, 0, [2, 3, 4, 1, 5, 2]),
        (8, None, 0, [2, 3, 3, 0, 5, 2]),
        (8, 4, 0, [2, 2, 4, 0, 4, 2]),
        (8, 4, 3, [2, 2, 1, 0, 4, 2]),
        (3, 1, 2, [1, 0, 0, 0, 1, 1]),
        (8, None, 8, [0, 0, 0, 0, 5, 2]),
    ],
)
def test_rows_count_by_tick_and_rank(most: int, per_tick: int | None, used: int, kept: list[int]) -> None:
    """Of one person: two ranks in tick 0, one in tick 1 and in tick 2 of a period, one in the next; of another, one."""
    rows = pl.DataFrame(
        {
            "who": [b"a"] * 5 + [b"b"],
            "tick": [0, 0, 1, 2, 3, 0],
            "rank": [b"p", b"q", b"p", b"p", b"p", b"p"],
            "number": [2, 3, 4, 1, 5, 2],
            "window": [0, 0, 0, 0, 1, 0],
            "used": [used] * 4 + [0, 0],
        }
    )
    unit = Unit(kind="person", max_events=most, max_per_tick=per_tick, per="3d", period=3)
    assert counting(rows, unit)["kept"].to_list() == kept
    assert counting(rows.reverse(), unit)["kept"].to_list() == kept


def test_a_state_keeps_the_sum_of_all_who_have_counted(tmp_path: Path) -> None:
    """Keyed hashes of 32 bytes, modulo 2^256: a running stream is refused if its sum is another."""
    store = opened(tmp_path)
    people = Contributions(store, Unit(kind="person", max_events=2))
    assert people._kept() == 0
    with store.transaction("counts"):
        people.add(encoded([Row(f"p{i}", 0, 0, 1, 0) for i in range(16)] * 2), 0)
    with store.transaction("measurement"):
        people.close(0)
    rows = store.db.execute("SELECT who, window, used FROM person").fetchall()
    assert sorted({(window, used) for _, window, used in rows}) == [(0, 2)]
    marks = [
        blake2b(f"{who.hex()} 0 2".encode(), digest_size=32, key=store.secret, person=b"used").digest()
        for who, _, _ in rows
    ]
    total = sum(int.from_bytes(mark, "big") for mark in marks)
    assert total > 2**257
    assert people._kept() == total % 2**256
    kept = store.meta("people")
    assert kept is not None
    assert store.unseal(bytes.fromhex(kept), "people") == (total % 2**256).to_bytes(32, "big")
    store.close()


# -- whose rows count ---------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, unit=UNITS)
def test_each_persons_rows_count_as_if_nobody_else_were_there(rows: list[Row], unit: Unit) -> None:
    assert_of_ones_own(unit, rows)


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, unit=UNITS, chunk=st.integers(1, 9), seed=st.integers(0, 1000))
def test_order_chunks_and_restarts_change_nothing(rows: list[Row], unit: Unit, chunk: int, seed: int) -> None:
    assert counted(unit, rows, chunk=chunk, seed=seed) == counted(unit, rows, chunk=100)


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, unit=UNITS)
def test_as_many_count_as_the_limits_let_in(rows: list[Row], unit: Unit) -> None:
    """Tick by tick, as many as come, up to the cap and to what is left of the period; and each is a row that came."""
    rows = [row._replace(who="a") for row in rows]
    found = np.array(counted(unit, rows))
    used: defaultdict[int, int] = defaultdict(int)
    for tick in range(TICKS):
        here = [row for row in rows if max(row.tick, row.comes) == tick]
        window = 0 if unit.period is None else tick // unit.period
        expected = min(len(here), unit.in_a_tick, unit.max_events - used[window])
        used[window] += expected
        assert found[tick].sum() == expected
        offered = np.bincount([row.code * 2 + (row.sign < 0) for row in here], minlength=2 * CODES)
        assert np.all(found[tick] <= offered)
    for window in used:
        assert used[window] <= unit.events


def test_the_order_within_a_tick_is_not_that_of_the_rows() -> None:
    """Over many people with three different rows, each row is taken about as often."""
    rows = [Row(f"p{i}", 0, code, 1, 0) for i in range(600) for code in range(3)]
    found = np.array(counted(Unit(kind="person", max_events=1), rows, chunk=10_000))[0, ::2]
    assert found.sum() == 600
    assert found.min() > 150


def test_a_flood_stays_small(tmp_path: Path) -> None:
    unit = Unit(kind="person", max_events=20)
    store = opened(tmp_path)
    people = Contributions(store, unit)
    rng = np.random.default_rng(0)
    for _ in range(10):
        n = 5000
        who = pl.Series(["busy"] * n)
        flood = PrivateRows(rng.integers(0, 10**6, (n, 2)).astype(np.int32), rng.integers(0, 10**6, n), None, who)
        with store.transaction("counts"):
            people.add(flood, 0)
        assert store.db.execute("SELECT sum(number) FROM waiting").fetchone()[0] == 20
    assert (tmp_path / "store.db").stat().st_size < 200_000
    store.close()


def test_people_of_periods_that_are_over_are_forgotten(tmp_path: Path) -> None:
    store = opened(tmp_path)
    people = Contributions(store, Unit(kind="person", max_events=2, per="2d", period=2))
    for tick in range(4):
        with store.transaction("counts"):
            people.add(encoded([Row("a", tick, 0, 1, tick)]), tick)
        with store.transaction("measurement"):
            people.close(tick)
        assert store.db.execute("SELECT window, used FROM person").fetchall() == (
            [(tick // 2, 1)] if tick % 2 == 0 else []
        )
    store.close()


def test_names_do_not_stand_in_the_state(tmp_path: Path) -> None:
    store = opened(tmp_path)
    people = Contributions(store, Unit(kind="person", max_events=2))
    with store.transaction("counts"):
        people.add(encoded([Row("Jane Canary Doe", 0, 0, 1, 0)]), 0)
    store.close()
    assert all(b"Canary" not in path.read_bytes() for path in tmp_path.iterdir())


def test_another_key_takes_other_rows() -> None:
    rows = encoded([Row(f"p{i}", 0, code, 1, 0) for i in range(20) for code in range(3)])
    one, two = (arrivals(rows, open_tick=0, key=key * 32).sort("who") for key in (b"a", b"b"))
    assert not set(one["who"].to_list()) & set(two["who"].to_list())
    assert len(set(one["rank"].to_list())) == 60


def test_no_rows_are_no_rows(tmp_path: Path) -> None:
    store = opened(tmp_path)
    people = Contributions(store, Unit(kind="person", max_events=2))
    with store.transaction("counts"):
        people.add(encoded([]), 0)
    assert people.counts(0, count).cells.size == 0
    store.close()


def test_rows_survive_as_bytes() -> None:
    codes = np.array([[0, 2**31 - 1], [7, 1]], dtype=np.int32)
    rows = PrivateRows(codes, np.array([0, 0]), np.array([1, -1]), pl.Series(["a", "b"]))
    found = arrivals(rows, open_tick=3, key=b"k" * 32)
    back, signs = from_bytes(b"".join(found["row"].to_list()), 2)
    assert {(*c, s) for c, s in zip(back.tolist(), signs.tolist(), strict=True)} == {
        (0, 2**31 - 1, 1),
        (7, 1, -1),
    }
    assert found["tick"].to_list() == [3, 3]
    with pytest.raises(ValueError, match="without people"):
        arrivals(replace(rows, people=None), open_tick=0, key=b"k" * 32)


# -- planted bugs: each is a way to choose rows that looks right ------------------------------------------------------

PLANTED = [Row(who, -1, code, 1, 0) for who, code in zip("ababaababbab", [0, 1, 2] * 4, strict=True)]


def test_rows_taken_in_the_order_of_a_chunk_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the rank of a row is its place in its chunk, and so depends on who else is in the file."""
    unit = Unit(kind="person", max_events=2)
    assert_of_ones_own(unit, PLANTED, chunk=3)

    def by_place(rows: PrivateRows, *, open_tick: int, key: bytes, cuts: int) -> pl.DataFrame:
        parts = []
        for i in range(len(rows.codes)):
            assert rows.weights is not None
            assert rows.people is not None
            here = slice(i, i + 1)
            one = PrivateRows(rows.codes[here], rows.ticks[here], rows.weights[here], rows.people[here])
            parts.append(arrivals(one, open_tick=open_tick, key=key))
        ranks = [i.to_bytes(2, "big") + part["rank"][0] for i, part in enumerate(parts)]
        return pl.concat(parts).with_columns(rank=pl.Series(ranks, dtype=pl.Binary))

    monkeypatch.setattr(contributions, "arrivals", by_place)
    with pytest.raises(AssertionError):
        assert_of_ones_own(unit, PLANTED, chunk=3)


def test_limits_that_are_shared_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the limit holds for all people of a chunk together."""
    unit = Unit(kind="person", max_events=2)

    def together(rows: pl.DataFrame, unit: Unit) -> pl.DataFrame:
        return counting(rows.with_columns(own=pl.col("who"), who=pl.lit(b"everyone")), unit).with_columns(who="own")

    monkeypatch.setattr(contributions, "counting", together)
    with pytest.raises(AssertionError):
        assert_of_ones_own(unit, PLANTED, chunk=3)


def test_rows_counted_on_arrival_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: what came first stays, although a row with a smaller rank came later."""
    unit = Unit(kind="person", max_events=2)
    rows = [Row("a", 0, code % CODES, 1, 0) for code in range(9)]
    assert counted(unit, rows, chunk=1, seed=1) == counted(unit, rows, chunk=1, seed=2)

    arrived = itertools.count()

    def first_come(rows: PrivateRows, *, open_tick: int, key: bytes, cuts: int) -> pl.DataFrame:
        found, number = arrivals(rows, open_tick=open_tick, key=key), next(arrived).to_bytes(4, "big")
        return found.with_columns(rank=pl.Series([number + rank for rank in found["rank"]], dtype=pl.Binary))

    monkeypatch.setattr(contributions, "arrivals", first_come)
    assert np.sum(counted(unit, rows, chunk=1, seed=1)) == 2
    assert any(counted(unit, rows, chunk=1, seed=1) != counted(unit, rows, chunk=1, seed=s) for s in range(2, 8))


def test_numbers_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    """Whoever changed the state: more than may never count."""
    store = opened(tmp_path)
    people = Contributions(store, Unit(kind="person", max_events=2))
    with store.transaction("counts"):
        people.add(encoded([Row("a", 0, 0, 1, 0)]), 0)
    store.db.execute("UPDATE waiting SET number = 3")
    with pytest.raises(StateCorrupt, match="more rows of a person wait"):
        people.counts(0, lambda codes, weights: Counts.of(np.zeros(1, dtype=np.int64)))
    store.close()


@pytest.mark.parametrize("question", ["_BEYOND", "_OF_TICK", "_USE", "_AFTER", "_WAIT"])
def test_no_question_about_all_persons_keeps_a_list_of_them(tmp_path: Path, question: str) -> None:
    """Lists of the database's own lie in memory, and would grow with the number of persons."""
    store = opened(tmp_path)
    asked = getattr(contributions, question).format(most=1)
    steps = store.db.execute(f"EXPLAIN QUERY PLAN {asked}", [0] * asked.count("?")).fetchall()
    assert not [words for *_, words in steps if "TEMP B-TREE" in words or "LIST SUBQUERY" in words]
    store.close()
