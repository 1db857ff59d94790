"""Windows between two dates: what is counted, how far it may be off, and what the rows are like."""

from __future__ import annotations

import shutil
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from synthstream import Budget, Clock, Releases, Stream, StreamConfig, Workload
from synthstream.errors import ConfigError, NotReleased, SchemaError
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.gate import Gate
from synthstream.kernel.tables import Marginals
from synthstream.measured import Measured
from synthstream.privacy import Unit
from synthstream.release.window import ticks_between
from synthstream.stream.recovery import adopt
from synthstream.synthesizers.contract import WindowAsked
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import FloatArray
from tests.support.gates import ExactGate
from tests.support.streams import adopted, configured, rows


def exact(tick: int) -> Gate:
    return ExactGate()


def seeded(tick: int) -> Gate:
    return SeededGate(f"windows/{tick}")


def ran(folder: Path, kind: str, *, gates: object = exact, number: int = 400) -> StreamConfig:
    config = configured(folder, kind)
    rows(number, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=gates) as stream:  # type: ignore[arg-type]
        list(stream.run())
    return config


def truth(first: int, last: int, number: int = 400) -> dict[str, int]:
    """True counts of wards over ticks, both included."""
    frame = rows(number, 1).filter(
        pl.col("when").is_between(datetime(2026, 1, 1 + first), datetime(2026, 1, 2 + last), closed="left")
    )
    found = frame["ward"].value_counts()
    return dict(zip(found["ward"], found["count"], strict=True))


# -- what is counted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "last"), [(0, 7), (0, 0), (3, 5), (7, 7)])
def test_a_window_counts_what_lies_in_it(tmp_path: Path, first: int, last: int) -> None:
    config = ran(tmp_path, "always")
    shutil.rmtree(config.state)  # nothing private is needed
    found = Releases(config).between(date(2026, 1, 1 + first), date(2026, 1, 2 + last))
    table = found.table(["ward"])
    expected = truth(first, last)
    for ward, measured, since in table.select("ward", "measured", "since").iter_rows():
        assert measured == pytest.approx(expected.get(ward, 0), abs=0.2)
        assert since == first
    assert found.model.number == len(found.rows()) == sum(expected.values())
    assert not {"start", "end"} & {*found.tables.columns}  # as it is no tick
    assert (found.start.day, found.end.day, found.tick, found.first) == (1 + first, 2 + last, last, first)


def test_some_rows_of_a_window_are_among_all_of_them(tmp_path: Path) -> None:
    """Where a number lies in its bin the numbers of all rows say, and not a few."""
    window = Releases(ran(tmp_path, "always")).between("2026-01-03", "2026-01-06")
    all_of_them = window.rows()
    for n in (0, 1, 20):
        assert len(some := window.rows(n)) == n
        assert some.join(all_of_them, on=["ward", "x"], how="anti", nulls_equal=True).is_empty()
    assert len(window.rows(2 * len(all_of_them))) == 2 * len(all_of_them)


def test_the_same_window_has_the_same_rows_from_stream_and_from_releases(tmp_path: Path) -> None:
    config = ran(tmp_path, "always", gates=seeded)
    window = Releases(config).between("2026-01-03", "2026-01-06")
    again = Releases(config).between("2026-01-03", "2026-01-06")
    with Stream(config, gates=seeded) as stream:
        own = stream.between("2026-01-03T07:00:00", "2026-01-05T12:00:00")  # widened to the same ticks
        other = stream.between("2026-01-03", "2026-01-05")
    assert window.rows().equals(again.rows())
    assert window.rows().equals(own.rows())
    assert window.tables.equals(own.tables)
    assert not window.rows().equals(other.rows())
    assert window.manifest()["since"] == 2


