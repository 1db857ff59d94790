"""A look at private rows before anything is spent: each accident is told, and the look itself changes nothing."""

from __future__ import annotations

import shutil
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from synthstream import Stream, StreamConfig, check
from synthstream.errors import ConfigError, SchemaError
from synthstream.evaluate.check_page import lines_of
from synthstream.evaluate.findings import Checked, Level, checked
from synthstream.evaluate.look import encoding_of, look
from synthstream.forecast.warnings import off_by
from tests.support.command import synthstream
from tests.support.configs import AGE, SINK, WARD, category, number, stream_toml
from tests.support.polygons import feature, geojson, rectangle

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 30


def csv(name: str = "rows-*.csv", more: str = "") -> str:
    return f'[source]\nkind = "csv"\npath = "{name}"\n{more}'


def toml(*sections: str, **settings: Any) -> str:
    given: dict[str, Any] = {"until": "2026-01-31", "horizon": 60} | settings
    return stream_toml(*(sections or (WARD, AGE)), csv(), SINK, **given)


def rows(**columns: list[Any]) -> pl.DataFrame:
    """Ten rows of each of thirty days, and these columns in place of the usual ones."""
    days = [datetime(2026, 1, 1) + timedelta(days=i // 10) for i in range(10 * DAYS)]
    usual = {"when": [f"{day:%Y-%m-%d}" for day in days], "ward": ["A", "B", "C"] * 100, "age": ["31", "64"] * 150}
    found: dict[str, list[Any]] = {**usual, **columns}
    return pl.DataFrame(found)


def number_toml(name: str, low: float, high: float) -> str:
    return number(name, f"missing = {low}", low=low, high=high)


def german(texts: pl.Series) -> list[str]:
    return [f"{datetime.fromisoformat(text):%d.%m.%Y}" for text in texts]


def told(folder: Path, text: str, *frames: pl.DataFrame, separator: str = ",", now: datetime = NOW) -> Checked:
    """What a look at files with these rows finds."""
    for i, frame in enumerate(frames):
        frame.write_csv(folder / f"rows-{i}.csv", separator=separator)
    config = StreamConfig.from_toml(text, base=folder)
    return checked(config, look(config, []), now=now, open_tick=0)


def words(found: Checked) -> str:
    return "\n".join(f"{finding.about}: {finding.words}" for finding in found.findings)


def test_good_rows_are_fine(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows())
    assert (found.verdict, words(found), found.lines) == (Level.FINE, "", [])
    assert [number for _, number in found.by_tick()[1]] == [10] * DAYS


@pytest.mark.parametrize(
    ("open_tick", "told"),
    [
        (0, ["tick 0, whatever their time. 30 ticks are over", "name its column. If not, let start be the day of"]),
        (28, ["tick 28, whatever their time. 2 ticks are over", "run it in each tick, with the rows of it"]),
        (29, []),
        (30, []),
    ],
)
def test_rows_without_a_time_count_together_and_that_is_said(tmp_path: Path, open_tick: int, told: list[str]) -> None:
    config = StreamConfig.from_toml(toml(column=None), base=tmp_path)
    found = checked(config, look(config, [rows()]), now=NOW, open_tick=open_tick)
    assert [(finding.level, finding.about) for finding in found.findings] == [(Level.LOOK, "[clock] column")] * bool(
        told
    )
    assert all(text in words(found) for text in told)
    few = checked(config, look(config, [rows()[:250]]), now=NOW, open_tick=open_tick)
    assert words(few) == words(found)  # it follows from the clock alone


def test_cells_that_have_no_text_are_told_as_what_they_are(tmp_path: Path) -> None:
    """Parquet has no intervals: pandas writes records, of which nothing can be read, but whether they are there."""
    kind = pa.struct([("left", pa.float64()), ("right", pa.float64())])
    ages = pa.array([{"left": 0.0, "right": 18.0}] * 299 + [None], kind)
    odd = rows().to_arrow().set_column(2, "age", ages).set_column(1, "ward", ages)
    pq.write_table(odd, tmp_path / "rows.parquet")
    config = StreamConfig.from_toml(toml(), base=tmp_path)
    for said in (tmp_path / "rows.parquet", odd):
        found = checked(config, look(config, [said]), now=NOW, open_tick=0)
        assert "ward: 100 % of the rows (299) are not on the list: 'a list, a record or an interval; write" in words(
            found
        )
        assert "age: 100 % of the rows (299) cannot be read as number, such as 'a list, a record or" in words(found)


def test_a_pattern_that_no_file_fits_is_named(tmp_path: Path) -> None:
    found = told(tmp_path, toml().replace("rows-*", "visits-*"), rows())
    assert found.verdict == Level.STOP
    assert words(found) == f"[source]: No file fits source.path = {tmp_path / 'visits-*.csv'}; capitals count."


def test_the_type_of_a_time_is_told_where_it_is_no_text(tmp_path: Path) -> None:
    texts = rows(when=["soon"] * 300)
    assert "cannot be read, such as 'soon' (300). All would count" in words(told(tmp_path, toml(), texts))
    rows().with_columns(when=pl.lit(7)).write_parquet(tmp_path / "rows.parquet")
    config = StreamConfig.from_toml(toml(), base=tmp_path)
    found = checked(config, look(config, [tmp_path / "rows.parquet"]), now=NOW, open_tick=0)
    assert "such as '7' (300); the file says Int32. All would count" in words(found)


def test_one_row_is_one(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows()[:1])
    assert "There is 1 row, and the count of one value" in words(found)
    assert next(lines_of(found)) == "visits: 1 row in 1 file(s)"


def test_so_few_rows_that_noise_drowns_them_are_told(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows()[::60])
    assert found.verdict is Level.LOOK
    off = round(off_by(found.config, 30, 5))
    assert 10 < off < 50
    assert f"rows: There are 5 rows, and the count of one value is off by about {off} after 30 tick(s)" in words(found)
    later = checked(found.config, found.looked, now=NOW, open_tick=3)
    assert "There are" not in words(later), "others were counted before"


def test_german_dates_are_not_to_be_opened(tmp_path: Path) -> None:
    frame = rows()
    found = told(tmp_path, toml(), rows(when=german(frame["when"])))
    assert found.verdict is Level.STOP
    assert "100 % of the rows (300) have a time that cannot be read" in words(found)
    assert "They look like day.month.year" in words(found)
    assert found.lines == ["[source]", 'datetime_format = "%d.%m.%Y"']


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("%m/%d/%Y", ['"%m/%d/%Y"']),
        ("%d/%m/%Y %H:%M", ['"%d/%m/%Y %H:%M"']),
        ("%Y%m%d", ['"%Y%m%d"']),
        ("%d-%b-%Y", ['"%d-%b-%Y"']),
        ("%m/%d/%Y %I:%M:%S %p", ['"%m/%d/%Y %I:%M:%S %p"']),
    ],
)
def test_what_dates_look_like_is_told_with_the_key(tmp_path: Path, form: str, expected: list[str]) -> None:
    when = [datetime.fromisoformat(text).strftime(form) for text in rows()["when"]]
    found = told(tmp_path, toml(), rows(when=when))
    assert found.lines == ["[source]", f"datetime_format = {'   # or '.join(expected)}"]


