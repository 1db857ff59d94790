"""Conditions on rows: what they choose, what they refuse, and that they can do no harm."""

from __future__ import annotations

import re
from datetime import datetime

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from synthstream.errors import SchemaError
from synthstream.schema.comparisons import check_values
from synthstream.schema.conditions import condition

ROWS = pl.DataFrame(
    {
        "zone": ["A", "B", None, "O'Hara"],
        "age": [10, 70, 60, 35],
        "opened": [datetime(2015, 1, 1), datetime(2015, 2, 1), None, datetime(2015, 3, 1)],
        "paid": [True, None, False, True],
        "a b": [1.0, 2.0, 3.0, None],
        "date": ["x", "y", "z", "x"],
    }
)

TEXTS = {"zone": ("North", "South", "O'Hara", "other"), "a b": tuple("012345678")}
RANGES = {"age": (0.0, 99.0), "fare": (0.5, 99.99999999999999), "day": (0.0, 86400.0 * 31), "late": (1.6e12, 1.9e12)}


def chosen(text: str) -> list[int]:
    return ROWS.filter(condition(text, ROWS.schema))["age"].to_list()


@pytest.mark.parametrize(
    ("text", "ages"),
    [
        ("age >= 60", [70, 60]),
        ("zone = 'A'", [10]),
        ('zone == "A"', [10]),
        ('zone != "A"', [70, 35]),
        ("zone IN (\"A\", 'B')", [10, 70]),
        ('zone BETWEEN "A" AND "B"', [10, 70]),
        ("zone = 'O''Hara'", [35]),
        ('zone = "O\'Hara"', [35]),
        ("zone like 'O%' or age = 10", [10, 35]),
        ("lower(zone) = 'b'", [70]),
        ("zone IS NULL", [60]),
        ("NOT (zone = 'A' OR zone = 'B')", [35]),
        ("age BETWEEN 10 AND 40", [10, 35]),
        ("age - 10 > 2 * 20 + 5", [70, 60]),
        ("paid", [10, 35]),
        ("NOT paid", [60]),
        ("paid = true", [10, 35]),
        ('"a b" > 1.5', [70, 60]),
        ("opened >= TIMESTAMP '2015-01-15 00:00:00'", [70, 35]),
        ("opened < DATE '2015-01-15'", [10]),
        ("date = 'x'", [10, 35]),
        ("age > 1e9", []),
    ],
)
def test_rows_that_satisfy_it(text: str, ages: list[int]) -> None:
    assert chosen(text) == ages


NULLS = pl.DataFrame(
    {
        "i": range(6),
        "b": [True, False, None, True, False, None],
        "n": [1, -2, None, 0, 5, 3],
        "x": [1.5, None, -2.0, 0.0, 3.0, 2.0],
        "s": ["A", "b", None, "Ab", "", None],
        "t": [None if day == 3 else datetime(2026, 1, day) for day in range(1, 7)],
    }
)
# Every operator and word of a condition, and how they bind.
SQL = """
b IS TRUE
b IS NOT TRUE
b IS FALSE
b IS NOT FALSE
NOT (b IS TRUE)
NOT (b IS FALSE)
NOT b
b IS NULL
b IS NOT NULL
b = TRUE
b != TRUE
b <> FALSE
b AND n > 0
b OR n > 0
NOT (b AND n > 0)
NOT (b OR n > 0)
n IN (1, 5)
n NOT IN (1, 5)
n BETWEEN 0 AND 3
n NOT BETWEEN 0 AND 3
NOT n BETWEEN 0 AND 3
s LIKE 'A%'
s NOT LIKE 'A%'
s ILIKE 'a%'
s NOT ILIKE 'a%'
LOWER(s) = 'ab'
UPPER(s) = 'AB'
ABS(n) > 1
n + x > 2
n - x < 2
n * x >= 0
n / 2 > 1
n % 2 = 1
n > 0 IS TRUE
n > 0 IS NOT TRUE
n > 0 IS FALSE
n > 0 IS NOT FALSE
n > 0 IS NULL
n > 0 IS NOT NULL
(n > 0 OR b) IS NOT TRUE
NOT n > 0 IS TRUE
n = 1 AND b IS NOT TRUE
s IS NULL OR n = 1
t >= TIMESTAMP '2026-01-03 00:00:00'
t = DATE '2026-01-04'
t BETWEEN DATE '2026-01-02' AND DATE '2026-01-05'
s IN ('A', '')
s NOT IN ('A', '')
s = ''
s < 'b'
n == 1
n <= 1
NOT NOT b
b = (n > 0)
(b IS NOT TRUE) = (n > 0)
s LIKE '_b'
s LIKE '%'
n BETWEEN x AND 3
-n > 1
x / n > 0
x < 1e1
n IN (1) IS NOT TRUE
s LIKE 'A%' IS NOT TRUE
n BETWEEN 0 AND 3 IS NOT TRUE
b IS NULL IS TRUE
b IS NULL IS NOT TRUE
FALSE OR b IS NOT TRUE
b IS NOT TRUE IS NOT TRUE
b IS TRUE IS FALSE
-7 % 4 = n
n % 3 = 1
n / 2 = 2.5
ABS(x) IN (2, 3)
b IN (TRUE)
b BETWEEN FALSE AND TRUE
n IN (1, 2.5)
n > x IS NOT FALSE
TRUE AND b
n - 1 - 1 = 1
n / 2 * 2 = n
2 - n * 2 < 0
NOT b = TRUE
NOT b IS NULL
b = TRUE IS FALSE
"""