def test_dates_are_widened_to_whole_ticks() -> None:
    clock = Clock(start=datetime(2026, 1, 1), every="1w", horizon=None)
    assert ticks_between(clock, "2026-01-08", "2026-01-15", newest=5) == (1, 1)
    assert ticks_between(clock, "2026-01-09", "2026-01-16", newest=5) == (1, 2)
    assert ticks_between(clock, "2025-01-01", datetime(2026, 1, 1, 1), newest=5) == (0, 0)
    assert ticks_between(clock, date(2026, 1, 1), "2026-02-12T00:00:00+00:00", newest=5) == (0, 5)
    assert ticks_between(clock, np.datetime64("2026-01-08"), np.datetime64("2026-01-15T00", "h"), newest=5) == (1, 1)
    assert ticks_between(clock, 1, 3, newest=5) == (1, 2)  # from when it begins to before the other begins
    assert ticks_between(clock, 4, "2026-02-12", newest=5) == ticks_between(clock, 4, 6, newest=5) == (4, 5)
    for at in (np.datetime64("NaT"), 1.5, None):
        with pytest.raises(TypeError, match="must be a date"):
            ticks_between(clock, at, "2026-01-15", newest=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("2026-01-08", "2026-01-08", "nothing lies there"),
        ("2026-01-15", "2026-01-08", "the earlier moment first"),
        ("2025-01-15", "2025-02-08", "nothing lies there. The stream begins 2026-01-01"),
        ("2026-01-15", "2026-02-13", "events before 2026-02-12 only"),
        (-1, 3, "there is no tick -1. Releases hold ticks 0 to 5"),
        (3, 7, "there is no tick 7"),
        (3, 3, "nothing lies there"),
        ("last month", "2026-02-13", "'last month' is no date; write it like 2026-01-31"),
    ],
)
def test_dates_that_are_no_window(start: str | int, end: str | int, says: str) -> None:
    clock = Clock(start=datetime(2026, 1, 1), every="1w", horizon=None)
    with pytest.raises((NotReleased, ConfigError), match=says):
        ticks_between(clock, start, end, newest=5)


@pytest.mark.parametrize("kind", ["selective", "hypercube"])
def test_some_kinds_have_no_windows_and_say_why(tmp_path: Path, kind: str) -> None:
    config = ran(tmp_path, kind, number=40)
    with pytest.raises(NotReleased, match=f'kind = "{kind}" have no windows: .*"points" have windows'):
        Releases(config).between("2026-01-03", "2026-01-06")


def test_epochs_have_windows_of_whole_epochs(tmp_path: Path) -> None:
    """Epochs of this stream begin with ticks 0, 1, 2, 3, 5, 8."""
    config = ran(tmp_path, "epochs")
    found = Releases(config)
    with pytest.raises(NotReleased, match="2026-01-01, 2026-01-02, 2026-01-03, 2026-01-04, 2026-01-06, 2026-01-09"):
        found.between("2026-01-02", "2026-01-05")
    window, expected = found.between("2026-01-03", "2026-01-09"), truth(2, 7)
    for ward, measured, since in window.table(["ward"]).select("ward", "measured", "since").iter_rows():
        assert (measured, since) == (expected.get(ward, 0), 2)
    assert window.model.number == sum(expected.values())
    one = found.between("2026-01-06", "2026-01-09").table(["ward"])["stderr"][0]
    assert window.table(["ward"])["stderr"][0] == pytest.approx(np.sqrt(3) * float(one))  # of three epochs
    assert found.between("2026-01-01", "2026-01-09").table(["ward"])["measured"].sum() == 400


def test_batches_have_windows_that_are_their_sums(tmp_path: Path) -> None:
    config = ran(tmp_path, "stream-mwem")
    window = Releases(config).between("2026-01-03", "2026-01-06")
    total, one = window.table([]), Releases(config).at(3).measured.marginal(())[1]
    assert total["measured"][0] == pytest.approx(sum(truth(2, 4).values()), abs=0.2)
    assert total["stderr"][0] == pytest.approx(np.sqrt(3) * one)
    assert window.table(["ward"])["measured"].null_count() == 5
    assert len(window.rows()) == pytest.approx(sum(truth(2, 4).values()), abs=3)