@pytest.mark.parametrize(
    ("due", "expected"),
    [
        ("%d.%m.%Y", ['datetime_format = "%d.%m.%Y"']),
        ("%Y-%m-%d", ['datetime_format."when" = "%d.%m.%Y"']),
        ("%Y%m%d", ['datetime_format."when" = "%d.%m.%Y"', 'datetime_format."due" = "%Y%m%d"']),
    ],
)
def test_columns_that_write_their_times_otherwise(tmp_path: Path, due: str, expected: list[str]) -> None:
    column = '[[columns]]\nname = "due"\ntype = "datetime"\npart = "month"\n'
    days = [datetime.fromisoformat(text) for text in rows()["when"]]
    frame = rows(when=[f"{day:%d.%m.%Y}" for day in days], due=[day.strftime(due) for day in days])
    assert told(tmp_path, toml(WARD, column), frame).lines == ["[source]", *expected]


def test_a_form_beside_others_is_told_where_these_stand(tmp_path: Path) -> None:
    due = '[[columns]]\nname = "due"\ntype = "datetime"\npart = "month"\n'
    frame = rows(when=german(rows()["when"]), due=["01/2026"] * 300)
    source = csv(more='[source.datetime_format]\ndue = "%m/%Y"\n')
    found = told(tmp_path, toml(WARD, due).replace(csv(), source), frame)
    assert found.lines == ["[source.datetime_format]", '"when" = "%d.%m.%Y"']


def test_day_or_month_first_is_asked_where_no_text_tells(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows(when=["03/04/2026"] * 300))
    assert "Day first or month first?" in words(found)
    assert found.lines == ["[source]", 'datetime_format = "%d/%m/%Y"   # or "%m/%d/%Y"']


@pytest.mark.parametrize(
    ("cell", "form"),
    [
        ("1767225600", "seconds"),
        ("1767225600000", "milliseconds"),
        ("1767225600000000", "microseconds"),
        ("2026-01-01 00:00:00.5+00", "%Y-%m-%d %H:%M:%S%.f%#z"),
        ("2026-01-01T00:00:00+05", "%Y-%m-%dT%H:%M:%S%.f%#z"),
        ("2026-01-01T00:00Z", "%Y-%m-%dT%H:%M%#z"),
        ("2026-01-01 00:00+05:30", "%Y-%m-%d %H:%M%#z"),
        ("20260101T000000Z", "%Y%m%dT%H%M%S%#z"),
    ],
)
def test_what_programs_write_for_times_is_told_with_the_key(tmp_path: Path, cell: str, form: str) -> None:
    frame = rows(when=[cell] * 300)
    line = f'datetime_format = "{form}"'
    assert told(tmp_path, toml(), frame).lines == ["[source]", line]
    read = told(tmp_path, toml().replace(csv(), csv(more=f"{line}\n")), frame)
    assert "cannot be read" not in words(read)


def test_days_of_a_spreadsheet_have_no_key(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows(when=["46023"] * 300))
    assert ("as a spreadsheet counts them" in words(found), found.lines) == (True, [])


def test_a_wrong_list_of_values_is_told_with_what_fell_into_other(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows(ward=["A", "Bay", "Bay", "C", "Hill"] * 60))
    assert found.verdict is Level.STOP
    assert "ward: 60 % of the rows (180) are not on the list: 'Bay' (120), 'Hill' (60)" in words(found)
    assert found.lines == [], "no value is ever proposed"


def test_a_rest_that_the_settings_name_is_meant_to_be_there(tmp_path: Path) -> None:
    """A list of frequent codes leaves the others out on purpose: who was told not to open would list what occurs."""
    text = toml('[[columns]]\nname = "ward"\ntype = "category"\nvalues = ["A", "rest"]\nother = "rest"\n', AGE)
    found = told(tmp_path, text, rows(ward=["A", "Bay", "Bay", "C", "Hill"] * 60))
    assert found.verdict is Level.LOOK
    assert "ward: 80 % of the rows (240) are not on the list, and would count as 'rest': 'Bay' (120)" in words(found)
    assert told(tmp_path, text, rows(ward=["Bay"] * 300)).verdict is Level.STOP
    assert told(tmp_path, text, rows(ward=["rest", "Bay", "Bay"] * 100)).verdict is Level.STOP, "rest is a ward"