def test_conditions_choose_what_another_database_chooses_among_nulls_too() -> None:
    """Each also under NOT and IS NOT TRUE, which tell null from false: hundreds of queries, so it takes a second."""
    conditions = [line for line in SQL.splitlines() if line]
    conditions += [form.format(one) for one in conditions for form in ("NOT ({})", "({}) IS NOT TRUE", "({}) IS FALSE")]
    with duckdb.connect() as other:
        other.register("rows", NULLS.to_arrow())
        expected = {
            one: other.execute(f"SELECT i FROM rows WHERE {one.replace('==', '=')} ORDER BY i").fetchall()  # noqa: S608
            for one in conditions
        }
    found = {one: NULLS.filter(condition(one, NULLS.schema)).select("i").rows() for one in conditions}
    assert {one: rows for one, rows in found.items() if rows != expected[one]} == {}
    assert len(conditions) > 300
    with pytest.raises(SchemaError, match="no condition"):
        condition("n IS TRUE", NULLS.schema)
    words = set(re.findall(r"[A-Z]{2,}|[-+*/%=<>!]+", SQL))
    assert words >= {"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "NULL", "TRUE", "FALSE", "LOWER"}
    assert words >= {"UPPER", "ABS", "DATE", "TIMESTAMP", "=", "==", "!=", "<>", "<", "<=", ">", ">=", *"+-*/%"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agee > 60", "'agee' is not a column. Did you mean 'age'. Columns are: zone, age, opened"),
        ("AGE > 60", "Did you mean 'age'?"),
        ("zone = A", "'A' is not a column.*A text takes single quotes: 'A'"),
        ('"a c" > 1', "'a c' is not a column. Did you mean 'a b'?.*Double quotes hold a column"),
        ("zone > 5", r"a text is compared with a number.*zone \(text\), age \(number\), opened \(time\)"),
        ("age = '70'", "Texts stand in single quotes, numbers in none"),
        ("age = 'Friday'", r"numbers in none\. Parts of the calendar are numbers: Monday is 1, and Friday 5\. Columns"),
        ("age IN ('mon', 'tue')", r"Parts of the calendar are numbers: Monday is 1\. "),
        ("age = 'March'", r"January is 1, and March 3\. "),
        ("zone IN (1, 2)", "a text is compared with a number"),
        ("age LIKE '7%'", "take texts"),
        ("opened > '2015-01-15'", "Say DATE '2026-01-31', or TIMESTAMP '2026-01-31 12:00:00'"),
        ("COUNT(*) > 1", "one row at a time, without sums or counts"),
        ("age > AVG(age)", "AVG.*there is no such function here"),
        ("age = 60 OR 70", "OR stand between conditions, as in age = 1 OR age = 70"),
        ("zone = ('A' OR 'B')", "as in zone = 'A' OR zone = 'B'"),
        ("60 <= age < 80", "two comparisons stand in a row. Say AND, as in 3 <= age AND age < 6"),
        ("(age > 1 AND (age) = 70 = 70)", "two comparisons stand in a row"),
        ("3 < age BETWEEN 0 AND 1", "two comparisons stand in a row"),
        ("age between 1 and 70 < 3", "two comparisons stand in a row"),
        ("age IN (1, 70) < 3", "two comparisons stand in a row"),
        ("age NOT IN (1, 70) = 0", "two comparisons stand in a row"),
        ("age IS NULL < 3", "two comparisons stand in a row"),
        ("zone = NULL", "a value is never equal to NULL, nor unequal. Say IS NULL, or IS NOT NULL"),
        ("zone NOT IN ('A', NULL)", "Say IS NULL"),
        ("age", "no condition"),
        ("1", "no condition"),
        ("TRUE", "no condition"),
        ("NOT zone", "NOT stands before a condition"),
        ("NOT opened", "NOT stands before a condition"),
        ("NOT paid age", "no condition"),  # in SQL the second one would be a name for the first
        ("", "is empty"),
        (
            "'a b' = 1",
            "single quotes is a text: 'a b'. A column's name .* takes double quotes: \"a b\". Columns are: a b",
        ),
        ("NOT 'A B' = 1", 'takes double quotes: "a b"'),
        ("'age' > 1", "'age'. The column is age, without quotes"),
        ("opened >= 2015-01-15", "opened >= 2015-01-15.: a time is compared with a number. Say DATE '2026-01-31'"),
        ("2015-01-15 <= opened", "a time is compared with a number"),
        ("opened NOT BETWEEN 2015-01-15 AND 2015-02-15", "a time is compared with a number"),
        ("opened IN (2015-01-15)", "a time is compared with a number"),
        ("opened > DATE '15.01.2015'", "a date is written like DATE '2026-01-31'"),
        ("opened > TIMESTAMP 'noon'", "a time is written like TIMESTAMP '2026-01-31 12:00:00'"),
        ("age >", "not complete"),
        ("age > 1,5", "1,5.: a number has a point, as in 52\\.3, and a list stands in brackets"),
        ("(age > 1", "brackets do not match"),
        ("age > 10; DROP TABLE rows", "cannot be read from '; DROP TABLE"),
        ("zone = 'A", "cannot be read from"),
        ("age IN (SELECT 1)", "give the condition alone"),
        ("SELECT * FROM rows", "give the condition alone"),
        ("age > 1 " * 2000, "longer than"),
    ],
)
def test_mistakes_are_explained(text: str, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        chosen(text)


@pytest.mark.parametrize(
    "text",
    [
        "zone = read_csv('/etc/passwd')",
        "age > (SELECT MAX(age) FROM read_parquet('state/store.db'))",
        "EXISTS (SELECT 1)",
        "age > 1 UNION SELECT 1",
        "CAST(zone AS INT) > 1",
        "zone = getenv('HOME')",
        "REPEAT(zone, 1000000000) = 'x'",
        "age > SUM(age) OVER (PARTITION BY zone)",
        "age > 1 -- comment",
        "age > 1 /* comment */",
        "__import__('os').system('true')",
        "zone ~ '(a+)+$'",
    ],
)
def test_what_could_do_harm_is_not_read_at_all(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(sql: str) -> pl.Expr:
        raise AssertionError(f"handed on: {sql}")

    monkeypatch.setattr(pl, "sql_expr", never)
    with pytest.raises(SchemaError):
        condition(text, ROWS.schema)


WIDE = pl.Schema({f"column {i:02}": pl.Int64() for i in range(30)})


def test_a_name_of_two_words_without_quotes() -> None:
    with pytest.raises(SchemaError, match=r"Did you mean 'home district'.*double quotes: \"home district\""):
        condition("District = 1", {"home district": pl.Int64()})


def test_few_columns_are_named_and_those_of_the_condition_first() -> None:
    with pytest.raises(SchemaError, match=r"Columns are: column 29 \(number\), column 00 .* and 24 more$") as caught:
        condition("\"column 29\" LIKE 'x'", WIDE)
    assert "column 05" not in str(caught.value)
    with pytest.raises(SchemaError, match=r"column 05 and 24 more\.") as caught:
        condition("zone = 'A'", WIDE)
    assert "column 06" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "zone = 'Nroth'",
            "'Nroth' is none of the values of zone. Did you mean 'North.. Its values are North, South, O'H",
        ),
        ("zone IN ('North', 'south')", "'south' is none of the values of zone. Did you mean 'South'"),
        ("zone NOT IN ('Q')", "'Q' is none of the values of zone. Its values are"),
        ("age > 1 AND 'Q' != zone", "'Q' is none"),
        ("zone = 'missing'", "'missing' is none of the values of zone. Where it is missing: \"zone\" IS NULL."),
        ("zone = 'zone'", "'zone' is none"),
        (
            "\"a b\" = 'O''Hara'",
            '"O\'Hara" is none of the values of a b. Its values are 0, 1, 2, 3, 4, 5 and 3 more; a table',
        ),
        ("age = 600", "age = 600: no row can satisfy it. age goes from 0 to 99"),
        ("age = -1", "age = -1: no row can satisfy it. age goes from 0 to 99"),
        ("zone = 'North' AND age > 100", "age > 100: no row"),
        ("late < DATE '2020-01-01'", "late < '2020-01-01 00:00:00': no row can satisfy it. late goes from 16"),
        ("age < -0.5", "age < -0.5: no row"),
        ("100 <= age", "age >= 100: no row"),
        ("age > 99", "age > 99: no row"),
        ("age < 0", "age < 0: no row"),
        ("fare >= 100", "fare >= 100: no row can satisfy it. fare goes from 0.5 to below 100"),
        ("age BETWEEN 200 AND 300", "age >= 200: no row"),
        ("age BETWEEN 30 AND 20", "age above 30 and below 20: no row can satisfy it"),
        ("age > 30 AND zone = 'North' AND 20 > age", "age above 30 and below 20: no row"),
        (
            "day = TIMESTAMP '1970-01-31 09:00:00'",
            "day = .* lies at a single moment. For a day say day >= DATE '1970-01-31' AND day < DATE '1970-02-01'",
        ),
        (
            "day < TIMESTAMP '1969-12-31 12:00:00'",
            "day < '1969-12-31 12:00:00': no row .* from '1970-01-01 00:00:00' to",
        ),
        ("day >= DATE '2026-01-01'", "day >= '2026-01-01 00:00:00': no row"),
    ],
)
def test_what_a_column_cannot_hold_is_refused(text: str, says: str) -> None:
    with pytest.raises(SchemaError, match="^where: " + says.replace("(", r"\(")):
        check_values(text, TEXTS, RANGES)