@pytest.mark.parametrize("kind", ["always", "epochs", "stream-mwem"])
def test_windows_go_on_after_a_lost_state(tmp_path: Path, kind: str) -> None:
    found = Releases(adopted(tmp_path, kind, exact))
    after = found.between("2026-01-05", "2026-01-08")
    assert float(after.table([])["measured"][0]) == pytest.approx(sum(truth(4, 6).values()), abs=0.2)
    if kind == "epochs":
        with pytest.raises(NotReleased, match="must begin and end with one"):
            found.between("2026-01-04", "2026-01-09")  # of the epoch that was cut short nothing but the total is known
        return
    across = found.between("2026-01-03", "2026-01-07")
    assert float(across.table([])["measured"][0]) == pytest.approx(sum(truth(2, 5).values()), abs=0.2)
    parts = [found.between("2026-01-03", "2026-01-05"), found.between("2026-01-05", "2026-01-07")]
    variances = [float(part.table([])["stderr"][0]) ** 2 for part in parts]
    assert float(across.table([])["stderr"][0]) ** 2 == pytest.approx(sum(variances))  # noise of its own in each


def test_person_units_have_windows(tmp_path: Path) -> None:
    config = ran(tmp_path, "persons")
    window = Releases(config).between("2026-01-03", "2026-01-06")
    whole = Releases(config).at("2026-01-06").table([])["measured"][0] - Releases(config).at(1).table([])["measured"][0]
    assert float(window.table([])["measured"][0]) == pytest.approx(float(whole))


# -- how far it may be off ----------------------------------------------------------------------------------------

_CELLS = 3000
_TICKS = 20
_COUNTERS: list[tuple[str, float, int | None]] = [
    ("simple", 1e-9, 20),
    ("toeplitz", 1e-9, 20),
    ("blt", 1e-9, 20),
    ("blt", 1e-9, None),
    ("simple", 0.0, 20),
    ("block", 0.0, 20),
    ("binary", 0.0, 20),
    ("hybrid", 0.0, None),
    ("kary", 0.0, 20),
    ("kary", 0.0, None),  # begins anew at tick 15
]


@pytest.mark.parametrize(("kind", "delta", "horizon"), _COUNTERS)
def test_the_standard_error_is_that_of_the_difference(kind: str, delta: float, horizon: int | None) -> None:
    workload = Workload(sizes=(_CELLS,), marginals=((0,),))
    budget = Budget(epsilon=1.0, delta=delta)
    mechanism = Marginals(workload=workload, budget=budget, horizon=horizon, kind=kind)
    state, values, nothing = mechanism.init(), [], np.zeros(_CELLS, dtype=np.int64)
    for tick in range(_TICKS):
        state, measured = mechanism.step(state, nothing, SeededGate(f"{kind}/{tick}"))
        values.append(measured.values)
    apart = []
    for s, t in [(0, 1), (3, 9), (12, 16), (14, 19), (17, 19)]:
        both = mechanism.variance(s)[0] + mechanism.variance(t)[0]
        variance = both - 2 * mechanism.covariance(s, t)[0]
        found = float(np.mean((values[t] - values[s]) ** 2))
        assert found / variance == pytest.approx(1, abs=0.25)
        apart.append(both / found)
    assert max(apart) > 1.5  # without the covariance it would be far too wide