def test_values_that_look_like_one_of_the_list(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows(ward=["A"] * 298 + [" b ", "c"]))
    assert "Not on the list, but much like a text that is (2): ' b ' like 'B' (1), 'c' like 'C' (1)" in words(found)


def test_a_slip_in_a_value_is_told(tmp_path: Path) -> None:
    text = toml(category("ward", "Sunset", "Mission", "94110"), AGE)
    found = words(told(tmp_path, text, rows(ward=["Sunset"] * 290 + ["Misson"] * 8 + ["Hill", "94119"])))
    assert "Not on the list, but much like a text that is (1): 'Misson' like 'Mission' (8)" in found


def test_a_forgotten_until_is_told(tmp_path: Path) -> None:
    text = toml(horizon=2000).replace("until = 2026-01-31\n", "")
    found = told(tmp_path, text, rows(), now=datetime(2029, 1, 1, tzinfo=UTC))
    assert found.verdict is Level.STOP
    assert "1,096 ticks are over and would be released at once; the last 1,066 of them have no row" in words(found)


def test_a_start_that_is_years_too_early_is_told(tmp_path: Path) -> None:
    found = told(tmp_path, toml(horizon=800).replace("start = 2026-01-01", "start = 2025-01-01"), rows())
    assert found.verdict is Level.STOP
    assert "[clock] start: 395 ticks are over and would be released at once; the first 365 of them" in words(found)


def test_files_that_would_count_twice_are_told_until_they_are_retired(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(toml(until="2026-01-11"))
    for name in ("rows-0.csv", "rows-1.csv"):
        rows().write_csv(tmp_path / name)

    def said() -> str:
        return synthstream("check", "stream.toml", cwd=tmp_path).stdout

    assert "rows-1.csv has the same bytes as" in said()
    (tmp_path / "rows-1.csv").unlink()
    assert "same bytes" not in said()
    synthstream("run", "stream.toml", "--yes", cwd=tmp_path)
    shutil.copy(tmp_path / "rows-0.csv", tmp_path / "rows-2.csv")
    assert f"{tmp_path / 'rows-2.csv'} has the same bytes as {tmp_path / 'rows-0.csv'}: its rows" in said()
    (tmp_path / "rows-0.csv").unlink()
    assert "look at this: [source]: 1 file(s) that were counted are gone, such as rows-0.csv. One that" in said()
    assert synthstream("source", "retire", "stream.toml", "rows-0.csv", cwd=tmp_path).returncode == 0
    assert "are gone" not in said()
    (tmp_path / "rows-2.csv").unlink()
    assert "no new file" in said()


def test_files_of_a_folder_that_was_moved_are_new_until_it_is_said(tmp_path: Path) -> None:
    """To ``check`` as to ``run``, before that has run."""
    text = toml(until="2026-01-11").replace("rows-*", "here/rows-*")
    (tmp_path / "here").mkdir()
    for name in ("rows-0.csv", "rows-1.csv"):
        rows().write_csv(tmp_path / "here" / name)
    (tmp_path / "stream.toml").write_text(text)
    synthstream("run", "stream.toml", "--yes", cwd=tmp_path)
    (tmp_path / "here").rename(tmp_path / "there")
    text = text.replace("here/rows", "there/rows")

    def said(text: str) -> str:
        (tmp_path / "stream.toml").write_text(text)
        return synthstream("check", "stream.toml", cwd=tmp_path).stdout

    assert "2 file(s) that were counted are gone" in (told := said(text))
    assert 'say in [source] what it was called: moved = "here"' in told
    text = text.replace("[source]\n", '[source]\nmoved = "here"\n')
    assert "All files (2) were counted before" in said(text)
    rows().head(3).write_csv(tmp_path / "there" / "rows-2.csv")
    assert "3 rows in 1 file(s)" in (told := said(text))
    assert "are gone" not in told
    (tmp_path / "there" / "rows-1.csv").unlink()
    assert "1 file(s) that were counted are gone, such as here/rows-1.csv" in said(text)


def test_a_file_that_comes_late_is_told_before_it_is_counted(tmp_path: Path) -> None:
    """Ten days are released; then a file comes that holds rows of the last of them."""
    (tmp_path / "stream.toml").write_text(toml(until="2026-01-11"))
    frame = rows()
    frame.filter(pl.col("when") < "2026-01-10").write_csv(tmp_path / "rows-0.csv")
    assert synthstream("run", "stream.toml", "--yes", cwd=tmp_path).returncode == 0
    said = synthstream("check", "stream.toml", cwd=tmp_path).stdout
    assert said.startswith("PRIVATE  visits: no new file\nPRIVATE  Verdict: none: there was nothing new to look at\n")
    assert "fine: [source]: All files (1) were counted before; name those that" in said
    assert "look at this" not in said
    frame.filter(pl.col("when").is_between(pl.lit("2026-01-10"), pl.lit("2026-01-11"))).write_csv(
        tmp_path / "rows-1.csv"
    )
    said = synthstream("check", "stream.toml", cwd=tmp_path).stdout
    assert "20 rows in 1 file(s)" in said, "the file that was counted is not looked at again"
    assert "look at this: late rows: 10 rows (50 %) are dated in ticks that are closed" in said


def test_what_no_tick_of_a_successor_counts_is_told(tmp_path: Path) -> None:
    """Its first tick is the 10th; rows of days before it, or without a readable day, wait for nothing."""
    (tmp_path / "stream.toml").write_text(toml(until="2026-01-11"))
    (tmp_path / "new.toml").write_text(toml(until="2026-01-11", horizon=90) + '[after]\nconfig = "stream.toml"\n')
    frame = rows()
    frame.filter(pl.col("when") < "2026-01-10").write_csv(tmp_path / "rows-0.csv")
    synthstream("run", "stream.toml", "--yes", cwd=tmp_path)
    assert synthstream("succeed", "stream.toml", "new.toml", "--yes", cwd=tmp_path).returncode == 0
    days = ["2026-01-10"] * 10 + ["2026-01-11"] * 8 + ["yesterday"] * 2
    frame.head(20).with_columns(when=pl.Series(days)).write_csv(tmp_path / "rows-1.csv")
    said = synthstream("check", "new.toml", cwd=tmp_path).stdout
    assert (
        "10 rows (50 %) are dated in ticks that are closed, and would count in no tick: the stream went on at" in said
    )
    assert "'yesterday' (2). All would count in no tick, since the stream has gone on." in said
    assert "in the open tick" not in said
    assert [line.split()[-1] for line in said.splitlines() if line.startswith("PRIVATE      2026-")] == ["8"]


def test_rows_before_the_start_after_until_and_beyond_the_horizon(tmp_path: Path) -> None:
    when = ["2025-12-31"] * 10 + ["2026-01-02"] * 270 + ["2026-02-02"] * 15 + ["2028-01-01"] * 5
    said = words(told(tmp_path, toml(), rows(when=when)))
    assert "10) are dated before start" in said
    assert "15 rows (5.0 %) are dated in ticks that end after until = 2026-01-31" in said
    assert "5 rows (1.7 %) are dated after the horizon, and count in no tick. Its 60 ticks end 2026-03-02." in said
    assert "is closed if until" not in said, "a tick of a day ends there"
    found = told(tmp_path, toml(), rows(when=["2027-01-01"] * 300))
    assert {f.level for f in found.findings if f.about == "[clock] horizon"} == {Level.STOP}


def test_a_tick_that_until_cuts_is_named(tmp_path: Path) -> None:
    """Until lies where the data end, in the middle of a week: no release holds the days before it."""
    said = words(told(tmp_path, toml().replace('"1d"', '"1w"'), rows(when=["2026-01-02"] * 270 + ["2026-01-30"] * 30)))
    assert "30 rows (10 %) are dated in ticks that end after until = 2026-01-31, and would wait for their tick." in said
    assert "The tick from 2026-01-29 on is closed if until = 2026-02-05, or later." in said


def test_clamped_empty_and_unreadable_cells(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows(age=["-5"] * 30 + ["100"] * 60 + ["250"] * 60 + ["old"] * 30 + [""] * 120))
    cells = found.looked.rows.columns["age"]
    assert (cells.low, cells.high, cells.unread, cells.empty) == (30, 60, 30, 120)
    assert "(60) are above max = 100, and would count in the last bin." in words(found)
    assert "(30) cannot be read as number, such as 'old' (30). They would count as missing.\n" in words(found) + "\n"
    assert found.lines == []


def test_other_words_than_true_and_false_are_a_category(tmp_path: Path) -> None:
    text = toml(WARD, '[[columns]]\nname = "ok"\ntype = "boolean"\n')
    said = words(told(tmp_path, text, rows(ok=["ja", "nein", "nein"] * 100)))
    assert "such as 'nein' (200), 'ja' (100). They would count as missing. Other words than true and" in said


@pytest.mark.parametrize(
    "column", ['type = "integer"\nmin = 0\nmax = 3\n', 'type = "number"\nmin = 0\nmax = 3\nbins = 3\n']
)
def test_the_end_of_a_range_belongs_to_it(tmp_path: Path, column: str) -> None:
    text = toml(f'[[columns]]\nname = "age"\n{column}')
    cells = told(tmp_path, text, rows(age=["0", "3", "4"] * 100)).looked.rows.columns["age"]
    assert (cells.low, cells.high) == (0, 100)


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        ("1,5", ['decimal = ","']),
        ("1.234,5", ['decimal = ","', 'thousands = "."']),
        ("1,234,567", ['thousands = ","']),
        ("1,234", []),  # one and a bit, or more than a thousand
        ("12 EUR", []),
    ],
)
def test_numbers_as_others_write_them(tmp_path: Path, age: str, expected: list[str]) -> None:
    found = told(tmp_path, toml(), rows(age=[age] * 300))
    assert found.verdict is Level.STOP
    assert found.lines == (["[source]", *expected] if expected else [])


