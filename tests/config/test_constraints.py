"""[[constraints]]: what they come to, and what a mistake is told."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from synthstream.config.config import StreamConfig
from synthstream.errors import ConfigError
from tests.support.configs import category, number, stream_toml

HEAD = stream_toml(
    category("zip", "1", "2", "3"),
    category("city", "A", "B") + 'missing = "B"\n',
    '[[columns]]\nname = "urban"\ntype = "boolean"\nmissing = false\n',
    number("start", "bins = 5", kind="integer", high=9),
    number("end", "bins = 5", kind="integer", high=9),
    '[[columns]]\nname = "at"\ntype = "datetime"\npart = "hour"\n',
    column=None,
    until=None,
)
ALLOWED = '\n[[constraints]]\ncolumns = ["zip", "city"]\nallowed = [[1, "A"], ["2", "A"], ["3", "B"], ["3", "A"]]\n'
FORBIDDEN = '\n[[constraints]]\ncolumns = ["zip", "city"]\nforbidden = [[1, "B"], ["2", "B"]]\n'
LOOKUP = '\n[[constraints]]\ncolumn = "urban"\nfunction_of = "city"\nlookup = { A = true, B = "false" }\n'
ORDER = '\n[[constraints]]\nless_or_equal = ["start", "end"]\n'


def read(*sections: str, base: Path | None = None) -> StreamConfig:
    return StreamConfig.from_toml(HEAD + "".join(sections), base=base, origin="stream.toml")


def combinations(config: StreamConfig) -> set[tuple[str, ...]]:
    (group,) = config.constraints.groups
    labels = [config.schema.columns[c].labels for c in group.columns]
    return {tuple(names[code] for names, code in zip(labels, row, strict=True)) for row in group.combinations.tolist()}


LISTED = {("1", "A"), ("2", "A"), ("3", "A"), ("3", "B")}
CITIES = ("A", "B", "other")


def test_own_cells_are_allowed_with_anything_unless_they_are_listed() -> None:
    own = {*product(("other", "missing"), CITIES), *product(("1", "2", "3"), ("other",))}
    assert combinations(read(ALLOWED)) == LISTED | own
    listed = read(ALLOWED.replace("[1,", '["other", "B"], [1,'))
    assert combinations(listed) == (LISTED | own) - {("other", "A")}


def test_what_is_forbidden_leaves_all_else(tmp_path: Path) -> None:
    assert read(FORBIDDEN).constraints == read(ALLOWED).constraints
    (tmp_path / "no.csv").write_text("city,zip\nB,1\nB,2\n")
    from_file = read(FORBIDDEN.replace('[[1, "B"], ["2", "B"]]', '"no.csv"'), base=tmp_path)
    assert from_file.constraints == read(ALLOWED).constraints
    readers = StreamConfig.from_toml(from_file.settings, base=tmp_path / "elsewhere")
    assert readers.constraints == from_file.constraints


def test_of_three_columns_an_own_cell_leaves_the_others_together() -> None:
    text = (
        ALLOWED.replace('"city"]', '"city", "urban"]').replace('"]', '", false]').replace('"urban", false]', '"urban"]')
    )
    config = read(text.replace('["3", "B", false]', '["3", "B", true]'))
    found = combinations(config)
    assert ("missing", "B", "true") in found
    assert ("missing", "B", "false") not in found
    assert config.constraints.groups[0].columns == (0, 1, 2)


def test_constraints_that_share_a_column_are_one_group() -> None:
    found = combinations(read(ALLOWED, LOOKUP))
    assert {row for row in found if "other" not in row and "missing" not in row} == {
        ("1", "A", "true"),
        ("2", "A", "true"),
        ("3", "A", "true"),
        ("3", "B", "false"),
    }
    assert [group.columns for group in read(ALLOWED, ORDER).constraints.groups] == [(0, 1), (3, 4)]


def test_bins_in_which_an_order_is_possible() -> None:
    config = read(ORDER)
    (group,) = config.constraints.groups
    assert {(a, b) for a, b in group.combinations.tolist() if a < 5 and b < 5} == {
        (a, b) for a in range(5) for b in range(5) if a <= b
    }
    assert config.schema.in_order == ((3, 4),)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("note,city,zip\nx,A,1\ny,A,2\n\nz,B,3\nz,A,3\n")
    from_file = read('\n[[constraints]]\ncolumns = ["zip", "city"]\nallowed = "pairs.csv"\n', base=tmp_path)
    assert combinations(from_file) == combinations(read(ALLOWED))
    (tmp_path / "of.csv").write_text("urban,city\ntrue,A\nfalse,B\n")
    section = LOOKUP.replace('{ A = true, B = "false" }', '"of.csv"')
    assert read(section, base=tmp_path).constraints == read(LOOKUP).constraints


def test_they_are_pinned_and_nothing_else_changes() -> None:
    plain, held = read(), read(ALLOWED)
    assert "constraints" not in plain.public_json()
    assert held.differences(plain.public_json()) == ["constraints: was not set"]
    assert held.differences(read(ALLOWED.replace(', ["3", "A"]', "")).public_json()) == ["constraints"]
    assert held.schema.hash == plain.schema.hash


DATES = """
[[columns]]
name = "day"
type = "datetime"
from = "at"
min = 2026-01-01
max = 2026-01-15
bins = 14