@pytest.mark.parametrize("lost", [False, True], ids=["whole", "lost"])
def test_windows_of_a_stream_cover_the_truth(tmp_path: Path, lost: bool) -> None:
    """Also across a segment that began when the state was lost."""
    values = ", ".join(f'"{i}"' for i in range(800))
    text = configured(tmp_path, "always").base.joinpath("stream.toml").read_text()
    text = text.replace('"A", "B", "C"', values).split('[[columns]]\nname = "x"')[0]
    rng = np.random.default_rng(0)
    frame = rows(4000, 1).with_columns(ward=pl.Series(rng.integers(0, 800, 4000).astype(str)))
    frame.write_parquet(tmp_path / "rows-1.parquet")
    for until in ("2026-01-05", "2026-01-09"):
        config = StreamConfig.from_toml(text.replace("until = 2026-01-09", f"until = {until}"), base=tmp_path)
        with Stream(config, gates=seeded) as stream:
            list(stream.run())
        if lost and until == "2026-01-05":
            shutil.rmtree(config.state)
            adopt(config, gates=seeded)
    for start, end in [(2, 4), (3, 6), (5, 8), (1, 8)]:
        table = Releases(config).between(date(2026, 1, 1 + start), date(2026, 1, 1 + end)).table(["ward"])
        inside = frame.filter(
            pl.col("when").is_between(datetime(2026, 1, 1 + start), datetime(2026, 1, 1 + end), closed="left")
        )
        true = inside["ward"].value_counts().rename({"count": "true"})
        both = table.join(true, on="ward", how="left").with_columns(pl.col("true").fill_null(0))
        z = ((both["measured"] - both["true"]) / both["stderr"]).to_numpy()
        assert np.mean(z**2) == pytest.approx(1, abs=0.3)
        assert np.mean(np.abs(z) < 1.96) == pytest.approx(0.95, abs=0.04)


def test_two_windows_are_compared_by_their_own_noise(tmp_path: Path) -> None:
    found = Releases(ran(tmp_path, "always", gates=seeded))
    now, then = found.between("2026-01-06", "2026-01-09"), found.between("2026-01-02", "2026-01-05")
    frame = now.compare(then, ["ward"])
    with Stream(found.config, gates=seeded) as stream:
        mechanism = stream.mechanism
    weights = {7: 1, 4: -1, 3: -1, 0: 1}
    place = mechanism.workload.marginals.index((0,))
    variance = sum(
        a * b * mechanism.covariance(min(s, t), max(s, t))[place]
        for s, a in weights.items()
        for t, b in weights.items()
    )
    assert frame["stderr"].to_list() == [pytest.approx(np.sqrt(variance))] * 5
    with pytest.raises(SchemaError, match="a Window is compared with another one of its stream"):
        now.compare(found.at(0))


# -- what the rows are like ---------------------------------------------------------------------------------------


def switched(folder: Path, epsilon: float) -> tuple[StreamConfig, pl.DataFrame]:
    """A stream in which ward C takes the place of A at half time."""
    text = configured(folder, "always").base.joinpath("stream.toml").read_text()
    config = StreamConfig.from_toml(text.replace("epsilon = 2.0", f"epsilon = {epsilon}"), base=folder)
    late = pl.col("when") >= datetime(2026, 1, 7)
    swapped = pl.when(late & (pl.col("ward") == "A")).then(pl.lit("C")).otherwise(pl.col("ward"))
    frame = rows(4000, 3).with_columns(ward=swapped)
    frame.write_parquet(folder / "rows-1.parquet")
    with Stream(config, gates=seeded) as stream:
        list(stream.run())
    return config, frame.filter(late)


def far(found: pl.DataFrame, true: pl.DataFrame) -> float:
    """Half the L1 distance between shares of wards."""
    wards = ["A", "B", "C"]
    pair = [np.array([(frame["ward"] == ward).sum() / len(frame) for ward in wards]) for frame in (found, true)]
    return float(np.abs(pair[0] - pair[1]).sum() / 2)


def test_rows_follow_a_change_that_can_be_seen(tmp_path: Path) -> None:
    config, true = switched(tmp_path, 20)
    found = Releases(config)
    assert far(found.last.rows(), true) > 0.3  # all events: the change is half hidden
    assert far(found.between("2026-01-07", "2026-01-09").rows(), true) < 0.05