def test_no_key_is_proposed_that_a_source_of_this_kind_cannot_have(tmp_path: Path) -> None:
    frame = rows(age=["1,5"] * 300)
    frame = frame.with_columns(when=pl.Series(german(frame["when"])))
    frame.write_ndjson(tmp_path / "rows.jsonl")
    found = told(tmp_path, toml().replace(csv(), csv("rows.jsonl").replace('"csv"', '"jsonl"')))
    assert found.lines == ["[source]", 'datetime_format = "%d.%m.%Y"']
    assert "decimal ','. A source of this kind has no decimal: write these cells in another way." in words(found)
    frame.write_parquet(tmp_path / "rows.parquet")
    found = told(tmp_path, toml().replace(csv(), csv("rows.parquet").replace('"csv"', '"parquet"')))
    assert found.lines == []
    assert "has no datetime_format" in words(found)


def test_coordinates_that_the_dialect_cannot_read_are_told(tmp_path: Path) -> None:
    box = 'coordinates = ["lat"]\nbounds = [[32, 37]]\ndepth = 3\n'
    text = toml(WARD, f'[[columns]]\nname = "at"\ntype = "place"\n{box}')
    text = text.replace(csv(), csv(more='decimal = ","\n'))
    fine = told(tmp_path, text, rows(lat=["34,1", ""] * 150))
    assert "lie in no cell" not in words(fine)
    found = told(tmp_path, text, rows(lat=["34.1"] * 270 + ["34,1"] * 30))
    assert "at: 90 % of the rows (270) lie in no cell. They are numbers with a point" in words(found)