@pytest.mark.parametrize(
    "text",
    [
        "zone = 'North' OR zone == \"O'Hara\" OR 'South' = zone",
        'zone = "a b" AND zone = "zone" AND zone = LOWER(\'Q\')',  # another column; what is no plain text
        "LOWER(zone) = 'north' OR zone LIKE 'Q%' OR zone > 'Q'",
        "name = 'anything' AND paid = 7",  # nothing is known of these
        "age >= 0 AND age <= 99 AND age >= 99 AND age >= -5 AND -5 < age AND age < 1e9",
        "age != 999 AND age NOT IN (999, -1) AND age NOT BETWEEN 200 AND 300 AND age BETWEEN 50 AND 300",
        "age - 100 = 600 OR ABS(age) = 600",
        "age IN (5, -1)",
        "age > 100 OR zone = 'North'",  # not every row must be so
        "NOT age > 100",
        "day >= DATE '1970-01-31' AND day < DATE '2026-01-01' AND day > DATE 'no day'",
        "zone IS NULL OR age IS NOT NULL OR NOT age = 5",
    ],
)
def test_what_a_column_may_hold_is_not_refused(text: str) -> None:
    check_values(text, TEXTS, RANGES)


PARTS = [
    "age",
    "zone",
    '"a b"',
    "'A'",
    '"A"',
    "5",
    "=",
    "==",
    ">",
    "(",
    ")",
    "AND",
    "NOT",
    "IN",
    ",",
    "NULL",
    "-",
    "LIKE",
]


@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PARTS), max_size=12).map(" ".join)))
def test_any_text_gives_rows_or_an_error_of_ours(text: str) -> None:
    try:
        found = ROWS.filter(condition(text, ROWS.schema))
    except SchemaError:
        return
    assert set(found["age"]) <= set(ROWS["age"])