def test_rows_of_a_window_lost_in_noise_are_like_all(tmp_path: Path) -> None:
    """Noise of a window is as large as that of the whole; rows stay near those of all, and nearer the truth."""
    config = configured(tmp_path, "always")
    rows(2000, 3).write_parquet(tmp_path / "rows-1.parquet")
    text = (tmp_path / "stream.toml").read_text().replace("epsilon = 2.0", "epsilon = 0.3")
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config, gates=seeded) as stream:
        list(stream.run())
    window = Releases(config).between("2026-01-08", "2026-01-09")
    table = window.table(["ward"]).filter(pl.col("ward").is_in(["A", "B", "C"]))
    true = truth_of(rows(2000, 3).filter(pl.col("when") >= datetime(2026, 1, 8)))
    raw = sum(abs(m - true[w]) for w, m in table.select("ward", "measured").iter_rows())
    made = sum(abs(c - true[w]) for w, c in table.select("ward", "count").iter_rows())
    assert made < raw


def truth_of(frame: pl.DataFrame) -> dict[str, int]:
    found = frame["ward"].value_counts()
    return dict(zip(found["ward"], found["count"], strict=True))


# -- epochs in several parts --------------------------------------------------------------------------------------


def asked(made: InEpochs, history: list[Measured], first: int) -> WindowAsked:
    """A window up to the last tick of a stream that was never stored."""
    last = len(history) - 1

    def variance() -> FloatArray:
        ticks = (last, last), (first - 1, last), (first - 1, first - 1)
        shared = [made.covariance(s, t, history.__getitem__) for s, t in ticks]
        return np.asarray(shared[0] - 2 * shared[1] + shared[2])

    return WindowAsked(
        first=first,
        last=last,
        newest=last,
        seed=0,
        start=0,
        cut=0,
        tables=(),
        own=history.__getitem__,
        whole=history.__getitem__,
        variance=variance,
        seed_at=int,
        begins=str,
    )


@pytest.mark.parametrize("signed", [False, True])
def test_a_window_adds_the_parts_of_its_epochs(signed: bool) -> None:
    """A column that changes at every tick: epochs have several parts, whose counts and variances add up."""
    workload = Workload.all_up_to(2, sizes=(3, 2))
    mechanism = Epochs(workload=workload, budget=Budget(epsilon=20.0, delta=0.0), horizon=41, unit=Unit(signed=signed))
    made = InEpochs(mechanism=mechanism)
    state, last, models, history, exact = mechanism.init(), None, dict[str, Any](), list[Measured](), []
    for tick in range(41):
        codes = np.column_stack([np.full(400, tick % 3), np.arange(400) % 2]).astype(np.int32)
        counts = made.count(codes, np.ones(400, dtype=np.int64) if signed else None)
        state, measured, models = made.step(state, counts, SeededGate(tick), last, models)  # type: ignore[assignment]
        history.append(measured)
        exact.append(counts.dense(made.cells)[: workload.cells])
        if mechanism.times.ends(tick + 1):
            last = made.fit(tick, history.__getitem__, last, models, seed=tick)
    found = made.window(asked(made, history, 18))
    parts = [m for m in history[18:] if (0,) in m.workload.marginals]
    assert len(parts) > 2
    assert [int(m.since[m.workload.marginals.index((0,))]) for m in parts[1:]] == [m.tick + 1 for m in parts[:-1]]
    truth = np.sum(exact[18:], axis=0)
    for marginal in ((), (0,), (1,), (0, 1)):
        values, error = found.measured.marginal(marginal)
        assert values.reshape(-1) == pytest.approx(truth[workload.slice_of(marginal)], abs=6 * error)
        assert found.measured.since.tolist() == [18] * 4
    one = float(parts[0].variance[parts[0].workload.marginals.index((0,))])
    assert found.measured.marginal((0,))[1] == pytest.approx(np.sqrt(len(parts) * one))
    assert found.measured.marginal((0, 1))[1] == pytest.approx(np.sqrt(2) * history[40].marginal((0, 1))[1])
    assert found.model.number == pytest.approx(23 * 400, rel=0.02)
    with pytest.raises(NotReleased, match="between"):
        made.window(asked(made, history, parts[0].tick + 1))