def test_cells_that_hold_line_ends_are_told(tmp_path: Path) -> None:
    (tmp_path / "rows-0.csv").write_text("when,ward,age\n" + '2026-01-02,"A\nB",31\n' * 300)
    found = told(tmp_path, toml())
    assert "[source]: Cells end with a quotation mark that does not begin them: 'B\"' (300)." in words(found)
    assert found.lines == ["[source]", "multiline = true"]
    assert told(tmp_path, toml().replace(csv(), csv(more="multiline = true\n"))).lines == []


def test_another_separator_is_told_before_any_row_is_read(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows(), separator=";")
    assert (found.verdict, found.looked.rows.count) == (Level.STOP, 0)
    assert found.lines == ["[source]", 'delimiter = ";"']
    found = told(tmp_path, toml().replace(csv(), csv(more='delimiter = ";"\n')), rows())
    assert found.lines == ["[source]", 'delimiter = ","']
    assert 'stand between ",", not what [source] says: say delimiter = ",".' in words(found)


def test_what_is_said_of_several_files_is_said_once(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows(), rows(), rows(), separator=";")
    assert [finding.words for finding in found.findings] == [
        f'The columns of {tmp_path}/rows-0.csv (and 2 more) stand between ";", not commas: say delimiter = ";".'
    ]


def test_a_key_that_one_file_needs_is_not_proposed_for_those_that_are_read_without_it(tmp_path: Path) -> None:
    (tmp_path / "rows-1.csv").write_text(rows().write_csv(separator=";"))
    (tmp_path / "rows-2.csv").write_bytes(rows(ward=["Köln"] * 300).write_csv().encode("windows-1252"))
    found = told(tmp_path, toml(), rows())
    assert found.lines == []
    assert 'not commas: write it anew as other files here are (2); delimiter = ";" in [source] would' in words(found)
    assert 'windows-1252: write it anew as other files here are (1); encoding = "windows-1252"' in words(found)


def test_a_column_that_is_not_there_and_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "rows-1.csv").write_bytes(b"")
    found = told(tmp_path, toml(), rows().rename({"ward": "wart"}))
    assert "column 'ward' is missing. Did you mean 'wart'? Nothing was counted. As long as" in words(found)
    assert "mend the name in stream.toml; afterwards write this file anew with the names that stand" in words(found)
    assert "it has not even a header" in words(found)
    assert "Rows by the tick" not in words(found), "no row was read"
    undated = told(tmp_path, toml(), rows().rename({"when": "day"}))
    assert "[clock] column: " in words(undated)
    nobody = told(tmp_path, toml(unit='{ person = "who", max_events = 20 }'), rows())
    assert "[privacy] person: " in words(nobody)
    assert "column 'who' is missing" in words(nobody)


@pytest.mark.parametrize(("encoding", "told_as"), [("windows-1252", "windows-1252"), ("utf-8", None)])
@pytest.mark.parametrize("ending", ["csv", "CSV"])
def test_an_encoding_that_is_not_utf_8(tmp_path: Path, ending: str, encoding: str, told_as: str | None) -> None:
    text = rows(ward=["Köln"] * 300).write_csv()
    (tmp_path / f"rows-0.{ending}").write_bytes(text.encode(encoding))
    lines = told(tmp_path, toml(WARD.replace('"A"', '"Köln"')).replace("*.csv", f"*.{ending}")).lines
    assert lines == ([] if told_as is None else ["[source]", f'encoding = "{told_as}"'])


def test_a_file_that_ends_within_a_character_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"K\xc3")
    assert encoding_of(tmp_path / "rows.csv") == "windows-1252"


def test_utf_16_is_to_be_converted_as_no_key_reads_it(tmp_path: Path) -> None:
    (tmp_path / "rows-0.csv").write_bytes(rows().write_csv(include_header=False).encode("utf-16"))
    source = csv(more='header = ["when", "ward", "age"]\n')
    found = told(tmp_path, toml().replace(csv(), source))
    assert "rows-0.csv is UTF-16, of which nothing can be read: convert it, iconv -f UTF-16 -t UTF-8." in words(found)
    assert (found.verdict, [line for line in found.lines if "encoding" in line]) == (Level.STOP, [])


def test_time_zones(tmp_path: Path) -> None:
    frame = rows()
    text = toml().replace("[clock]\n", '[clock]\ntimezone = "America/Los_Angeles"\n')
    midnight = [f"{day}T00:00:00Z" for day in frame["when"]]
    assert "100 % of the times are midnight in UTC" in words(told(tmp_path, text, rows(when=midnight)))
    mixed = [f"{day}T12:00:00{'+01:00' if i % 2 else ''}" for i, day in enumerate(frame["when"])]
    assert "50 % of the times name an offset or a zone" in words(told(tmp_path, text, rows(when=mixed)))


def test_thousands_are_told_among_cells_that_are_no_numbers(tmp_path: Path) -> None:
    """Where some amounts have signs between their thousands, and most have none, the large ones would be missing."""
    amounts = (["12,5"] * 9 + ["1.234,75"] + ["n/a"] * 2 + ["7,25"] * 8) * 15
    text = toml(number("amount", "bins = 5", high=5000)).replace(csv(), csv(more='decimal = ","\ndelimiter = ";"\n'))
    found = told(tmp_path, text, rows(amount=amounts), separator=";")
    assert 'They would count as missing. Some look like numbers with thousands = ".".' in words(found)
    assert found.lines == ["[source]", 'thousands = "."']


