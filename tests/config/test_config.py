"""stream.toml: what is accepted, and what a mistake is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from synthstream.config import synthesis
from synthstream.config.config import StreamConfig, load
from synthstream.config.differing import differences
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.errors import ConfigError, SourceError
from synthstream.ingest.draft import draft
from synthstream.kernel.tables import Refreshed
from synthstream.kinds import EDITION
from synthstream.privacy import Budget
from synthstream.synthesizers.assembly import synthesizer_for, synthesizer_of
from synthstream.workload import Workload
from tests.support.configs import GOOD
from tests.support.streams import text_of


def problem(old: str, new: str) -> str:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(GOOD.replace(old, new), origin="stream.toml")
    return str(caught.value)


def test_a_good_one(tmp_path: Path) -> None:
    (tmp_path / "stream.toml").write_text(GOOD)
    config = load(tmp_path / "stream.toml")
    assert config.state == tmp_path / "state"
    assert config.sink is not None
    assert config.sink.path == tmp_path / "releases"
    assert config.schema.sizes == (4, 5)
    assert config.workload
    assert config.workload.marginals == ((), (0,), (1,), (0, 1))


@pytest.mark.parametrize(
    ("columns", "horizon", "how"),
    [
        (100, 365, ("refresh", 1.1)),  # 496,001 cells
        (120, 365, ("refresh", 1.2)),  # 715,201
        (150, 365, ("refresh", 1.4)),  # 1,119,001
        (180, 365, ("always", None)),  # 1,612,801
        (180, 60, ("refresh", 1.4)),
        (70, None, ("refresh", 1.1)),  # 242,201
        (100, None, ("refresh", 1.2)),
        (140, None, ("always", None)),  # 974,401
    ],
)
def test_the_more_cells_the_fewer_refreshes_are_remembered(
    columns: int, horizon: int | None, how: tuple[str, float | None]
) -> None:
    workload = Workload.all_up_to(2, sizes=(10,) * columns)
    budget, settings = Budget(epsilon=1.0, delta=1e-9), SynthesizerConfig()
    assert settings.measures(budget, workload, horizon=horizon) == how[0]
    made = synthesizer_for(settings, workload=workload, budget=budget, horizon=horizon)
    assert getattr(made.mechanism, "growth", None) == how[1]
    if isinstance(made.mechanism, Refreshed) and horizon is not None:
        assert 16 * workload.cells * len(made.mechanism.times.ages) <= 384e6


def test_how_often_is_kept_where_it_is_said() -> None:
    workload, budget = Workload.all_up_to(2, sizes=(10,) * 100), Budget(epsilon=1.0, delta=1e-9)
    assert SynthesizerConfig(growth=1.05).measures(budget, workload, horizon=365) == "always"  # remembers too much
    assert SynthesizerConfig(growth=1.3).refresh_growth(workload, 365) == 1.3
    assert SynthesizerConfig(growth=1.5).refresh_growth(workload, 365) == 1.5  # what it is in epochs if not said
    assert SynthesizerConfig(growth=1.05, measure="refresh").refresh_growth(workload, 365) == 1.05


def test_after_a_cut_the_ticks_that_are_left_say_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What settings tell of refreshes is what the mechanism does, on both sides."""
    monkeypatch.setattr(synthesis, "_MOST_REMEMBERED", 30 * 30)
    long = GOOD.replace("horizon = 8", "horizon = 80").replace("until = 2026-01-06\n", "")
    (tmp_path / "old.toml").write_text(long)
    (tmp_path / "new.toml").write_text(long + '[after]\nconfig = "old.toml"\n')
    config = load(tmp_path / "new.toml").begun_as({"edition": EDITION, "cuts": [{"tick": 40, "edition": EDITION}]})
    for life, growth in zip(config.lives, (1.2, 1.1), strict=True):
        made = synthesizer_of(life).mechanism
        assert isinstance(made, Refreshed)
        assert json.loads(life.public_json())["synthesizer.growth"] == made.growth == growth


def test_a_section_in_single_brackets_among_others_is_told() -> None:
    with pytest.raises(ConfigError, match=r"Begin each with \[\[columns\]\], in double brackets"):
        StreamConfig.from_toml(GOOD.replace("[[columns]]", "[columns]", 1))


