"""plan: what follows from the law of the noise, what is simulated, what is warned of, what is written."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer.testing import CliRunner

from synthstream.cli.app import app
from synthstream.config.config import StreamConfig
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.errors import ConfigError
from synthstream.forecast.planning import Plan, plan
from synthstream.forecast.rates import Rate
from synthstream.forecast.warnings import deviation
from synthstream.kernel.gate import Gate
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.privacy import Budget
from synthstream.report.plan_page import plan_page
from synthstream.synthesizers.assembly import synthesizer_for, synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import Workload
from tests.support.configs import AGE, GOOD, SINK, category, number, stream_toml
from tests.support.gates import ExactGate
from tests.support.streams import KINDS, text_of

POINTS = text_of("points")


def of(text: str, **settings: object) -> Plan:
    return plan(StreamConfig.from_toml(text), **settings)  # type: ignore[arg-type]


def endless(text: str = GOOD) -> str:
    return text.replace("horizon = 8", 'horizon = "unbounded"').replace("until = 2026-01-06\n", "")


def test_a_column_that_no_table_holds_is_told() -> None:
    place = '[[columns]]\nname = "at"\ntype = "place"\ncoordinates = ["x", "y"]\nbounds = [[0, 1], [0, 1]]\n'
    listed = GOOD + place + '[synthesizer]\nmarginals = [["ward"]]\n'
    found = of(listed, rows=False)
    (told,) = (one for one in found.cautions if one.about == "synthesizer.marginals")
    assert told.words.startswith("No table holds age, at_1, ")
    assert not any("Places" in note for note in found.notes)
    assert not any("No table" in one.words for one in of(listed + "near = 9\n", rows=False).cautions)
    every = listed.replace('[["ward"]]', '[["ward"], ["age"], ["at_1"]]')
    assert not any("No table" in one.words for one in of(every, rows=False).cautions)


# -- when ------------------------------------------------------------------------------------------------------------


def test_days_become_ticks_of_the_clock() -> None:
    daily = of(endless(), rows=False)
    assert [f.ticks for f in daily.forecasts] == [1, 30, 365, 3650]
    assert [f.until.date().isoformat() for f in daily.forecasts if f.until] == [
        "2026-01-02",
        "2026-01-31",
        "2027-01-01",
        "2035-12-30",
    ]
    weekly = of(endless().replace('"1d"', '"1w"'), rows=False)
    assert [(f.ticks, f.asked) for f in weekly.forecasts] == [
        (1, "tick 1"),
        (4, "day 30"),
        (52, "day 365"),
        (521, "day 3,650"),
    ]
    hourly = of(endless().replace('"1d"', '"1h"'), rows=False)
    assert [f.ticks for f in hourly.forecasts] == [24, 720, 8760, 87600]
    monthly = of(endless().replace('"1d"', '"1mo"'), rows=False)
    assert [(f.ticks, f.asked) for f in monthly.forecasts] == [
        (1, "tick 1"),
        (12, "day 365"),
        (119, "day 3,650"),
    ]


def test_what_lies_beyond_the_horizon_stands_there_and_is_said() -> None:
    found = of(GOOD, rows=False)
    assert [(f.ticks, f.asked) for f in found.forecasts] == [(1, "day 1"), (8, "horizon")]
    assert not any("covers" in note for note in found.notes)
    assert any("covers 8 ticks" in note for note in of(GOOD, rows=False, at_ticks=[8, 10]).notes)
    assert [(f.ticks, f.asked) for f in of(GOOD, rows=False, at_ticks=[3, 10, 2]).forecasts] == [
        (2, "tick 2"),
        (3, "tick 3"),
        (8, "horizon"),
    ]
    assert [(f.ticks, f.asked) for f in of(GOOD, rows=False, at_ticks=[8, 9, 10]).forecasts] == [(8, "tick 8, horizon")]
    assert not any("covers" in note for note in of(GOOD, rows=False, at_ticks=[3]).notes)


@pytest.mark.parametrize(
    ("ticks", "told"),
    [([10], "(tick 10)"), ([3, 1000, 9], "(tick 9, tick 1,000)"), ([8, 9], "(tick 9)"), ([3, 8], "")],
)
def test_each_tick_that_was_asked_for_beyond_the_horizon_is_named(ticks: list[int], told: str) -> None:
    notes = [note for note in of(GOOD, rows=False, at_ticks=ticks).notes if "The budget covers 8 ticks" in note]
    assert [note.partition("In place of later ones ")[2] for note in notes] == [
        f"{told} stands the last one, the horizon."
    ] * bool(told)


def test_a_last_tick_with_a_comma_in_its_number_lies_within_the_horizon() -> None:
    long = GOOD.replace("horizon = 8", "horizon = 3650")
    for asked in ({}, {"at_ticks": [3650]}):
        assert not any("covers" in note for note in of(long, rows=False, **asked).notes)


@pytest.mark.parametrize("ticks", [[], [0], [-3, 4]])
def test_ticks_begin_at_one(ticks: list[int]) -> None:
    with pytest.raises(ConfigError, match="at_ticks"):
        of(GOOD, at_ticks=ticks)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"expect": 500}, '"500/day", not 500'),
        ({"at_ticks": 3}, r"as in \[10, 100\], not 3"),
        ({"at_ticks": [2.5]}, r"whole numbers, .* not \[2.5\]"),
    ],
)
def test_what_is_of_another_type_is_refused_by_name(words: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        of(GOOD, **words)


def test_the_end_of_the_calendar_stops_nobody() -> None:
    late = GOOD.replace("2026-01-01", "9998-01-01").replace("until = 2026-01-06\n", "")
    assert [f.ticks for f in of(late.replace("horizon = 8", "horizon = 300"), rows=False).forecasts] == [1, 30, 300]


# -- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number", "per"),
    [
        ("500/day", 500, "day"),
        ("500/d", 500, "day"),
        (" 1,500 / Hours ", 1500, "hour"),
        ("2/h", 2, "hour"),
        ("0.5/week", 0.5, "week"),
        ("7/w", 7, "week"),
        ("30/month", 30, "month"),
        ("30/mo", 30, "month"),
        ("1e6/year", 1e6, "year"),
        ("35/tick", 35, "tick"),
    ],
)
def test_rates_are_read(text: str, number: float, per: str) -> None:
    assert Rate.parse(text) == Rate(number=number, per=per)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("500", "500/day"),
        ("many", "500/day"),
        ("500/fortnight", "times are tick, minute, hour"),
        ("0/day", "above 0"),
        ("-3/day", "500/day"),
        ("500/", "500/day"),
        ("1e300/day", "below 10"),
    ],
)
def test_rates_that_cannot_be_read_name_the_field_and_the_fix(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        Rate.parse(text)
    assert str(caught.value).startswith("expect = ")


def test_events_follow_the_rate_and_the_clock() -> None:
    weekly = endless().replace('"1d"', '"1w"')
    assert [f.events for f in of(weekly, expect="10/day", rows=False).forecasts] == [70, 280, 3640, 36470]
    assumed = of(weekly, rows=False)
    assert (assumed.assumed, assumed.expected.words, assumed.forecasts[1].events) == (True, "100 events a tick", 400)
    guessed = GOOD.replace("[sink]", '[synthesizer]\nkind = "selective"\nevents_per_tick = 7\n[sink]')
    assert of(guessed, rows=False).expected == Rate(number=7, per="tick")
    where = '[[columns]]\nname = "at"\ntype = "place"\ncoordinates = ["x"]\nbounds = [[0, 8]]\n'
    for said, per_tick, guess in (("events = 4000\n", 500, False), ("", 100, True)):
        found = of(GOOD.replace("[sink]", f"{where}{said}[sink]"), rows=False)
        assert (found.expected.number, found.expected.per, found.assumed) == (per_tick, "tick", guess)
    assert of(GOOD.replace("[sink]", f"{where}events = 4000\n[sink]"), rows=False, expect="7/tick").expected.number == 7


# -- the law of the noise, against independent computation -----------------------------------------------------------


def test_standard_errors_are_those_of_the_counters_covariance() -> None:
    config = StreamConfig.from_toml(endless().replace("[sink]", '[synthesizer]\nmeasure = "always"\n[sink]'))
    mechanism = cast("Marginals", synthesizer_of(config).mechanism)
    for forecast in plan(config, rows=False, at_ticks=[1, 7, 100]).forecasts:
        t = forecast.ticks - 1
        for k in (1, 2):
            inside = [q for q, m in enumerate(mechanism.workload.marginals) if len(m) == k]
            variances = [mechanism.counter.covariance(t, t, multiplier=float(mechanism.multipliers[q])) for q in inside]
            assert forecast.stderr[k] == pytest.approx(math.sqrt(np.mean(variances)), rel=1e-3)
        table = 20 * math.sqrt(2 / math.pi) * forecast.stderr[2]
        assert forecast.table_error[2] == pytest.approx(table, rel=1e-6)
        # Half of four codes times half, rounded up, of five.
        assert forecast.box == pytest.approx(math.sqrt(2 * 3) * forecast.stderr[2], rel=1e-6)


def test_noise_that_is_drawn_has_the_errors_that_are_forecast() -> None:
    mechanism = cast("Marginals", synthesizer_of(StreamConfig.from_toml(GOOD)).mechanism)
    empty, gaps = np.zeros(mechanism.workload.cells, dtype=np.int64), []
    for seed in range(400):
        gate: Gate = SeededGate(seed)
        state = mechanism.init()
        for _ in range(3):
            state, measured = mechanism.step(state, empty, gate)
        gaps.append(measured.values)
    forecast = of(GOOD, rows=False, at_ticks=[3]).forecasts[0]
    pair = np.array(gaps)[:, mechanism.workload.slice_of((0, 1))]
    assert np.sqrt(np.mean(pair**2)) == pytest.approx(forecast.stderr[2], rel=0.05)
    assert np.abs(pair).sum(axis=1).mean() == pytest.approx(forecast.table_error[2], rel=0.05)
    box = pair.reshape(-1, 4, 5)[:, [0, 3]][:, :, [1, 2, 4]].sum(axis=(1, 2))
    assert np.sqrt(np.mean(box**2)) == pytest.approx(cast("float", forecast.box), rel=0.12)


def test_a_plan_grows_with_time_and_spends_nothing(tmp_path: Path) -> None:
    text = endless().replace("[sink]", '[synthesizer]\nmeasure = "always"\n[sink]')
    found = plan(StreamConfig.from_toml(text, base=tmp_path), rows=False)
    errors = [f.stderr[2] for f in found.forecasts]
    assert errors == sorted(errors)
    largest = [f.largest or 0.0 for f in found.forecasts]
    assert largest == sorted(largest)
    assert all(3 < most / error < 5 for most, error in zip(largest, errors, strict=True))
    assert "before the fit" in found.largest_words
    assert found.cells == 1 + 4 + 5 + 20
    assert list(tmp_path.iterdir()) == []


def test_neighbouring_budgets_are_half_and_double() -> None:
    pure = GOOD.replace("delta = 1e-9", "delta = 0").replace("[sink]", '[synthesizer]\nmeasure = "always"\n[sink]')
    found = of(pure, rows=False)
    assert [b.epsilon for b in found.budgets] == [0.5, 1.0, 2.0]
    half, mine, double = (b.forecasts[0].stderr[2] for b in found.budgets)
    assert half == pytest.approx(2 * mine, rel=0.05)
    assert mine == pytest.approx(2 * double, rel=0.05)
    assert of(pure.replace("epsilon = 1.0", "epsilon = 0.5"), rows=False).forecasts[0].stderr[2] == half


def test_half_of_the_least_budget_is_left_out() -> None:
    lonely = StreamConfig.from_toml(POINTS.replace("epsilon = 2.0", "epsilon = 1e-6"))
    assert [b.epsilon for b in plan(lonely, rows=False).budgets] == [1e-6, 2e-6]


# -- simulation ------------------------------------------------------------------------------------------------------


def test_rows_are_forecast_and_always_the_same() -> None:
    one, two = (of(GOOD, expect="400/day") for _ in range(2))
    assert [f.rows for f in one.forecasts] == [f.rows for f in two.forecasts]
    last = one.forecasts[-1]
    assert last.rows is not None
    # The fit knows that counts add up: it is closer than the noise of the tables.
    assert 0 < last.rows.table_error[2] < last.table_error[2]
    smallest, _, largest = (b.forecasts[-1].rows for b in one.budgets)
    assert smallest is not None
    assert largest is not None
    assert smallest.table_error[1] > largest.table_error[1]
    assert one.release_seconds is not None
    assert 0 < one.release_seconds < 30


@pytest.mark.sparing(4)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_forecast_or_says_what_cannot_be(kind: str) -> None:
    found = of(text_of(kind), expect="50/day")
    rows = [f.rows for f in found.forecasts]
    if kind.startswith(("selective", "stream-mwem")):
        assert "depends on which tables are selected" in found.unforeseen
        assert rows == [None] * len(rows)
        assert found.forecasts[0].stderr[0] > 0
    else:
        assert found.unforeseen == ""
        assert all(r is not None and r.box > 0 for r in rows)
        assert all((r is not None and r.distance is not None) == (not found.tables) for r in rows)
    assert (
        json.loads(json.dumps(found.facts(), allow_nan=False))["kind"]
        == StreamConfig.from_toml(text_of(kind)).synthesizer.kind
    )


@pytest.mark.parametrize("kind", ["epochs", "points", "points-zcdp", "points-signed", "hypercube"])
def test_any_number_of_events_can_be_expected(kind: str) -> None:
    """Few rows are simulated in their place, with an epsilon that is larger by as much, up to 1e6."""
    (rows,) = (f.rows for f in of(text_of(kind), expect="10000000000000/day", at_ticks=[2]).forecasts)
    assert rows is not None
    assert 0 <= rows.box < 1e-3 * 2e13


@pytest.mark.slow
def test_points_come_nearer_as_events_come() -> None:
    text = POINTS.replace("horizon = 12", "horizon = 1000").replace("depth = 8", "depth = 16")
    found = of(text, expect="30/day", at_ticks=[2, 60, 900])
    distances = [f.rows.distance for f in found.forecasts if f.rows is not None and f.rows.distance is not None]
    assert distances[0] > 2 * distances[1] > 4 * distances[2] > 0


def test_more_columns_than_a_grid_can_hold() -> None:
    columns = "".join(
        f'[[columns]]\nname = "x{i}"\ntype = "number"\nmin = 0\nmax = 1\nmissing = 0\n' for i in range(13)
    )
    text = POINTS[: POINTS.index("[[columns]]")].replace("depth = 8", "depth = 13") + columns
    assert "so many columns" in of(text).unforeseen


def test_no_file_of_rows_is_looked_for(tmp_path: Path) -> None:
    looked = []

    def noted(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir", "glob.glob") and str(tmp_path) in str(arguments[0]):
            looked.append(arguments)

    (tmp_path / "rows-1.parquet").write_bytes(b"no parquet at all")
    config = StreamConfig.from_toml(text_of("always"), base=tmp_path)
    sys.addaudithook(noted)  # hooks stay, but nothing else looks into this folder
    found = plan(config, at_ticks=[2])
    assert found.forecasts[0].rows is not None
    assert looked == []
    (tmp_path / "rows-1.parquet").read_bytes()
    assert len(looked) == 1, "the hook sees what it should"


# -- warnings --------------------------------------------------------------------------------------------------------


def warned(text: str, **settings: object) -> dict[str, str]:
    return {c.about: c.words for c in of(text, rows=False, **settings).cautions}


def test_a_column_that_names_a_person() -> None:
    words = warned(stream_toml(category("rider_id", *"ABCDEFGHIJKLMNOPQRST"), AGE, SINK))["privacy.unit"]
    assert 'unit = { person = "rider_id", max_events = 20 }' in words
    assert "privacy.unit" not in warned(GOOD)
    assert "privacy.unit" not in warned(GOOD.replace('name = "ward"', 'name = "member"')), "a short list is no key"
    assert "privacy.unit" not in warned(stream_toml(AGE, SINK, '[[columns]]\nname = "member"\ntype = "boolean"\n'))
    person = GOOD.replace('unit = "event"', 'unit = { person = "rider_id", max_events = 3 }')
    found = warned(person)
    assert "privacy.unit" not in found
    assert "privacy.unit.person" not in found
    assert (
        "The column 'ward' stands in [[columns]], too"
        in warned(person.replace("rider_id", "ward"))["privacy.unit.person"]
    )
    words = "expect only those within it"
    assert [any(words in note for note in of(text, rows=False).notes) for text in (GOOD, person)] == [False, True]
    assert "about 3 times as large as" in found["privacy.unit.max_events"]
    longer = person.replace("max_events = 3", "max_events = 30, max_per_tick = 1").replace(
        "horizon = 8", "horizon = 80"
    )
    capped = warned(longer)["privacy.unit.max_events"]
    one, more = map(float, re.findall(r"([0-9.]+) times as large in", capped))
    assert one < 30 < more  # of events larger tables are measured at refreshes


@pytest.mark.parametrize(
    ("limits", "useless"),
    [
        ("2, max_per_tick = 1", True),
        ("2", False),
        ("30, max_per_tick = 1", False),
        ('4, max_per_tick = 1, per = "7d"', True),
        ('30, max_per_tick = 1, per = "7d"', False),  # without it 30 would count, not 7
    ],
)
def test_a_limit_in_a_tick_that_saves_no_noise_is_told(limits: str, useless: bool) -> None:
    found = warned(GOOD.replace('unit = "event"', f'unit = {{ person = "rider_id", max_events = {limits} }}'))
    assert ("makes no error smaller" in found.get("privacy.unit.max_per_tick", "")) == useless


def test_a_column_with_too_many_cells() -> None:
    wide = GOOD.replace("bins = 4", "bins = 90")
    words = warned(wide, expect="10/day")["columns.age"]
    assert "'age' (91 values) by 'ward' (4 values) is a table of 364 cells" in words
    assert "lost in noise" in words
    assert "columns.age" not in warned(wide, expect="1000000/day")
    assert not [about for about in warned(GOOD, expect="10/day") if about.startswith("columns")]


def test_a_tick_that_is_too_short() -> None:
    assert "one release differs from the next mostly by noise" in warned(GOOD, expect="2/day")["clock.every"]
    assert "after tick 1: one release" in warned(GOOD, expect="2/day")["clock.every"]
    assert "after tick 5: one release" in warned(GOOD, expect="2/day", at_ticks=[5, 8])["clock.every"]
    assert "clock.every" not in warned(GOOD, expect="20000/day")
    assert "clock.every" not in warned(GOOD), "nobody said how many events there are"


def test_delta_that_buys_nothing() -> None:
    unused = GOOD.replace("[sink]", '[synthesizer]\nmeasure = "epochs"\n[sink]')
    assert "choose another measure or kind" in warned(unused)["privacy.delta"]
    assert "privacy.delta" not in warned(GOOD)
    points, line = [SINK, '[synthesizer]\nkind = "points"\n'], number("x", "missing = 0")
    for columns, many in ([line], "300,000"), ([line, number("y", "missing = 0")], "1,000,000"):
        told = warned(stream_toml(*columns, *points))["privacy.delta"]
        assert f"events_per_tick in [synthesizer] if {many} or more" in told


@pytest.mark.parametrize(("more", "warns"), [("", True), ('delimiter = ";"\n', False)])
def test_commas_between_cells_and_within_numbers(more: str, warns: bool) -> None:
    files = f'[source]\nkind = "csv"\npath = "rows.csv"\ndecimal = ","\n{more}'
    assert ("is read as two cells" in warned(GOOD + files).get("source.delimiter", "")) == warns
    assert "source.delimiter" not in warned(GOOD)


@pytest.mark.parametrize(("kind", "warns"), [("jsonl", True), ("csv", False)])
def test_keys_of_objects_within_objects_are_not_followed(kind: str, warns: bool) -> None:
    text = GOOD.replace('name = "ward"', 'name = "ward"\nfrom = "loc.ward"')
    found = warned(f'{text}[source]\nkind = "{kind}"\npath = "rows.{kind}"\n')
    assert found.get("columns", "").startswith("'loc.ward': keys of an object within an object") == warns


def test_values_that_sound_like_own_cells() -> None:
    assert 'say other = "Other"' in warned(stream_toml(category("kind", "A", "Other"), AGE))["columns.kind"]
    assert 'say missing = "Unknown"' in warned(stream_toml(category("kind", "A", "Unknown"), AGE))["columns.kind"]
    folded = stream_toml(category("kind", "A", "Other") + 'other = "Other"\n', AGE)
    assert "columns.kind" not in warned(folded)


@pytest.mark.parametrize(("values", "warns"), [("True False", 1), ("true false", 0), ("TRUE B", 1), ("A True", 1)])
def test_values_that_cells_of_a_boolean_type_do_not_meet(values: str, warns: int) -> None:
    found = warned(stream_toml(category("kind", *values.split()), AGE)).get("columns.kind", "")
    assert ("cells of a boolean type" in found) == bool(warns)


@pytest.mark.parametrize(("high", "warns"), [(100, 1), (99, 0), (94, 0)])
def test_bins_that_are_uneven_because_max_lies_in_the_range(high: int, warns: int) -> None:
    age = f'[[columns]]\nname = "age"\ntype = "integer"\nmin = 0\nmax = {high}\nbins = 10\n'
    found = warned(stream_toml(age)).get("columns.age", "")
    assert (
        "101 whole numbers each bin holds 11, and the last one 2. With max = 99 each of 10 holds 10" in found
    ) == warns


@pytest.mark.parametrize(("every", "zone", "warns"), [("1h", "Europe/Berlin", 1), ("1h", "UTC", 0), ("1d", "CET", 0)])
def test_short_ticks_on_a_clock_that_is_put_forward(every: str, zone: str, warns: int) -> None:
    text = GOOD.replace('every = "1d"', f'every = "{every}"\ntimezone = "{zone}"').replace("until = 2026-01-06\n", "")
    assert sum("With timezone" in words for words in warned(text).values()) == warns


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("edges = [0, 0.01, 5, 20]", "decimals = 2"),
        ("edges = [0, 0.001, 5]", "decimals = 3"),
        ("edges = [0, 0.01, 5, 20]\ndecimals = 2", ""),
        ("edges = [0, 1, 5, 20]", ""),
        ("min = 0\nmax = 1\nbins = 10", ""),
    ],
)
def test_a_bin_for_zero_needs_decimals(more: str, said: str) -> None:
    column = f'[[columns]]\nname = "fee"\ntype = "number"\n{more}\n'
    words = warned(stream_toml(AGE, column, SINK)).get("columns.fee", "")
    assert (f"say {said}." in words) if said else (words == "")


def test_what_no_end_costs() -> None:
    words = warned(endless())["clock.horizon"]
    ratio = float(re.findall(r"are ([0-9.]+) times", words)[0])
    ending = StreamConfig.from_toml(endless().replace('"unbounded"', "3650"))
    mine, theirs = of(endless(), rows=False).forecasts[-1], plan(ending, rows=False).forecasts[-1]
    assert ratio == pytest.approx(mine.stderr[2] / theirs.stderr[2], abs=0.006)
    assert "clock.horizon" not in warned(GOOD)


def test_streams_on_the_same_people_add_up() -> None:
    assert any("add up" in note for note in of(GOOD, rows=False).notes)


def test_what_is_taken_away_is_not_in_the_forecast() -> None:
    words = "All events that are expected are taken to stay"
    assert not any(words in note for note in of(GOOD, rows=False).notes)
    assert any(words in note for note in of(f'op = "op"\n{GOOD}', rows=False).notes)


def test_a_clock_without_an_end_of_the_data_is_told() -> None:
    files = '[source]\nkind = "parquet"\npath = "nowhere/*.parquet"\n'
    assert any("No until in [clock]" in note for note in of(endless() + files, rows=False).notes)
    assert not any("No until in [clock]" in note for note in of(GOOD + files, rows=False).notes)


@pytest.mark.parametrize(
    ("limits", "op", "key", "told"),
    [
        ("max_events = 1", True, "max_events", "one row counts, so what has counted is not taken away"),
        ('max_events = 1, per = "2d"', True, "max_events", "one row counts in a period, so"),
        ("max_events = 4, max_per_tick = 1", True, "max_per_tick", "of a correction one half counts"),
        ("max_events = 4, max_per_tick = 2", True, "max_per_tick", ""),
        ("max_events = 4", True, "max_events", ""),
        ("max_events = 4, max_per_tick = 1", False, "max_per_tick", ""),
    ],
)
def test_limits_that_have_no_room_for_a_correction(limits: str, op: bool, key: str, told: str) -> None:
    text = GOOD.replace('unit = "event"', f'unit = {{ person = "who", {limits} }}')
    found = of(f'op = "op"\n{text}' if op else text, rows=False).cautions
    words = [c.words for c in found if c.about == f"privacy.unit.{key}" and "a correction is two" in c.words]
    assert len(words) == bool(told)
    assert told in "".join(words)


@pytest.mark.parametrize(("most", "told"), [(2, False), (3, True), (20, True)])
def test_a_limit_that_ticks_keep_anyway(most: int, told: bool) -> None:
    unit = f'unit = {{ person = "who", max_events = {most}, max_per_tick = 1, per = "2d" }}'
    found = of(GOOD.replace('unit = "event"', unit), rows=False).cautions
    words = [c.words for c in found if "has no effect above 2: a period has 2 ticks" in c.words]
    assert len(words) == told


def test_a_limit_that_a_whole_stream_keeps_anyway() -> None:
    for most, told in ((16, False), (17, True)):
        unit = f'unit = {{ person = "who", max_events = {most}, max_per_tick = 2 }}'
        found = of(GOOD.replace('unit = "event"', unit), rows=False).cautions
        words = [
            c.words for c in found if "no effect above 16: the stream has 8 ticks, and in a tick at most 2" in c.words
        ]
        assert len(words) == told


def test_a_limit_above_what_ticks_let_in_has_tables_measured_as_that_has() -> None:
    """Eight ticks let eight events in, fewer than ten times those of a tick."""
    unit = 'unit = { person = "who", max_events = 20, max_per_tick = 1 }'
    config = StreamConfig.from_toml(GOOD.replace('unit = "event"', unit))
    assert config.measures == "refresh"
    longer = StreamConfig.from_toml(GOOD.replace('unit = "event"', unit).replace("horizon = 8", "horizon = 10"))
    assert longer.measures == "always"


@pytest.mark.parametrize(("per", "told"), [("4d", False), ("8d", True), ("9d", True)])
def test_a_period_as_long_as_the_stream(per: str, told: bool) -> None:
    unit = f'unit = {{ person = "who", max_events = 2, per = "{per}" }}'
    found = of(GOOD.replace('unit = "event"', unit), rows=False).cautions
    assert any("Without it the promise is for life" in c.words for c in found) == told


@pytest.mark.parametrize(
    ("per", "told"),
    [
        ("", "the longer a stream runs"),
        (', per = "2d"', "late in a period"),
        (', per = "1d"', ""),
        (', max_per_tick = 2, per = "2d"', ""),
        (', max_per_tick = 1, per = "5d"', "late in a period"),
    ],
)
def test_where_counts_fall_because_limits_are_reached(per: str, told: str) -> None:
    text = GOOD.replace('unit = "event"', f'unit = {{ person = "who", max_events = 4{per} }}')
    (note,) = [note for note in of(text, rows=False).notes if note.startswith("Counts hold")]
    assert ("a series can fall" in note) == bool(told)
    assert told in note


def test_a_plan_shows_itself_in_short_with_its_warnings() -> None:
    found = of(GOOD.replace('name = "ward"', 'name = "count"'), rows=False)
    for shown in (repr(found), str(found), found._repr_html_()):
        assert found.words in shown
        assert "stderr, one column" in shown
        assert "is what tables of counts call a column of their own" in shown
        assert "A new stream does not begin so" in shown
    assert len(repr(found)) < 3_000


# -- what is written -------------------------------------------------------------------------------------------------


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    path = tmp_path / "stream.toml"
    path.write_text(GOOD + '[source]\nkind = "parquet"\npath = "nowhere/*.parquet"\n')
    return path


def test_the_command_says_all_of_it(stream: Path) -> None:
    result = CliRunner().invoke(app, ["plan", str(stream), "--expect", "400/day"])
    assert result.exit_code == 0, result.output
    for words in ("For the person in the data", "For the statistician", "differential privacy", "Memory", "Time"):
        assert words in result.output
    assert "eps 1 is what this stream has" in result.output
    assert re.search(r"on disk up to [\d.]+ kB and [\d.]+ kB more", result.output)
    for words in (
        "Errors of measured counts, exact",
        "Errors of published rows",
        "horizon",
        "2026-01-09",
        "add up",
        "%)",
    ):
        assert words in result.output
    assert "…" not in result.output, "a number that is cut off would be another number"


@pytest.mark.parametrize(("horizon", "ticks"), [(2, 2), (40, 40), (1000, 90), (None, 90)])
def test_the_state_is_told_with_the_counts_of_all_refreshes(horizon: int | None, ticks: int) -> None:
    workload, budget = Workload.all_up_to(2, sizes=(5, 6, 7)), Budget(epsilon=1.0, delta=1e-9)
    made = synthesizer_for(SynthesizerConfig(), workload=workload, budget=budget, horizon=horizon)
    mechanism, gate = made.mechanism, ExactGate()
    assert isinstance(mechanism, Refreshed)
    state = mechanism.init()
    for _ in range(ticks):
        state, _ = mechanism.step(state, np.zeros(workload.cells, dtype=np.int64), gate)
    held, told = sum(array.nbytes for array in state.values()), made.state_bytes(horizon)
    spare = 2 * 16 * workload.cells + 1000  # of bursts; and times of refreshes
    if horizon == ticks:
        assert told - spare <= held <= told + 1000
    else:
        assert held < told < 4 * held


def test_the_command_can_leave_the_simulation_out(stream: Path) -> None:
    result = CliRunner().invoke(app, ["plan", str(stream), "--no-rows"])
    assert "Errors of measured counts, exact" in result.output
    assert "simulated" not in result.output


def test_rows_of_very_many_tables_are_left_out_unless_asked_for(
    stream: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("synthstream.forecast.wide._LONG", 0.0)
    page = tmp_path / "plan.html"
    result = CliRunner().invoke(app, ["plan", str(stream), "-o", str(page)])
    assert "Errors of measured counts, exact" in result.output
    assert "Errors of published rows, simulated" not in result.output
    assert "plan --rows does it" in " ".join(result.output.split())
    assert "plan --rows does it" in page.read_text()
    asked = CliRunner().invoke(app, ["plan", str(stream), "--rows"]).output
    assert "Errors of published rows, simulated" in asked
    assert "left out" not in asked
    assert not any("left out" in note for note in of(GOOD, rows=False).notes)


def test_a_wide_table_is_planned_in_seconds() -> None:
    columns = [category(f"c{i}", *"ABCDEFGH") for i in range(150)]
    found = of(stream_toml(*columns, column=None, until=None, horizon=365))
    assert found.forecasts[0].rows is None
    assert "left out" in found.notes[0]


def test_a_long_list_of_values_without_delta_is_planned_in_seconds() -> None:
    listed = category("sku", *map(str, range(3_000))), category("store", *map(str, range(40)))
    text = stream_toml(*listed, until=None, horizon=365)
    assert "delta = 1e-9" in text
    assert "left out" in of(text.replace("delta = 1e-9", "delta = 0")).notes[0]


def test_json_is_clean_and_complete(stream: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    arguments = ["plan", str(stream), "--expect", "400/day", "--at-ticks", "2,5", "--json", "-o", str(page)]
    result = CliRunner().invoke(app, arguments)
    facts = json.loads(result.stdout)
    assert facts["expected"] == {"events": 400.0, "per": "day", "assumed": False}
    assert [f["ticks"] for f in facts["budgets"][1]["forecasts"]] == [2, 5]
    assert [b["configured"] for b in facts["budgets"]] == [False, True, False]
    forecast = facts["budgets"][1]["forecasts"][1]
    assert forecast["events"] == 2000
    assert forecast["percent"]["rows"]["box"] == pytest.approx(forecast["rows"]["box"] / 20)
    assert page.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--expect", "500"], "expect = 500: in what time? Say 500/day"),
        (["--at-ticks", "ten"], "--at-ticks ten: say numbers of ticks"),
        (["--at-ticks", "0"], "at_ticks: say after how many ticks, each 1 or more"),
        (["-o", "nowhere/plan.html"], "there is no folder nowhere"),
    ],
)
def test_mistakes_get_a_message(stream: Path, arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stream.parent)
    result = CliRunner().invoke(app, ["plan", str(stream), *arguments])
    assert result.exit_code == 2
    assert says in result.output


@pytest.mark.sparing(2)
@pytest.mark.parametrize("text", [GOOD, POINTS, text_of("selective"), text_of("epochs")])
def test_the_page_is_self_contained_and_holds_the_numbers(text: str) -> None:
    config = StreamConfig.from_toml(text.replace('name = "', 'name = "<b>&', 1))
    found = plan(config, expect="400/day")
    page = plan_page(found)
    assert not re.search(
        r"""(?:src|href)\s*=\s*["']?(?!["']?#|["']?data:)[^"']|url\((?!["']?data:)|@import|<script""", page
    )
    assert "<b>&" not in page
    assert "&lt;b&gt;&amp;" in page
    assert found.words in page.replace("&#39;", "'")
    for caution in found.cautions:
        assert caution.about in page
    if found.tables and found.forecasts[0].rows is not None:
        assert f"epsilon {found.budget.epsilon:g} (configured)" in page
        assert page.count('<svg role="img"') >= 5
        assert "table of two columns" in page
    assert found.unforeseen in page
    errors = page.split('aria-labelledby="errors"')[1].split('aria-labelledby="know"')[0]
    assert "-way" not in errors.replace(found.largest_words, "").replace(found.caveat, "")
    assert "A box is half of the" in errors


