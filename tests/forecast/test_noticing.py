"""What stands out in releases: each accident is told at the next command, good rows are not; no row is looked at."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import synthstream as package
from synthstream.config.config import load
from synthstream.forecast.noticing import Tick, _all_gaussian, chance, increments, noticed, of_ticks
from synthstream.forecast.warnings import Caution
from synthstream.publish.building import from_releases
from synthstream.publish.outlets import as_published, parquet_sink, simulated
from synthstream.stream.opening import seeded_gates
from synthstream.stream.recovery import adopt
from tests.support.command import synthstream
from tests.support.configs import number
from tests.support.streams import KINDS, TICKS, configured, rows

MANY = 4000
START = datetime(2026, 1, 1)
# Kinds that measure how many events there are, tick after tick.
# Of events that may be taken away only the net number is known.
COUNTED = [kind for kind in KINDS if not kind.startswith("stream-mwem") and not kind.endswith("signed")]
TABLES = ["always", "refresh", "epochs"]


def released(folder: Path, *frames: tuple[pl.DataFrame, str]) -> tuple[Caution, ...]:
    """Warnings after runs with simulated noise, each with a new file and up to a day."""
    for i, (frame, until) in enumerate(frames):
        frame.write_parquet(folder / f"rows-{i}.parquet")
        with package.open(folder / "stream.toml", simulate=7) as stream:
            for _ in stream.run(until=datetime.fromisoformat(until).replace(tzinfo=UTC)):
                pass
    return noticed(simulated(load(folder / "stream.toml")))


def once(folder: Path, kind: str, frame: pl.DataFrame) -> tuple[Caution, ...]:
    """Warnings of a stream of a kind whose rows are all there from the first run on."""
    configured(folder, kind)
    return released(folder, (frame, "2026-01-09"))


def german(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("when").dt.strftime("%d.%m.%Y"))


def test_the_law_of_a_stream_is_gaussian_only_if_all_parts_of_its_life_were() -> None:
    gaussian, laplace = {"rho": 0.01, "pure_epsilon": None}, {"rho": 0.5, "pure_epsilon": 1.0}
    assert _all_gaussian(gaussian)
    assert not _all_gaussian(laplace)
    assert not _all_gaussian(gaussian | {"parts": [gaussian, laplace]})


@pytest.mark.sparing(5)
@pytest.mark.parametrize("kind", KINDS)
def test_good_rows_of_every_kind_are_not_warned_about(tmp_path: Path, kind: str) -> None:
    assert once(tmp_path / "stream", kind, rows(MANY, 1)) == ()


@pytest.mark.sparing(4)
@pytest.mark.parametrize("kind", COUNTED)
def test_german_dates_show_as_one_tick_that_holds_all(tmp_path: Path, kind: str) -> None:
    found = once(tmp_path / "stream", kind, german(rows(MANY, 1)))
    clock = [caution for caution in found if caution.about == "clock"]
    assert len(clock) == 1
    assert "% of all events fell into tick 0 (2026-01-01), one of 8" in clock[0].words
    assert clock[0].chance is not None
    assert clock[0].chance < 0.01


@pytest.mark.parametrize("kind", TABLES)
def test_a_wrong_list_of_values_shows_as_other(tmp_path: Path, kind: str) -> None:
    odd = pl.when(pl.int_range(pl.len()) % 25 < 11).then(pl.lit("elsewhere")).otherwise("ward").alias("ward")
    found = once(tmp_path / "stream", kind, rows(MANY, 1).with_columns(odd))
    assert [caution.about for caution in found] == ["columns.ward"]
    assert "% of all events are 'other'. Is the list of values the right one?" in found[0].words
    assert 40 <= int(found[0].words.split(" %")[0]) <= 48


def test_places_outside_of_their_box_show_once(tmp_path: Path) -> None:
    """As if latitude and longitude had changed places."""
    found = once(tmp_path / "stream", "places", rows(MANY, 1).with_columns(x=pl.col("x") + 100))
    assert [caution.about for caution in found] == ["columns.spot"]
    assert "100 % of all events are 'other'. Are bounds the right ones, and in the order of" in found[0].words


@pytest.mark.sparing(1)
@pytest.mark.parametrize("kind", TABLES)
def test_a_column_that_cannot_be_read_and_a_value_that_never_occurs(tmp_path: Path, kind: str) -> None:
    """Numbers with decimal commas; a ward that is called otherwise in the rows. Many rows: 0 must be told from few."""
    comma, called = pl.lit("1,5").alias("x"), pl.col("ward").replace({"C": "B"})
    frame = pl.concat([rows(MANY, seed).with_columns(comma, called) for seed in range(50)])
    found = {caution.about: caution.words for caution in once(tmp_path / "stream", kind, frame)}
    assert "of all events are 'missing'. Can its cells be read?" in found["columns.x"]
    assert "No event seems to be 'C'. Is it written so in the rows?" in found["columns.ward"]


def late(folder: Path, kind: str) -> tuple[Caution, ...]:
    """The file of the sixth day comes a day late."""
    configured(folder, kind)
    days = [rows(10 * MANY, 1).filter(pl.col("when").dt.day() == day) for day in range(1, TICKS + 1)]
    days[5], days[6] = days[5].head(5), pl.concat([days[5], days[6]])
    ends = [f"{START + timedelta(days=day):%Y-%m-%d}" for day in range(1, TICKS + 1)]
    return released(folder, *zip(days, ends, strict=True))


@pytest.mark.sparing(2)
@pytest.mark.parametrize("kind", ["always", "refresh", "epochs", "points", "hypercube"])
def test_a_file_that_came_late_shows_as_an_empty_tick_and_a_doubled_one(tmp_path: Path, kind: str) -> None:
    found = {caution.about: caution.words for caution in late(tmp_path / "stream", kind)}
    assert set(found) == {"tick 5", "tick 6"}
    assert "less than half of any of the ticks before it" in found["tick 5"]
    assert "more than one and a half times any of the ticks before it" in found["tick 6"]
    assert ("Chance alone" in found["tick 6"]) == (kind == "hypercube"), "its number of events has no noise"
    assert ("give or take" in found["tick 6"]) == (kind != "hypercube")


def test_a_tick_is_told_of_while_it_is_new(tmp_path: Path) -> None:
    config, events = configured(tmp_path, "always"), (62_000.0, 8.0)

    def told(doubled: int) -> set[str]:
        ticks = [Tick(tick, 3000.0 if tick == doubled else 1000.0, 1.0) for tick in range(60)]
        return {caution.about for caution in of_ticks(config, ticks, events, chance, told=45)}

    assert (told(46), told(45)) == ({"tick 46"}, set())


def test_a_tick_shorter_than_a_day_is_told_by_its_hour_and_none_has_minus_0_events(tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    hourly = replace(config, clock=replace(config.clock, every="1h"))
    ticks = [Tick(tick, -0.2 if tick == 9 else 1000.0, 1.0) for tick in range(10)]
    (found,) = of_ticks(hourly, ticks, (9_000.0, 3.0), chance, told=0)
    assert found.words.startswith("Tick 9 (2026-01-01 09:00:00) brought 0 events, give or take 1: less than half")


def test_a_tick_that_holds_all_is_told_by_what_the_clock_goes_by(tmp_path: Path) -> None:
    timed, ticks = configured(tmp_path, "always"), [Tick(tick, 0.0 if tick else 9e4, 1.0) for tick in range(8)]
    for column, words in (("when", "Rows whose times cannot"), (None, "Without column in [clock] all rows")):
        config = replace(timed, clock=replace(timed.clock, column=column))
        assert words in next(of_ticks(config, ticks, (9e4, 8.0), chance, told=45)).words


@pytest.mark.parametrize("kind", ["refresh", "epochs", "points", "hypercube"])
def test_a_segment_that_begins_is_no_empty_tick(tmp_path: Path, kind: str) -> None:
    folder, frame = tmp_path / "stream", rows(MANY, 1)
    config = configured(folder, kind)
    early = pl.col("when") < START + timedelta(days=5)
    assert released(folder, (frame.filter(early), "2026-01-06")) == ()
    shutil.rmtree(folder / "state-simulated")
    adopt(simulated(config), gates=seeded_gates(7), seed=7)
    frame.filter(~early).write_parquet(folder / "rows-1.parquet")
    for until in ("2026-01-07", "2026-01-09"):  # shortly after, and later
        with package.open(folder / "stream.toml", simulate=7) as stream:
            list(stream.run(until=datetime.fromisoformat(until).replace(tzinfo=UTC)))
        assert noticed(simulated(config)) == ()


@pytest.mark.parametrize("kind", ["always", "refresh", "epochs"])
def test_what_a_tick_of_a_later_segment_brought_is_as_exact_as_its_counts_say(tmp_path: Path, kind: str) -> None:
    folder, frame = tmp_path / "stream", rows(MANY, 1)
    config = configured(folder, kind)
    released(folder, (frame, "2026-01-04"))
    shutil.rmtree(folder / "state-simulated")
    adopt(simulated(config), gates=seeded_gates(7), seed=7)
    released(folder, (frame, "2026-01-09"))
    known: Any = as_published(simulated(config))
    sink = parquet_sink(known.sink)
    builder: Any = from_releases(known, sink, sink.measured, tick=TICKS - 1, secure=False)
    found, shared = increments(builder, TICKS - 1)[5], builder.covariance(4, 5)[builder.newest.first.tables.order == 0]
    before, now = (builder.whole(tick).events()[1] for tick in (4, 5))
    assert found.stderr == pytest.approx(np.sqrt(before**2 + now**2 - 2 * shared.item()))
    assert found.stderr < 0.9 * (before + now)


def test_quiet_sundays_are_not_warned_about(tmp_path: Path) -> None:
    """A tick is compared with each of those before it, so that what comes again every week is nothing new."""
    folder = tmp_path / "stream"
    configured(folder, "always")
    text = (folder / "stream.toml").read_text().replace("until = 2026-01-09", "until = 2026-01-22")
    (folder / "stream.toml").write_text(text.replace("horizon = 12", "horizon = 30"))
    days = [START + timedelta(days=i) for i in range(21) for _ in range(30 if i % 7 == 3 else 600)]
    frame = rows(len(days), 1).with_columns(when=pl.Series(days))
    assert "tick 17" not in {caution.about for caution in released(folder, (frame, "2026-01-22"))}


def test_what_is_told_depends_on_what_was_measured_and_on_nothing_else(tmp_path: Path) -> None:
    """Without state, rows, source and tables, the same warnings: they are functions of releases."""
    before = late(tmp_path / "stream", "always")
    for path in [*(tmp_path / "stream").glob("rows-*"), *(tmp_path / "stream").rglob("releases*/*/rows.parquet")]:
        path.unlink()
    for path in (tmp_path / "stream").rglob("tables.parquet"):
        path.unlink()
    shutil.rmtree(tmp_path / "stream" / "state-simulated")
    assert noticed(simulated(load(tmp_path / "stream" / "stream.toml"))) == before != ()


def test_nothing_is_told_before_there_are_releases_and_of_none_that_cannot_be_read(tmp_path: Path) -> None:
    config = simulated(configured(tmp_path / "stream", "always"))
    assert noticed(config) == ()
    assert released(tmp_path / "stream", (german(rows(MANY, 1)), "2026-01-09"))
    assert config.sink is not None
    (config.sink.path / "000003" / "measured.parquet").write_bytes(b"damaged")
    assert noticed(config) == ()


@pytest.mark.parametrize("kind", TABLES)
def test_nothing_is_told_of_releases_of_other_settings(tmp_path: Path, kind: str) -> None:
    """A first run that was stopped leaves no settings beside its releases, and the file may have changed since."""
    assert once(tmp_path, kind, german(rows(MANY, 1)))
    (tmp_path / "releases-simulated" / "settings.toml").unlink(missing_ok=True)
    path = tmp_path / "stream.toml"
    path.write_text(path.read_text().replace(number("x", "bins = 4", high=10), ""))
    assert noticed(simulated(load(path))) == ()


def test_run_status_and_report_say_it_and_releases_do_not(tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    configured(folder, "always")
    german(rows(MANY, 1)).write_parquet(folder / "rows-0.parquet")
    words = "of all events fell into tick 0"
    for command in (["run"], ["status"], ["report", "-o", "report.html"]):
        done = synthstream(command[0], "stream.toml", "--simulate", *command[1:], cwd=folder)
        assert (done.returncode, words in done.stdout) == (0, command[0] != "report")
    assert words in (folder / "report.html").read_text()
    for path in (folder / "releases-simulated").rglob("*.json"):
        assert words not in path.read_text()


@pytest.mark.parametrize("laws", [["gauss"], ["laplace"], ["laplace"] * 3, ["gauss", "laplace"]])
def test_the_bound_of_chance_holds_for_sums_of_all_laws(laws: list[str]) -> None:
    rng, number = np.random.default_rng(5), 400_000
    parts = [rng.normal(size=number) if law == "gauss" else rng.laplace(size=number) / np.sqrt(2) for law in laws]
    noise = np.sum(parts, axis=0) / np.sqrt(len(laws))
    for z in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0):
        assert np.mean(noise >= z) <= chance(z)
    assert chance(3.0) > chance(4.0) > chance(5.0)
    assert chance(10.0) < 1e-4, "it falls as fast as Laplace's own tail, nearly"