def test_a_path_in_place_of_text_is_told() -> None:
    with pytest.raises(ConfigError, match=r"This is a path, .* synthstream\.open\('stream\.toml'\)"):
        StreamConfig.from_toml("stream.toml")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("epsilon = 1.0", "epsilom = 1.0", ["line 4", "privacy.epsilom", "Did you mean 'epsilon'?"]),
        ("epsilon = 1.0\n", "", ["line 3", "privacy.epsilon", "required", "no default"]),
        ("delta = 1e-9\n", "", ["privacy.delta", "0 asks for pure"]),
        ("epsilon = 1.0", "epsilon = 0.0", ["line 4", "epsilon must be from 1e-06 to 1e+06, not 0.0"]),
        ("epsilon = 1.0", "epsilon = -1.0", ["line 4", "not -1.0: it bounds how much releases tell", "1 is usual"]),
        ("epsilon = 1.0", "epsilon = nan", ["epsilon must be from 1e-06 to 1e+06, not nan"]),
        ("epsilon = 1.0", 'epsilon = "1"', ["line 4", "privacy.epsilon = '1'", "number; write it without"]),
        ("epsilon = 1.0", 'epsilon = "much"', ["line 4", "valid number"]),
        ("epsilon = 1.0", "epsilon = 1,5", ["line 4", "Numbers take a decimal point, as in 1.5"]),
        ("max = 100", "max = 1,000", ["line 21", "point, as in 1.000. Nothing stands between thousands, as in 1000"]),
        ("max = 100", "max = 1.000.000", ["line 21", ". Nothing stands between thousands, as in 1000000"]),
        ("max = 100", "max = 1.000,50", ["line 21", "Numbers take a decimal point, as in 1000.50"]),
        ("epsilon = 1.0", "epsilon = .5", ["line 4", "Numbers begin with a digit, as in 0.5"]),
        ("delta = 1e-9", "delta = 10^-9", ["line 5", "Powers of ten are written as in 1e-9"]),
        ('state = "state"', "state = 1e5x", ["line 2", 'Texts stand in quotes: "A", not A']),
        ('values = ["A", "B"]', 'values = ["A",, "B"]', ["line 16", "Nothing stands before a comma: leave it out"]),
        ("[sink]", '[status]\nfree = "10 gigs"\n[sink]', ["status.free = '10 gigs': use a size, as in \"10 GB\""]),
        ("[[columns]]", "[columns]", ["Begin each with [[columns]], in double brackets"]),
        ('every = "1d"', "every = 7", ["line 10", 'write it in quotes, as in "7d"']),
        ("delta = 1e-9", "delta = 0.5", ["line 5", "from 1e-100 to below 0.5, not 0.5"]),
        ('type = "category"', 'type = "float"', ["Did you mean 'number'?"]),
        ("delta = 1e-9", "delta = 1.0", ["line 5", "delta must be 0, or from"]),
        ('unit = "event"', 'unit = "person"', ["line 6", "privacy.unit = 'person'", "max_events = 20"]),
        ('every = "1d"', 'every = "daily"', ["line 10", "every", '"1w"']),
        ("until = 2026-01-06", "until = 2020-01-06", ["until"]),
        ("start = 2026-01-01", 'start = "2026-01-01"', ["line 9", "without quotes"]),
        ("bins = 4", "bins = 10000000", ["too many"]),
        ("until = 2026-01-06", "until = 2026-02-01", ["horizon = 8", "31 ticks"]),
        ('every = "1d"', 'every = "1m"', ["7200 ticks", '"m" is minutes; a month is "1mo"']),
        ("horizon = 8", "horizon = 0", ["horizon = 0"]),
        ('every = "1d"', "every = true", ["line 10", 'write it in quotes, as in "1d"']),
        ('state = "state"', 'state = ""', ["line 2: state = '': name a folder, as in \"state\""]),
        ('state = "state"', 'state = " "', ["line 2: state = ' ': name a folder"]),
        ('name = "ward"', 'name = " "', ["column ' ': name = ' ': must not be empty"]),
        ('state = "state"\n', "", ["state: this key is required; name a folder, as in \"state\""]),
        ('path = "releases"', 'path = ""', ["line 25: sink.path = '': name a folder, as in \"releases\""]),
        ('path = "releases"', 'path = "s3://open/visits"', ["line 25: sink.path", "of this machine"]),
        ("[sink]", '[after]\nconfig = "https://a.org/s.toml"\n[sink]', ["after.config = 'https:", "of this machine"]),
        ("[sink]", '[after]\nconfig = 3\n[sink]', ["after.config = 3: input should be a valid string; write it in"]),
        ('name = "visits"', 'name = ""', ["line 1: name = '': use at least one letter or digit"]),
        ("horizon = 8", 'horizon = "for ever"', ["line 12", "= 'for ever': use a number of ticks, or \"unbounded\""]),
        ("horizon = 8", 'horizon = "8"', ["line 12", '"unbounded"; write a number without quotes']),
        ("horizon = 8\n", "", ["clock.horizon", "unbounded"]),
        ('type = "category"', 'type = "categroy"', ["line 13", "column 'ward': type = 'categroy'", "'category'?"]),
        ('type = "category"\n', "", ["column 'ward': type: this key is required: one of category, boolean, integer"]),
        ('kind = "parquet"\n', "", ['sink.kind: this key is required; say kind = "parquet"']),
        ('unit = "event"', 'unit = "event"\nmax_events = 3', ["line 7", "in the braces of unit = { person ="]),
        ('values = ["A", "B"]', 'values = ["A", "A"]', ["number 2 of its values is listed twice, first as number 1."]),
        (
            'type = "category"',
            'type = "category"\nmissing = false',
            ["column 'ward': missing = false: say as which value missing cells count, a text in quotes, or leave"],
        ),
        ("bins = 4", "bins = 4\nmissing = false", ["column 'age': missing = false", "cells count, a number, or"]),
        ('values = ["A", "B"]', "values = [1, 2]", ["line 16", "values"]),
        (
            'values = ["A", "B"]',
            "values = [2026-01-01, 2026-02-01]",
            ["line 16: column 'ward': values.0 = 2026-01-01: input", 'write it in quotes, as in "2026-01-01"'],
        ),
        ('every = "1d"', "every = 2026-01-01", ["clock.every = 2026-01-01: ", 'write it in quotes, as in "1d"']),
        ("epsilon = 1.0", "epsilon = true", ["privacy.epsilon = true: "]),
        ('type = "category"', "type = true", ["column 'ward': type = true: must be one of category, "]),
        (
            "[sink]",
            '[source]\nkind = "csv"\npath = "x"\nthousands = "x"\n[sink]',
            [r'''must be one of "", ".", ",", " ", "'", "\u00a0", "\u202f", "’".'''],
        ),
        ("horizon = 8", "horizon = [2026-01-01T12:00:00]", ["clock.horizon = [2026-01-01T12:00:00]: use a number"]),
        ("bins = 4", "bins = 4\nunit = 5", ["column 'age': unit = 5: input should be a valid string; write it in"]),
        ("min = 0\n", "", ["line 17", "column 'age': min", "never taken from the data"]),
        ("max = 100", "max = -100", ["line 20: column 'age': min must be below max"]),
        ("bins = 4", "bins = 0", ["line 22: column 'age': bins must be at least 1"]),
        ('values = ["A", "B"]', "values = []", ["line 16: column 'ward': values must list at least one"]),
        ("bins = 4", "bins = '1_000'", ["column 'age': bins = '1_000'", "write it without quotes"]),
        ("min = 0\nmax = 100\nbins = 4", 'edges = ["1", "2"]', ["stream.toml, line 20: column 'age': edges.0 = '1'"]),
        ("epsilon = 1.0", 'epsilon = 1.0\nsource = "x"', ["privacy.source: ", "of its own. Begin it with [source]"]),
        ("epsilon = 1.0", 'epsilon = 1.0\nname = "x"', ["privacy.name: ", "at the top of the file, before the first"]),
        ("[sink]", '[columns.urgent]\ntype = "boolean"\n[sink]', ["urgent: ", "Begin each column with [[columns]]"]),
        ("start =", "begin =", ["line 9: clock.begin: there is no such key here. Did you mean 'start'?"]),
        ('unit = "event"', 'unit = "event"\n[person]\nmax_events = 3', ["line 7: person: ", "in the braces of unit ="]),
        ('name = "visits"', 'max_events = 3\nname = "visits"', ["line 1: max_events: ", "in the braces of unit = {"]),
        ('name = "age"', 'name = "ward"', ["'ward' is listed twice"]),
        ("[sink]", "[synthesizer]\norder = 9\n[sink]", ["synthesizer.order"]),
        ("[sink]", '[synthesizer]\nmarginals = [["ward", "ward"]]\n[sink]', ["a table names 'ward' twice"]),
        ("[sink]", '[synthesizer]\nmarginals = [["wrad"]]\n[sink]', ["'wrad' is not a column", "Did you mean 'ward'?"]),
        ("[sink]", '[synthesizer]\ncounter = "bltt"\n[sink]', ["Did you mean 'blt'?"]),
        ("[sink]", "[synthesizer]\nmarginals = []\n[sink]", ["at least one table"]),
        ("[sink]", '[synthesizer]\nkind = "selective"\n[sink]', ["synthesizer: picks", "events_per_tick"]),
        ('kind = "parquet"', 'kind = "delta"', ["sink.kind = 'delta': must be \"parquet\"."]),
        ('path = "releases"', 'path = "releases"\nkeep = 0', ["sink.keep"]),
        ("[sink]", "[[sink]]", ["line 23", "sink: must be a section. Begin it with [sink],"]),
        ("[sink]", '[mirror]\nkind = "delta"\n[sink]', ["line 23", "mirror: must be a section", "[[mirror]]"]),
        ("[privacy]", "[privcay]", ["privcay", "Did you mean 'privacy'?"]),
        ('path = "releases"', 'path = "state/releases"', ["line 25", "neither may lie in the other"]),
        ('path = "releases"', 'path = "x/../state"', ["sink.path", "Move one"]),
        ("[sink]", '[source]\nkind = "csv"\npath = "releases/in/*.csv"\n[sink]', ["sink.path", "a folder of its own"]),
        ('path = "releases"', 'path = "state-simulated"', ["line 25", "neither may lie in the other"]),
        ('name = "age"', 'name = "^a.*$"', ["'^a.*$' is a pattern"]),
        ('name = "age"', 'name = "*"', ["'*' is a pattern"]),
        ('values = ["A", "B"]', 'values = ["A", "\\u001b[2J"]', ["cannot be printed"]),
        ('name = "visits"', 'name = "\\u001b]0;x\\u0007"', ["line 1", "name"]),
        ('state = "state"', 'state = "releases/state"', ["line 25", "neither may lie in the other"]),
        ('every = "1d"', 'every = "99999999999999w"', ["line 10", "after the year 9999"]),
        ('every = "1d"', 'every = "1d"\ntimezone = "Factory"', ["line 11", 'not a known zone; use a name']),
        ('every = "1d"', 'every = "1d"\ntimezone = "Berlin"', ["line 11", "Did you mean 'Europe/Berlin'?"]),
        ("bins = 4", "bins = 12.5", ["line 22: column 'age': bins = 12.5: input should be a valid integer"]),
        ("[sink]", '[source]\nkind = "csv"\npath = "x"\ndelimiter = "tab"\n[sink]', [r'one sign, such as ";" or "\t"']),
        ("[sink]", '[source]\nkind = "csv"\npath = "x"\nsep = ";"\n[sink]', ["Did you mean 'delimiter'?"]),
        ("[sink]", '[source]\nkind = "csv"\npath = "x"\nepsilon = 1\n[sink]', ["It belongs in [privacy]."]),
        ('name = "visits"', 'name = "visits"\nepsilon = 1', ["line 2", "no such key here. It belongs in [privacy]."]),
        ('name = "visits"', 'name = "visits"\nbins = 5', ["line 2", "no such key here. It belongs in [[columns]]."]),
        (
            "[sink]",
            '[[columns]]\nname = "d"\ntype = "datetime"\npart = "hour"\ntimezone = "Mars/X"\n[sink]',
            ["line 27", "timezone = 'Mars/X'", "not a known zone"],
        ),
        ('name = "visits"', "name = visits", ["not valid TOML", "line 1", "Texts stand in quotes"]),
        ('every = "1d"', "every = 1d", ["line 10", "Texts stand in quotes"]),
        ('["A", "B"]', "[A, B]", ["line 16", 'Texts stand in quotes: "A", not A']),
        ('["A", "B"]', '["A", b]', ["line 16", "Texts stand in quotes"]),
        ('["A", "B"]', "[\n  élan,\n]", ["line 17", "Texts stand in quotes"]),
        ('["A", "B"]', '["<18", >65]', ["line 16", "Texts stand in quotes"]),
        ('["A", "B"]', "[18-65, 66-99]", ["line 16", "texts stand in quotes, and commas between them"]),
        ('["A", "B"]', '["A" "B"]', ["line 16", "texts stand in quotes, and commas between them"]),
        ('["A", "B"]', '["A", “B”]', ["line 16", "Quotation marks are straight ones"]),
        ('["A", "B"]', "(A, B)", ["line 16", 'A list stands in brackets, as in ["A", "B"]']),
        ('["A", "B"]', "{A, B}", ["line 16", 'A list stands in brackets, as in ["A", "B"]']),
        ('["A", "B"]', '["A", "B"', ["Unclosed array", "A list ends with ]"]),
        ("[clock]", "[clocks]", ["clock: this section is required. Begin it with [clock]", "Did you mean 'clock'?"]),
        ('name = "visits"', 'name = "a"\nname = "b"', ["line 2", ". name is there before. Leave one of them"]),
        ("[sink]", "[clock]\n[sink]", ["line 23", ". [clock] is there before"]),
        ('name = "visits"', "name = “visits”", ['Quotation marks are straight ones, as in "visits"']),
        ('path = "releases"', 'path = "C:\\data\\x"', ["line 25", "write / in a path, or put it in '...'"]),
        ('path = "releases"', 'path = "C:\\users"', ["line 25", "write / in a path, or put it in '...'"]),
        ('name = "visits"', 'name = "visits', ["line 1", "A quotation mark is not closed"]),
        ('name = "visits"', 'name: "visits"', ["line 1", "After a key stands =, not :"]),
        ("bins = 4", "bins = 4\nmissing = False", ["line 23", "Write true or false, in small letters"]),
        ("start = 2026-01-01", "start = 2026-01-01T12:00", ["line 9", "seconds, as in 2026-01-31T12:00:00"]),
        ("start = 2026-01-01", "start = 2026-02-30", ["line 9", "There is no such day"]),
        ("start = 2026-01-01", "start = 01.01.2026", ["line 9", "Dates are written as 2026-01-31"]),
        ("[sink]", '[synthesizer]\nfocus = "age"\n[sink]', ["focus = 'age'", 'write it in brackets, as in ["A", "B"]']),
        ('values = ["A", "B"]', 'values = "codes.txt"', ["in brackets", "`schema init --codebook` drafts a long list"]),
        ("min = 0", 'edges = "0, 18"', ["column 'age': edges = '0, 18'", "brackets, as in [0, 18, 65]"]),
        ("min = 0\nmax = 100\nbins = 4", "edges = [5]", ["column 'age': edges: say where each bin begins, two"]),
        ("bins = 4", "bins = 4\ndecimal = 2", ["column 'age': decimal: there is no", "Did you mean 'decimals'?"]),
        ('type = "category"', 'type = "boolean"', ["values: there is no", 'It belongs to type = "category".']),
        ('type = "category"', 'type = "category"\ndecimals = 2', ['It belongs to type = "number".']),
        ('values = ["A", "B"]', 'categories = ["A", "B"]', ["categories: there is no", "Did you mean 'values'?"]),
        ("[[columns]]", "[[column]]", ["column: there is no such key here. Did you mean 'columns'?"]),
        ('every = "1d"', 'interval = "1d"', ["clock.interval: there is no such key here. Did you mean 'every'?"]),
        ("epsilon = 1.0", "budget = 1.0", ["privacy.budget: there is no such key here. Did you mean 'epsilon'?"]),
        ("[sink]", '[source]\nkind = "csv"\npath = "x"\ndecimal = ";"\n[sink]', ['must be one of ".", ",".']),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_its_fix(old: str, new: str, says: list[str]) -> None:
    text = problem(old, new)
    assert text.startswith("stream.toml")
    for part in says:
        assert part in text, text