def test_persons_who_reach_their_limit_and_keys_that_look_alike(tmp_path: Path) -> None:
    text = toml(unit='{ person = "who", max_events = 20, max_per_tick = 5 }')
    who = (["7", "07", " 7", "8", "9"] * 48 + ["busy"] * 40 + [""] * 20)[:300]
    found = told(tmp_path, text, rows(who=who))
    persons = found.persons
    assert persons is not None
    assert (persons.number, persons.without) == (6, 20)
    assert persons.full == 6, "each of the five has 48 rows, and busy 40"
    assert persons.left_out == 5 * (48 - 20) + (40 - 20)
    assert persons.in_a_tick == 20, "busy has ten rows on each of four days"
    said = "beyond a person's limit (max_per_tick: 20, max_events: 140), and would be left out. With a larger limit"
    assert said in words(found)
    assert "1 groups of keys look alike, and would be different persons: ' 7' and '07' and '7'" in words(found)
    before = "What these persons had counted before is not looked up: with it, more may be beyond."
    assert before not in [*lines_of(found)]
    assert before in [*lines_of(replace(found, open_tick=3))], "a stream that runs"


def test_which_limit_leaves_rows_out(tmp_path: Path) -> None:
    who = [f"p-{i // 5}" for i in range(300)]
    found = told(tmp_path, toml(unit='{ person = "who", max_events = 5, max_per_tick = 1 }'), rows(who=who))
    persons = found.persons
    assert persons is not None
    assert (persons.left_out, persons.in_a_tick) == (240, 240)
    assert persons.full == 0, "each has five rows of one tick, of which one counts"
    [limit] = [finding for finding in found.findings if "beyond a person's limit" in finding.words]
    assert limit.about == "[privacy] max_per_tick"
    assert "(max_per_tick: 240, max_events: 0)" in limit.words


def test_keys_that_people_write_where_there_is_none(tmp_path: Path) -> None:
    text = toml(unit='{ person = "who", max_events = 4 }')
    who = (["UNKNOWN"] * 30 + ["  "] * 20 + ["0"] * 10 + [""] * 5 + [f"p-{i}" for i in range(300)])[:300]
    found = told(tmp_path, text, rows(who=who))
    said = "Keys that sound like none would be one person each: 'UNKNOWN' (30), '  ' (20), '0' (10). Leave such cells"
    assert said in words(found)
    assert found.verdict == Level.LOOK
    assert "sound like none" not in words(told(tmp_path, text, rows(who=[f"p-{i}" for i in range(300)])))


def test_a_sign_that_is_none(tmp_path: Path) -> None:
    text = 'op = "change"\n' + toml()
    found = told(tmp_path, text, rows(change=["1", "-1", "delete"] * 100))
    assert "100 rows are neither 1 nor -1, and would add an event: 'delete' (100)" in words(found)


# -- what it writes -------------------------------------------------------------------------------------------------