[[columns]]
name = "weekday"
type = "datetime"
from = "at"
part = "weekday"
"""
MONDAY = '\n[[constraints]]\ncolumns = ["day", "weekday"]\nforbidden = [["2026-01-05T00:00:00", WEEKDAY]]\n'


def test_columns_of_one_cell_are_tied_and_that_is_no_setting_of_its_own() -> None:
    """A running stream goes on as it was, and is not asked for a constraint that nobody wrote."""
    plain = read(DATES)
    ((group,), said) = plain.constraints.groups, plain.constraints.said
    assert [plain.schema.names[c] for c in group.columns] == ["day", "weekday"]
    assert ("2026-01-05T00:00:00", "1") in combinations(plain)
    assert ("2026-01-05T00:00:00", "2") not in combinations(plain)
    assert said == ()
    assert plain.constraints.words(plain.schema).endswith(
        "day, weekday (of one cell) are allowed, other and missing included."
    )
    assert "constraints" not in plain.public_json()


@pytest.mark.parametrize(("weekday", "number"), [("2", 1), ("1", 0)], ids=["agrees", "contradicts"])
def test_a_constraint_of_columns_of_one_cell(weekday: str, number: int) -> None:
    """Where it leaves a day without a weekday, it holds alone: a stream that runs with it must go on."""
    found = read(DATES, MONDAY.replace("WEEKDAY", weekday))
    assert len(found.constraints.said) == 1
    ((group,), (said,)) = found.constraints.groups, found.constraints.said
    assert (group.number < said.number) == number
    assert (group == said) == (not number)
    assert "constraints" in found.public_json()


def test_a_constraint_unties_only_columns_that_it_contradicts() -> None:
    """Ages in two kinds of bins still go together."""
    ages = '\n[[columns]]\nname = "{}"\ntype = "number"\nfrom = "age"\nmin = 0\nmax = 100\nbins = {}\n'
    found = read(DATES + ages.format("decade", 10) + ages.format("half", 2), MONDAY.replace("WEEKDAY", "1"))
    names = [[found.schema.names[c] for c in group.columns] for group in found.constraints.groups]
    assert names == [["day", "weekday"], ["decade", "half"]]
    assert [[found.schema.names[c] for c in columns] for columns in found.constraints.untied] == [["day", "weekday"]]
    assert read(DATES).constraints.untied == ()


@pytest.mark.parametrize(
    ("section", "old", "new", "says"),
    [
        (ALLOWED, '"zip"', '"zpi"', ["constraints.0", "in columns, 'zpi' is not a column. Did you mean 'zip'?"]),
        (ALLOWED, '"3", "B"', '"4", "B"', ["allowed: '4' is not a value of 'zip'"]),
        (ALLOWED, '"3", "B"', '"4", "B"', ["Its values are 1, 2, 3"]),
        (ALLOWED, '["2", "A"], ', "", ["'2' of 'zip' could never be published", "no allowed combination"]),
        (ALLOWED, '["2", "A"]', '["2"]', ["must be a value for each of 'zip', 'city'"]),
        (ALLOWED, '"city"]', '"zip"]', ["'zip' is named twice"]),
        (ALLOWED, '"city"]', '"city", "urban", "start"]', ["constraints.0.columns: name two columns or three"]),
        (ALLOWED, "allowed = ", "lookup = ", ["lookup", 'use { y = "x" }, or a CSV file']),
        (ALLOWED, "columns = ", "colums = ", ["there is no such key", "Did you mean 'columns'?"]),
        (ALLOWED, 'columns = ["zip", "city"]\n', "", ["say columns and allowed, or column, function_of and lookup"]),
        (ALLOWED, '[[1, "A"], ["2", "A"], ["3", "B"], ["3", "A"]]', '"no.csv"', ["allowed", "no.csv: No such file"]),
        (ALLOWED, '[[1, "A"], ["2", "A"], ["3", "B"], ["3", "A"]]', "[]", ["lists nothing"]),
        (FORBIDDEN, '[1, "B"]', '["other", "B"]', ["forbidden: other and missing say nothing of a column"]),
        (FORBIDDEN, '"2"', "1], [1", ["must be a value for each"]),
        (FORBIDDEN, '["2", "B"]', '[1, "A"]', ["'1' of 'zip' could never be published", "Forbid fewer of its"]),
        (FORBIDDEN, "forbidden", "allowed = []\nforbidden", ["say columns and allowed, or"]),
        (LOOKUP, ', B = "false"', "", ["'B' of 'city' could never be published"]),
        (LOOKUP, 'B = "false"', "B = true", ["'false' of 'urban' could never be published: nothing maps to it"]),
        (ORDER, '"start"', '"zip"', ["'zip' has no order"]),
        (ORDER, '"end"', '"at"', ["'start' and 'at' cannot be compared"]),
        (
            ORDER,
            '"start", "end"]',
            '"start", "end"]\n[[constraints]]\nless_or_equal = ["end", "start"]',
            ["at most itself"],
        ),
        (
            ALLOWED,
            "\n[[constraints]]",
            '\n[[constraints]]\ncolumns = ["zip", "city"]\nallowed = [[1, "B"], [2, "B"], [3, "B"], [3, "A"]]\n'
            "[[constraints]]",
            ["'1' of 'zip' could never be published: together they leave no combination of 'zip', 'city' for it"],
        ),
        (
            ALLOWED,
            "\n[[constraints]]",
            '\n[synthesizer]\nkind = "selective"\npicks = 3\n[[constraints]]',
            ['belong to kind = "table"'],
        ),
        (ALLOWED, "[[constraints]]", "[constraints]", ["Begin it with [[constraints]], in double brackets"]),
    ],
)  # fmt: skip
def test_what_a_mistake_is_told(section: str, old: str, new: str, says: list[str]) -> None:
    assert old in section
    with pytest.raises(ConfigError) as caught:
        read(section.replace(old, new))
    for words in says:
        assert words in str(caught.value)


def test_constraints_that_contradict_each_other() -> None:
    cycle = [
        ("zip", "city", [(1, "A"), (2, "A"), (3, "B")]),
        ("zip", "urban", [(1, "false"), (2, "false"), (3, "true")]),
    ]
    text = ""
    for a, b, rows in cycle:
        listed = ", ".join(f'["{x}", "{y}"]' for x, y in rows)
        text += f'\n[[constraints]]\ncolumns = ["{a}", "{b}"]\nallowed = [{listed}]\n'
    with pytest.raises(ConfigError, match="together they leave no combination of 'zip', 'city', 'urban'"):
        read(text, LOOKUP)


def test_too_many_combinations() -> None:
    bins = HEAD.replace("max = 9\nbins = 5", "max = 999\nbins = 1000")
    with pytest.raises(ConfigError, match=r"constraints: .* allowed combinations are too many; at most 100,000"):
        StreamConfig.from_toml(bins + ORDER)