def test_a_slip_that_is_not_known_gets_no_hint() -> None:
    assert problem('name = "visits"', 'name "visits"').endswith("(at line 1, column 6)")


@pytest.mark.parametrize("wrong", ['edges = [0, 18]\nmax = "99"', "edges = 5", 'edges = ["0", "18"]'])
def test_what_follows_from_wrong_edges_is_not_said_to_be_missing(wrong: str) -> None:
    assert "required" not in problem("min = 0\nmax = 100\nbins = 4", wrong)


def test_a_list_of_numbers_is_told_once() -> None:
    said = problem('values = ["A", "B"]', f"values = {[*range(1000)]}")
    assert said.endswith(
        "line 16: column 'ward': values.0 = 0: input should be a valid string; write it in quotes, as in \"0\""
    )


def test_all_mistakes_are_told_at_once() -> None:
    broken = GOOD.replace("epsilon = 1.0", "epsilon = -1.0").replace("bins = 4", "bins = 0").replace('"1d"', '"soon"')
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(broken)
    text = str(caught.value)
    assert "epsilon" in text
    assert "bins" in text
    assert "every" in text


def test_wrong_types_do_not_hide_impossible_values() -> None:
    broken = (
        GOOD.replace("epsilon = 1.0", "epsilon = -1.0")
        .replace('every = "1d"', 'every = "soon"')
        .replace('values = ["A", "B"]', 'values = ["A", "A"]')
        .replace("bins = 4", 'bins = "four"')
    )
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(broken)
    for line, key in ((4, "epsilon"), (10, "every"), (13, "ward"), (22, "bins")):
        assert f"line {line}: " in str(caught.value), (key, str(caught.value))
    with pytest.raises(ConfigError, match="columns") as caught:
        StreamConfig.from_toml(broken.partition("[[columns]]")[0])
    assert "epsilon" in str(caught.value)


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "marked.toml").write_text(GOOD, encoding="utf-8-sig")
    assert load(tmp_path / "marked.toml").name == "visits"
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "binary.toml")
    for name in ("visits.csv", "visits.PARQUET", "visits.jsonl.gz"):
        (tmp_path / name).write_bytes(b"at,ward\n2026-01-01,A\n")
        with pytest.raises(ConfigError, match=rf"{name}: these are data.*`synthstream schema init .*{name} > stream"):
            load(tmp_path / name)