def test_every_line_and_the_page_are_stamped_and_only_the_owner_reads_it(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(toml())
    rows(ward=["A", "<b>Bay</b>"] * 150).write_csv(tmp_path / "rows-0.csv")
    done = synthstream("check", "stream.toml", "-o", "check.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.startswith("PRIVATE  ") for line in done.stdout.splitlines())
    page = tmp_path / "check.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text()
    assert text.count("PRIVATE: secret, shows true data") >= 3
    assert "&lt;b&gt;Bay" in text
    assert "<b>Bay" not in text


def test_frames_are_looked_at_as_update_would_take_them(tmp_path: Path) -> None:
    config = StreamConfig.from_toml(toml(until="2026-01-11"), base=tmp_path)
    odd = rows(ward=["A", "Bay"] * 150)
    odd.write_csv(tmp_path / "rows-0.csv")
    with Stream(config) as stream:  # the report may be asked for beside an open stream
        stream.update(rows())
        stream.release()
        before = contents(tmp_path)
        found = {kind: check(config, one) for kind, one in (("polars", odd), ("pandas", odd.to_pandas()))}
        assert contents(tmp_path) == before
    assert found["polars"] == found["pandas"]
    assert all(line.startswith("PRIVATE  ") for line in found["polars"].splitlines())
    assert "300 rows in 1 frame(s)" in found["polars"]
    assert "are not on the list: 'Bay' (150)" in found["polars"]
    assert "are dated in ticks that are closed" in found["polars"]
    both = check(config, odd, tmp_path / "rows-0.csv")
    assert "600 rows in 1 file(s) and 1 frame(s)" in both
    assert check(config) == check(config, tmp_path / "rows-0.csv")


def test_of_a_frame_nothing_is_proposed_that_only_files_have(tmp_path: Path) -> None:
    config = StreamConfig.from_toml(toml(), base=tmp_path)
    found = check(config, rows(when=["31.01.2026 10:00"] * 300))
    assert "have a time that cannot be read" in found
    assert "of a frame, convert the columns before `update`" in found
    assert "[source]\n" not in found
    assert "There is no row in it." in check(config, rows()[:0])
    with pytest.raises(SchemaError, match="'ward' is missing"):
        check(config, rows().drop("ward"))


def test_a_stream_that_runs_is_not_told_that_it_should_not_be_opened(tmp_path: Path) -> None:
    found = replace(told(tmp_path, toml(), rows(when=["soon"] * 300)), open_tick=3)
    assert [line.partition(":")[0] for line in lines_of(found)][1:3] == ["Verdict", "DO NOT RUN"]


def test_the_status_depends_on_no_row(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(toml())
    rows(when=["soon"] * 300).write_csv(tmp_path / "rows-0.csv")
    done = synthstream("check", "stream.toml", cwd=tmp_path)
    assert (done.returncode, "do not open" in done.stdout) == (0, True)


def contents(folder: Path) -> dict[Path, bytes]:
    """All files, but for the empty ones and the index with which SQLite lets several processes read."""
    found = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {path: content for path, content in found.items() if content and not path.name.endswith("-shm")}


def test_it_makes_no_state_and_changes_none(tmp_path: Path) -> None:
    """Nothing of a look can reach a release: the folders are the same bytes before and after, and what follows too."""
    (tmp_path / "stream.toml").write_text(toml(until="2026-01-11"))
    rows().write_csv(tmp_path / "rows-0.csv")
    before = contents(tmp_path)
    assert synthstream("check", "stream.toml", cwd=tmp_path).returncode == 0
    assert contents(tmp_path) == before
    synthstream("run", "stream.toml", "--yes", cwd=tmp_path)
    rows(ward=["odd"] * 300).write_csv(tmp_path / "rows-1.csv")
    before = contents(tmp_path)
    assert "odd" in synthstream("check", "stream.toml", cwd=tmp_path).stdout
    assert contents(tmp_path) == before
    (tmp_path / "stream.toml").write_text(toml(until="2026-01-11", epsilon=0.5))
    before = contents(tmp_path)
    shown = synthstream("check", "stream.toml", cwd=tmp_path).stdout
    assert "`run` will refuse" in shown
    assert "privacy.epsilon: was 1.0, is 0.5" in shown
    assert contents(tmp_path) == before


@pytest.mark.parametrize("place", ["state/check.html", "releases/check.html", "releases-simulated/check.html"])
def test_no_page_is_written_into_state_or_releases(tmp_path: Path, place: str) -> None:
    (tmp_path / "stream.toml").write_text(toml())
    rows().write_csv(tmp_path / "rows-0.csv")
    (tmp_path / place).parent.mkdir()
    done = synthstream("check", "stream.toml", "-o", place, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / place).exists()


@pytest.mark.parametrize(("partitions", "pattern"), [([], r"\*"), (["ward", "day"], r"ward=\*/day=\*/\*")])
def test_a_delta_table_is_looked_at_by_its_files(tmp_path: Path, partitions: list[str], pattern: str) -> None:
    lake = tmp_path / "lake"
    rows = pl.DataFrame({"ward": ["1"], "day": ["2026-01-01"], "age": [3]}).to_arrow()
    deltalake.write_deltalake(str(lake), rows, partition_by=partitions or None)
    assert list(lake.glob(pattern.replace("\\", "") + ".parquet"))
    text = stream_toml(WARD, AGE, '[source]\nkind = "delta"\npath = "lake"\n', SINK, until="2026-01-31", horizon=60)
    with pytest.raises(ConfigError, match=rf"synthstream check stream.toml .*/lake/{pattern}\.parquet\."):
        look(StreamConfig.from_toml(text, base=tmp_path), [])


def test_files_that_are_named_are_looked_at_alone(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(toml())
    rows().write_csv(tmp_path / "rows-0.csv")
    rows(ward=["odd"] * 300).write_csv(tmp_path / "other.csv")
    assert "'odd' (300)" in synthstream("check", "stream.toml", "other.csv", cwd=tmp_path).stdout
    assert synthstream("check", "stream.toml", "-q", "other.csv", cwd=tmp_path).stdout == ""
    missing = synthstream("check", "stream.toml", "nowhere.csv", cwd=tmp_path)
    assert (missing.returncode, "nowhere.csv" in missing.stderr) == (2, True)


def test_points_are_looked_at_too(tmp_path: Path) -> None:
    text = toml(number("age", "missing = 0"), '[synthesizer]\nkind = "points"\n')
    cells = told(tmp_path, text, rows(age=["-1", "50", "101", "x", ""] * 60)).looked.rows.columns["age"]
    assert (cells.low, cells.high, cells.unread, cells.empty) == (60, 60, 60, 60)
    said = words(told(tmp_path, text, rows(age=["-1", "50", "101", "x", ""] * 60)))
    assert "age: 20 % of the rows (60) are below min = 0, and would count there." in said
    assert "(60) are above max = 100" in said


@pytest.mark.parametrize(
    ("lat", "lon", "number", "level", "says"),
    [
        ("34.1", "-121.5", 10, Level.FINE, ""),
        ("34.1", "-121.5", 30, Level.LOOK, "region: 10 % of the rows (30) lie in no region, and would count in"),
        ("34.1", "-121.5", 300, Level.STOP, "region: 100 % of the rows (300) lie in no region"),
        ("", "-121.5", 300, Level.LOOK, "lat: No row has anything in it"),
        ("-118.2", "34.1", 300, Level.STOP, "They lie in the box if 'lat' and 'lon' change places."),
    ],
)
def test_points_outside_of_the_region_or_the_box(
    tmp_path: Path, lat: str, lon: str, number: int, level: Level, says: str
) -> None:
    geojson(tmp_path, feature(rectangle(-120, 32, -114, 37)))
    box = number_toml("lat", 32, 37) + number_toml("lon", -122, -114)
    text = toml(box, '[synthesizer]\nkind = "points"\ndepth = 8\nregion = "city.geojson"\n')
    rest = 300 - number
    found = told(tmp_path, text, rows(lat=[lat] * number + ["34.1"] * rest, lon=[lon] * number + ["-118.2"] * rest))
    assert (found.verdict, says in words(found)) == (level, True)
    assert ("lie in no region" in words(found)) == ("no region" in says)


@pytest.mark.parametrize(
    ("lat", "lon", "why"),
    [
        (
            "-118.2",
            "34.1",
            'They lie in the box with coordinates = ["lon", "lat"]: these stand in the order of bounds.',
        ),
        ("34,1", "-118,2", "They look like numbers with decimal ','."),
        ("51.5", "0.1", "They lie outside of bounds."),
    ],
)
def test_places_outside_of_their_box(tmp_path: Path, lat: str, lon: str, why: str) -> None:
    box = 'coordinates = ["lat", "lon"]\nbounds = [[32, 37], [-122, -114]]\nviews = [1]\ndepth = 3\n'
    text = toml(WARD, f'[[columns]]\nname = "at"\ntype = "place"\n{box}')
    fine = told(tmp_path, text, rows(lat=["34.1"] * 300, lon=["-118.2"] * 300))
    assert (fine.verdict, words(fine)) == (Level.FINE, "")
    found = told(tmp_path, text, rows(lat=[lat] * 300, lon=[lon] * 300))
    assert found.verdict is Level.STOP
    assert words(found) == f"at: 100 % of the rows (300) lie in no cell. {why} Found: '{lat} / {lon}' (300)."
    # Once, not for each grid.
    assert [line for line in lines_of(found) if "in other" in line] == [
        f"at: most frequent in other: '{lat} / {lon}' (300)"
    ]


@pytest.mark.parametrize(
    ("lat", "lon", "why"),
    [
        ("-118.2", "34.1", "They lie in the box if their coordinates change places, and most others as they are"),
        ("34,1", "-118,2", "with decimal ','. If most others have a point, these keys would lose those: set these"),
    ],
)
def test_what_a_few_rows_need_is_not_said_of_all(tmp_path: Path, lat: str, lon: str, why: str) -> None:
    """Following it, the others would have been lost."""
    box = 'coordinates = ["lat", "lon"]\nbounds = [[32, 37], [-122, -114]]\nviews = [1]\ndepth = 3\n'
    text = toml(WARD, f'[[columns]]\nname = "at"\ntype = "place"\n{box}')
    found = told(tmp_path, text, rows(lat=["34.1"] * 250 + [lat] * 50, lon=["-118.2"] * 250 + [lon] * 50))
    assert why in words(found)
    assert "stand in the order" not in words(found)


def test_coordinates_in_the_order_of_another_box_are_told_beside_others_that_lie_nowhere(tmp_path: Path) -> None:
    """No text comes twice, and the first ones in the alphabet lie in no box, whichever way round."""
    place = 'name = "at"\ntype = "place"\ncoordinates = ["lat", "lon"]\nbounds = [[32, 37], [-122, -114]]\ndepth = 3\n'
    lat = [f"-{100 + k / 1e4:.4f}" for k in range(300)] + [f"-{115 + k / 1e4:.4f}" for k in range(2700)]
    frames = [rows(lat=lat[k : k + 300], lon=["34.1"] * 300) for k in range(0, 3000, 300)]
    found = told(tmp_path, toml(WARD, f"[[columns]]\n{place}"), pl.concat(frames))
    assert 'They lie in the box with coordinates = ["lon", "lat"]' in words(found)


def test_a_place_with_regions_and_decimal_commas_is_told_of_once_with_the_line_that_reads_it(tmp_path: Path) -> None:
    geojson(tmp_path, feature(rectangle(-122, 32, -114, 37), name="City"))
    box = 'coordinates = ["lat", "lon"]\nbounds = [[32, 37], [-122, -114]]\nviews = [1]\ndepth = 3\n'
    text = toml(WARD, f'[[columns]]\nname = "at"\ntype = "place"\n{box}regions = "city.geojson"\n')
    found = told(tmp_path, text, rows(lat=["34,1"] * 290 + ["0.00000"] * 10, lon=["-118,2"] * 290 + ["0.00000"] * 10))
    assert [finding.about for finding in found.findings] == ["at"]
    assert "look like numbers with decimal ','." in words(found)
    assert found.lines == ["[source]", 'decimal = ","']
    named = told(tmp_path, text, rows(lat=["north"] * 300, lon=["west"] * 300))
    assert "They are no numbers." in words(named)


def test_a_format_beside_times_in_iso_8601_is_to_be_left_out(tmp_path: Path) -> None:
    text = toml().replace(csv(), csv(more='datetime_format = "%d.%m.%Y"\n'))
    found = told(tmp_path, text, rows(when=[f"{day}T10:20:30.5Z" for day in rows()["when"]]))
    assert "They are ISO 8601: leave datetime_format out." in words(found)


def test_a_few_times_in_another_form_are_read_by_a_list_beside_the_form_of_the_others(tmp_path: Path) -> None:
    """Whoever left the form out, or put another one in its place, would lose all other rows."""
    text = toml().replace(csv(), csv(more='datetime_format = "%d.%m.%Y"\n'))
    days = rows()["when"].to_list()
    mixed = [*german(pl.Series("when", days[20:])), *(f"{day}T10:20" for day in days[:20])]
    found = told(tmp_path, text, rows(when=mixed))
    assert found.lines == ["[source]", 'datetime_format = ["%d.%m.%Y", "%Y-%m-%dT%H:%M"]']
    assert "They are ISO 8601. Keep the form that reads the others: a list reads both." in words(found)
    other = told(tmp_path, toml(), rows(when=[*german(pl.Series("when", days[:20])), *days[20:]]))
    assert other.lines == []
    assert "They look like day.month.year. Others are ISO 8601: a list of forms reads both" in words(other)


def test_the_line_for_times_names_the_column_of_the_rows_that_they_are_read_from(tmp_path: Path) -> None:
    column = '[[columns]]\nname = "hour"\nfrom = "end"\ntype = "datetime"\npart = "hour"\n'
    found = told(tmp_path, toml(WARD, column), rows(end=german(rows()["when"])))
    assert found.lines == ["[source]", 'datetime_format."end" = "%d.%m.%Y"']


def test_nothing_is_said_of_columns_where_no_row_was_read(tmp_path: Path) -> None:
    found = told(tmp_path, toml(), rows().drop("ward"))
    assert found.verdict is Level.STOP
    assert not [line for line in lines_of(found) if "nothing empty" in line]


def test_numbers_with_a_point_that_decimal_cannot_read(tmp_path: Path) -> None:
    text = toml().replace('kind = "csv"', 'kind = "csv"\ndecimal = ","')
    found = told(tmp_path, text, rows(age=["3.5", "64.25"] * 150))
    assert "They would count as missing. They are numbers with a point: leave decimal and thousands out." in words(
        found
    )
    assert not found.lines