def test_per_cent_on_the_page_are_those_of_the_terminal(tmp_path: Path) -> None:
    stream, page = tmp_path / "stream.toml", tmp_path / "plan.html"
    stream.write_text(GOOD)
    result = CliRunner().invoke(app, ["plan", str(stream), "--expect", "40/week", "-o", str(page)])
    assert result.exit_code == 0, result.output
    shown = re.findall(r"\((>?[\d.e-]+%)\)", result.output)
    table = re.findall(
        r"\((?:&gt;)?[\d.e-]+%\)", page.read_text().split('aria-labelledby="errors"')[1].split("</table>")[0]
    )
    assert ">100%" in shown
    assert "(&gt;100%)" in table
    assert {text.replace("&gt;", ">").strip("()") for text in table} <= set(shown)
    assert not re.search(r"\([\d,]+(\.\d+)? %\)", page.read_text())


@pytest.mark.parametrize(("order", "up_to"), [(1, "about half."), (2, "up to three times")])
def test_how_far_a_simulation_may_be_off_is_told(tmp_path: Path, order: int, up_to: str) -> None:
    stream, page = tmp_path / "stream.toml", tmp_path / "plan.html"
    stream.write_text(f"{GOOD}\n[synthesizer]\norder = {order}\n")
    result = CliRunner().invoke(app, ["plan", str(stream), "-o", str(page)])
    assert result.exit_code == 0, result.output
    told = deviation(plan(stream, rows=False).tables)
    assert up_to in told
    assert ("three times" in told) == (order == 2)
    assert told in " ".join(result.output.split())
    assert told in page.read_text()


def test_the_page_of_a_plan_without_simulation() -> None:
    found = of(GOOD, rows=False)
    assert "Published rows" not in plan_page(found)
    assert "The number of all events" in plan_page(found)
    assert "2,400 s" in plan_page(replace(found, release_seconds=2400.0))
    assert "Errors of measured counts" in plan_page(replace(found, cautions=()))