def test_chosen_marginals() -> None:
    config = StreamConfig.from_toml(
        GOOD.replace("[sink]", '[synthesizer]\nmarginals = [["age", "ward"], ["ward"]]\n[sink]')
    )
    assert config.workload
    assert config.workload.marginals == ((), (0, 1), (0,))


def test_what_may_change_and_what_may_not() -> None:
    config = StreamConfig.from_toml(GOOD)
    same = StreamConfig.from_toml(GOOD.replace("until = 2026-01-06\n", "").replace('"releases"', '"elsewhere"'))
    assert config.differences(same.public_json()) == []
    other = StreamConfig.from_toml(GOOD.replace("epsilon = 1.0", "epsilon = 2.0").replace('"B"]', '"C"]'))
    assert other.differences(config.public_json()) == [
        'columns.ward.values: was ["A", "B"], is ["A", "C"]',
        "privacy.epsilon: was 1.0, is 2.0",
    ]


AT = 'name = "at"\ntype = "place"\ncoordinates = ["lat", "lon"]\nbounds = [[0, 4], [0, 4]]\nevents = 100_000\n'
PLACE = GOOD.replace("[sink]", f"[[columns]]\n{AT}[sink]")
# What is changed, and what is said of it alone: tables, grids and constraints follow from that.
CHANGES = {
    "a column that is gone": (PLACE, AT, 'name = "old"\ntype = "boolean"\n', ["columns.at", "columns.old"]),
    "bounds of a place": (
        PLACE,
        "[[0, 4]",
        "[[0, 5]",
        ["columns.at.bounds: was [[0.0, 4.0], [0.0, 4.0]], is [[0.0, 5"],
    ),
    "its grids": (
        PLACE,
        "100_000",
        "9_000_000",
        ["columns.at.events or depth: was [1, 2, 3, 4, 5, 6], is [1, 2, 3, 4, 5, 6, 7"],
    ),
    "its budget": (PLACE, "epsilon = 1.0", "epsilon = 9.0", ["privacy.epsilon: was 1.0, is 9.0"]),
    "tables": (
        GOOD,
        "[sink]",
        "[synthesizer]\norder = 1\n[sink]",
        ['synthesizer.marginals: was [[], ["ward"], ["age"], '],
    ),
    "a way of measuring": (
        PLACE,
        "[sink]",
        '[synthesizer]\nmeasure = "epochs"\n[sink]',
        ['synthesizer.measure: was "auto", is "epochs"'],
    ),
    "a long list": (
        GOOD.replace('"B"]', ", ".join(f'"{n}"' for n in range(60)) + "]"),
        '"7"',
        '"x7"',
        ['columns.ward.values: without "7": with "x7"'],
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_differs_is_named_with_its_values_and_not_what_follows(what: str) -> None:
    text, old, new, said = CHANGES[what]
    assert text.count(old) == 1
    found = StreamConfig.from_toml(text.replace(old, new)).differences(StreamConfig.from_toml(text).public_json())
    assert len(found) == len(said)
    assert all(one.startswith(words) for one, words in zip(found, said, strict=True)), found


def one_value_changed(value: Any) -> Iterator[Any]:
    """Copies of JSON, each with another value in one place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in one_value_changed(inner))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in one_value_changed(inner))
    else:
        yield f"not {value}" if value is None or isinstance(value, str) else value + 1


TWICE = PLACE.replace('name = "age"', 'name = "at"').replace("[sink]", f'[[columns]]\n{AT}with = ["ward"]\n[sink]', 1)
TWICE = TWICE.replace(AT, AT.replace('"at"', '"to"').replace('"lat", "lon"', '"to_lat", "to_lon"'), 1)


@pytest.mark.parametrize("text", [GOOD, PLACE, TWICE], ids=["table", "place", "places, and a column named alike"])
def test_no_difference_is_without_words(text: str) -> None:
    public = json.loads(StreamConfig.from_toml(text).public_json())
    assert differences(public, public) == []
    for other in one_value_changed(public):
        assert differences(public, other)
        assert differences(other, public)
    # The chain begins with how settings are written, and 0.0 == -0.0.
    assert differences({"columns.n": {"type": "number", "min": 0.0}}, {"columns.n": {"type": "number", "min": -0.0}})


def test_a_way_of_measuring_that_does_not_fit_the_budget_is_refused_by_name() -> None:
    pure = GOOD.replace("delta = 1e-9", "delta = 0")
    assert pure != GOOD
    with pytest.raises(ConfigError, match='measure = "refresh" adds Gaussian noise'):
        StreamConfig.from_toml(f'{pure}[synthesizer]\nmeasure = "refresh"\n')


@pytest.mark.parametrize("edition", [1, EDITION - 1, EDITION + 1, [EDITION]])
def test_a_stream_of_another_edition_is_refused_in_words(edition: object) -> None:
    config, words = StreamConfig.from_toml(GOOD), f"began with edition {re.escape(str(edition))} "
    facts = {} if edition == 1 else {"edition": edition}
    with pytest.raises(ConfigError, match=f"{words}.* Go on with the version that began it"):
        config.begun_as(facts)
    with pytest.raises(ConfigError, match=words):
        config.begun_as({"edition": EDITION, "cuts": [{"tick": 3, **facts}]})
    assert config.begun_as({"edition": EDITION}) == config


def test_a_chain_begins_with_the_old_names() -> None:
    config = StreamConfig.from_toml(f'{GOOD}[synthesizer]\nmeasure = "always"\nshares = "equal"\n')
    assert '"synthesizer.budget": "equal"' in config.public_json()
    assert config.differences(StreamConfig.from_toml(GOOD).public_json()) == [
        'synthesizer.measure: was "auto", is "always"',
        'synthesizer.shares: was "auto", is "equal"',
    ]


@pytest.mark.parametrize(
    ("kind", "began"),
    [
        *[("refresh", "9c598f6dfa56"), ("epochs", "382917e1f18c"), ("selective", "397120b5015f")],
        *[("hypercube", "5de4e0afae65"), ("points-signed", "402a35e86f83"), ("persons", "8c8163266753")],
        ("places", "28e1ec75ee52"),
    ],
)
def test_the_chain_of_a_running_stream_begins_as_it_did(tmp_path: Path, kind: str, began: str) -> None:
    config = StreamConfig.from_toml(text_of(kind), base=tmp_path)
    assert StreamConfig.from_toml(text_of(kind), base=str(tmp_path)).state == config.state
    assert config.genesis.startswith(began), (
        "The settings say something else, so every running stream of this kind is refused. What a new key brings "
        "stands in StreamConfig.public_json and SynthesizerConfig.public only where the key is said."
    )


def test_a_draft_reads_types_only_and_does_not_load_until_filled_in(tmp_path: Path) -> None:
    frame = pl.DataFrame({"at": [None], 'we"ird': ["SECRET"], "n": [12345], "x": [1.5], "ok": [True]})
    frame = frame.with_columns(pl.col("at").cast(pl.Datetime))
    frame.write_parquet(tmp_path / "trips.parquet")
    text = draft(tmp_path / "trips.parquet")
    assert "SECRET" not in text
    assert "12345" not in text
    with pytest.raises(ConfigError) as caught:
        StreamConfig.from_toml(text)
    assert "epsilon is still TODO-public" in str(caught.value)
    assert "unit is still TODO-public" in str(caught.value)
    assert "column 'n': min is still TODO-public" in str(caught.value)
    filled = (
        text.replace("epsilon = TODO-public", "epsilon = 1.0")
        .replace("\nunit = TODO-public", '\nunit = "event"')
        .replace("start = TODO-public", "start = 2026-01-01")
        .replace("horizon = TODO-public", "horizon = 10")
        .replace("values = [TODO-public]", 'values = ["a"]')
        .replace("min = TODO-public", "min = 0")
        .replace("max = TODO-public", "max = 9")
    )
    config = StreamConfig.from_toml(filled)
    assert config.schema.names == ('we"ird', "n", "x", "ok")
    assert config.clock.column == "at"


def test_a_draft_of_a_csv_reads_the_header(tmp_path: Path) -> None:
    (tmp_path / "trips.csv").write_text("when,zone\n2026-01-01,SECRET\n")
    text = draft(tmp_path / "trips.csv")
    assert 'name = "zone"' in text
    assert "SECRET" not in text
    for name, content in (("x.parquet", b"no"), ("x.txt", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SourceError, match=name):
            draft(tmp_path / name)


def test_a_column_in_braces_is_named_with_its_own_line() -> None:
    """As one in a section of its own is; where braces share a line, by its number."""
    head = 'name = "v"\nstate = "s"\nprivacy = { epsilon = 1.0, delta = 0, unit = "event" }\n'
    head += 'clock = { start = 2026-01-01, every = "1d", horizon = 9 }\n'
    ward, age = (
        '{ name = "ward", type = "boolean" }',
        '{ type = "number", name = \'its "age"\', min = 9, max = 1, bins = 3 }',
    )
    wrong = "min must be below max"
    for columns, says in (
        (f"columns = [  # public\n  # two\n  {ward},\n  {age},\n]", f"line 8: column 'its \"age\"': {wrong}"),
        (f"columns = [{ward}, {age}]", f"line 5: column 'its \"age\"': {wrong}"),
        (
            f"columns = [\n  {ward},\n  {age.replace('min = 9', 'wide = 1')},\n]",
            "line 7: column 'its \"age\"': wide: there",
        ),
        (f"columns = [{ward}, {age.replace('min = 9', 'wide = 1')}]", "line 5: columns.1: wide: there"),
        (
            f"columns = [\n{ward},\n{age.replace('9', 'TODO-public')}]",
            "line 7: column 'its \"age\"' is still TODO-public",
        ),
    ):
        with pytest.raises(ConfigError) as found:
            StreamConfig.from_toml(head + columns)
        assert says in str(found.value)
