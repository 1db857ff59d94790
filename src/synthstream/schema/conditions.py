"""A condition on synthetic rows, as people write it: ``age >= 60 AND zone = 'A'``. Read, never executed.

Every word must be a column, or one of a short list; so a condition can neither name a file or a function that reads
one, nor a table. What is left is handed to polars as an SQL expression.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from synthstream.errors import SchemaError

TIMES = ("DATE", "TIMESTAMP")
_LONGEST = 10_000  # characters
_MOST = 500  # words and signs: long chains take polars minutes
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![^\W\d]))
    | (?P<word>[^\W\d]\w*)
    | (?P<sign><=|>=|==|!=|<>|[=<>+\-*/%(),])
    )""",
    re.VERBOSE,
)

_WORDS = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "NULL", "TRUE", "FALSE")
_FUNCTIONS = ("LOWER", "UPPER", "ABS")
_SERVED = ", ".join((*_WORDS, *TIMES, *_FUNCTIONS))

# After these, what stands in double quotes and is no column is a text: zone == "A", as in other languages.
_BEFORE_A_TEXT = ("=", "!=", "<>", "<", ">", "<=", ">=", "LIKE", "ILIKE", "IN (", ",", "BETWEEN", "DATE", "TIMESTAMP")

# A NOT before one of these belongs to it, and not to all that follows.
_AFTER_NOT = (["IN"], ["LIKE"], ["ILIKE"], ["BETWEEN"])

# Signs of common mistakes in what polars says, and how to mend them.
_MISTAKES = {
    "numeric type": "a text is compared with a number. Texts stand in single quotes, numbers in none",
    "is_in": "a text is compared with a number. Texts stand in single quotes, numbers in none",
    "expected String": "LIKE, LOWER and UPPER take texts",
    "to a string value": "a time is compared with a text. Say DATE '2026-01-31', or TIMESTAMP '2026-01-31 12:00:00'",
    "invalid DATE": "a date is written like DATE '2026-01-31'",
    "invalid TIMESTAMP": "a time is written like TIMESTAMP '2026-01-31 12:00:00'",
    "on Boolean and": "AND and OR stand between conditions, as in age = 1 OR age = 70",
    "`bitor` operation": "AND and OR stand between conditions, as in zone = 'A' OR zone = 'B'",
    "token ','": "a number has a point, as in 52.3, and a list stands in brackets, as in zone IN ('A', 'B')",
    "unable to parse": "it is not complete, or brackets do not match",
    "to Boolean not supported": "NOT stands before a condition, as in NOT (age >= 60)",
    "must be of type `Boolean`": "it is no condition. Compare a column with something, as in age >= 60",
}

# What people call weekdays and months, from 1.
_NAMES = (
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    [
        *("January", "February", "March", "April", "May", "June"),
        *("July", "August", "September", "October", "November", "December"),
    ],
)

_COMPARISONS = ("=", "==", "!=", "<>", "<", ">", "<=", ">=", "BETWEEN", "IN", "LIKE", "ILIKE")
_SAME = {"==": "="}


class Token(NamedTuple):
    """One of a condition: its kind, which is a group of the expression above, and how it is written."""

    kind: str
    text: str


def tokenised(text: str) -> list[Token]:
    """The words, names, numbers, texts and signs of a condition, in order.

    Raises:
        SchemaError: it is empty or too long, or holds what is none of these.
        TypeError: it is no text.
    """
    if not isinstance(text, str):
        raise TypeError(f'where: a condition is a text, as in "age >= 60", not {type(text).__name__}')
    found, place = [], 0
    text = text.rstrip()
    if len(text) > _LONGEST:
        raise SchemaError(f"where: is longer than {_LONGEST:,} characters")
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise SchemaError(
                f"where: {text!r} cannot be read from {text[place:].strip()[:20]!r} on. Write it like age >= 60 AND "
                "zone = 'A', texts in single quotes."
            )
        found.append(Token(match.lastgroup, match[match.lastgroup]))
        place = match.end()
    if len(found) > _MOST:
        raise SchemaError(f"where: has more than {_MOST} words and signs")
    if not found:
        raise SchemaError("where: is empty; write it like age >= 60 AND zone = 'A'")
    return found


def is_column(token: Token, columns: Sequence[str]) -> bool:
    """Whether it is the name of one of these columns."""
    return token.kind in ("word", "name") and unquoted(token) in columns


def unquoted(token: Token) -> str:
    """What it says, without quotes."""
    if token.kind not in ("text", "name"):
        return token.text
    return token.text[1:-1].replace(token.text[0] * 2, token.text[0])


def quoted(name: str) -> str:
    """A column's name as a condition may always write it."""
    return '"' + name.replace('"', '""') + '"'


def first(names: Sequence[str], most: int = 6) -> str:
    """The first few columns or values, and how many more there are, for a message."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def condition(text: str, schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """The polars expression of a condition.

    SQL: ``= != < <= > >= AND OR NOT IN BETWEEN LIKE IS NULL``, arithmetic, ``LOWER``, ``UPPER``, ``ABS``, times as
    ``TIMESTAMP '2026-01-31 12:00:00'``. Texts stand in single quotes. Names of columns that hold more than letters and
    digits stand in double quotes. ``==`` and texts in double quotes are understood, where they cannot mean a column.

    Args:
        schema: names and types of the columns.

    Raises:
        SchemaError: a column does not exist, types do not fit, or it is no condition on single rows.

    Example:
        >>> rows = pl.DataFrame({"zone": ["A", "B"], "age": [70, 80]})
        >>> rows.filter(condition('age >= 60 AND zone == "A"', rows.schema)).rows()
        [('A', 70)]
    """
    tokens = tokenised(text)
    _refuse_chains(tokens, text)
    _refuse_numbers_as_times(tokens, [name for name, kind in schema.items() if kind.is_temporal()], text)
    sql = " ".join(_sql(tokens, tuple(schema), text))
    try:
        expression = pl.sql_expr(sql)
        # Some mistakes show in a row alone: polars checks no casts where there are none.
        one = pl.DataFrame({name: [""] if kind == pl.String else [0] for name, kind in schema.items()})
        one = one.cast(pl.Schema(schema), strict=False)
        kind = one.lazy().select(expression).collect_schema().dtypes()
        one.filter(expression)
    except pl.exceptions.PolarsError as error:
        why = next((why for sign, why in _MISTAKES.items() if sign in str(error)), str(error).partition("\n")[0])
        said = f"{why}.{_in_numbers(tokens)}{in_single_quotes(text, tuple(schema))}"
        raise SchemaError(f"where: {text!r}: {said} Columns are: {_described(schema, text)}") from None
    renamed = not expression.meta.eq(expression.meta.undo_aliases())  # two columns in a row: SQL names one by the other
    if kind != [pl.Boolean] or not expression.meta.root_names() or renamed:
        how = in_single_quotes(text, tuple(schema)) or " Compare a column with something, as in age >= 60."
        raise SchemaError(f"where: {text!r} is no condition on a row.{how} Columns are: {_described(schema, text)}")
    return expression


def _in_numbers(tokens: Sequence[Token]) -> str:
    """Advice, if a text is the name of a weekday or a month: columns that hold these have numbers.

    Example:
        >>> _in_numbers(tokenised("weekday = 'Friday'"))
        ' Parts of the calendar are numbers: Monday is 1, and Friday 5.'
    """
    for said in (unquoted(token).casefold() for token in tokens if token.kind == "text"):
        for names in _NAMES:
            i = next((i for i, name in enumerate(names) if said in (name.casefold(), name[:3].casefold())), None)
            if i is not None:
                more = f", and {names[i]} {i + 1}" if i else ""
                return f" Parts of the calendar are numbers: {names[0]} is 1{more}."
    return ""


def _refuse_chains(tokens: Sequence[Token], text: str) -> None:
    """Raise ``SchemaError`` for ``3 <= age < 6``: SQL reads (3 <= age) < 6, and true is below 6, as is false."""
    last = [""]  # comparison since AND or OR, by open bracket
    for token in tokens:
        word = token.text.upper()
        if word in _COMPARISONS and last[-1]:
            raise SchemaError(
                f"where: {text!r}: two comparisons stand in a row. Say AND, as in 3 <= age AND age < 6, or put what is "
                "compared in brackets."
            )
        if word == "(":
            last.append("")
        elif word == ")":
            last = last[:-1] or [""]
        elif word in (",", "AND", "OR"):
            last[-1] = word if last[-1] == "BETWEEN" else ""  # its own AND ends no comparison
        elif word in (*_COMPARISONS, "IS"):
            last[-1] = word


def _refuse_numbers_as_times(tokens: Sequence[Token], times: Sequence[str], text: str) -> None:
    """Raise ``SchemaError`` for ``day >= 2026-03-15``: SQL subtracts, and takes 2008 for a moment."""
    for place, token in enumerate(tokens):
        if is_column(token, times):
            after = [one for one in tokens[place + 1 : place + 5] if one.text.upper() not in ("NOT", "(", "-")]
            beside = after[1:2] if after and after[0].text.upper() in _COMPARISONS else []
            if place > 1 and tokens[place - 1].text in _COMPARISONS:
                beside.append(tokens[place - 2])
            if any(one.kind == "number" for one in beside):
                raise SchemaError(
                    f"where: {text!r}: a time is compared with a number. Say DATE '2026-01-31', or TIMESTAMP "
                    "'2026-01-31 12:00:00'."
                )


def in_single_quotes(text: str, columns: Sequence[str]) -> str:
    """Advice, if a text stands where a column should, and is called nearly as one."""
    folded, before = {column.casefold(): column for column in columns}, list[str]()
    for token in tokenised(text):
        near = difflib.get_close_matches(unquoted(token).casefold(), folded, n=1, cutoff=0.8)
        if token.kind == "text" and near and not _awaits_a_text(before):
            return f" What stands in single quotes is a text: {token.text}. {_as_column(folded[near[0]])}"
        before.append(_SAME.get(token.text, token.text.upper()))
    return ""


def _as_column(name: str) -> str:
    if name.isidentifier():
        return f"The column is {name}, without quotes."
    return f"A column's name that is more than one word takes double quotes: {quoted(name)}."


def _sql(tokens: Sequence[Token], columns: Sequence[str], text: str) -> list[str]:
    """The tokens again, each column in double quotes and each text in single ones."""
    out: list[str] = []
    for token, following in zip(tokens, [*tokens[1:], Token("", "")], strict=True):
        if token.kind == "name":
            name = unquoted(token)
            if name not in columns and not _awaits_a_text(out):
                raise SchemaError(
                    f"where: {unknown(name, columns)} Double quotes hold a column; texts take single ones."
                )
            out.append(quoted(name) if name in columns else "'" + name.replace("'", "''") + "'")
        elif token.kind == "word":
            out.append(_word(token.text, following, columns, text))
            if out[-1] == "NULL" and out[-2:-1] != ["IS"] and out[-3:-1] != ["IS", "NOT"]:
                raise SchemaError(
                    f"where: {text!r}: a value is never equal to NULL, nor unequal. Say IS NULL, or IS NOT NULL."
                )
            out = _truth_mended(out)
        else:
            out.append(_SAME.get(token.text, token.text))
    return out


def _truth_mended(out: list[str]) -> list[str]:
    """If ``IS [NOT] TRUE`` or ``FALSE`` was just read, the same in other words: polars makes null of it where it asks
    about null.
    """
    is_not, of_truth = out[-3:-1] == ["IS", "NOT"], out[-1] == "TRUE"
    if not (is_not or out[-2:-1] == ["IS"]) or out[-1] not in ("TRUE", "FALSE"):
        return out
    operand = out[: -3 if is_not else -2]
    start = _operand(operand)
    of_null = "FALSE" if of_truth else "TRUE"  # counts as the other one
    turned = ["NOT"] if is_not == of_truth else []
    return [*operand[:start], "(", *turned, "COALESCE", "(", "(", *operand[start:], ")", ",", of_null, ")", ")"]


def _operand(before: Sequence[str]) -> int:
    """Where that begins which a following IS asks about: after the last bracket, comma, AND, OR or NOT around it."""
    starts, between = [0], [False]
    for place, part in enumerate(before):
        infix = before[place - 1 : place] == ["IS"] or before[place + 1 : place + 2] in _AFTER_NOT
        if part == "(":
            starts.append(place + 1)
            between.append(False)
        elif part == ")" and len(starts) > 1:
            starts.pop()
            between.pop()
        elif part == "AND" and between[-1]:
            between[-1] = False
        elif part in ("AND", "OR", ",") or (part == "NOT" and not infix):
            starts[-1] = place + 1
        between[-1] |= part == "BETWEEN"
    return starts[-1]


def _awaits_a_text(before: Sequence[str]) -> bool:
    last = " ".join(before[-2:]) if before[-1:] == ["("] else "".join(before[-1:])
    return last in _BEFORE_A_TEXT or (last == "AND" and "BETWEEN" in before)


def _word(word: str, following: Token, columns: Sequence[str], text: str) -> str:
    upper = word.upper()
    if upper in TIMES and following.kind in ("text", "name"):
        return upper
    if upper in _FUNCTIONS and following.text == "(":
        return upper
    if word in columns and upper not in _WORDS:
        return quoted(word)
    if upper in _WORDS:
        return upper
    if following.text == "(":
        raise SchemaError(
            f"where: {word}(...): there is no such function here. A condition looks at one row at a time, without sums "
            f"or counts over rows. It may use: {_SERVED}"
        )
    if upper in ("SELECT", "FROM", "WHERE"):
        raise SchemaError(f"where: {word}: give the condition alone, as in age >= 60; found {text!r}")
    raise SchemaError(f"where: {unknown(word, columns, quote=True)} A text takes single quotes: '{word}'.")


def like(name: str, columns: Sequence[str]) -> str:
    """A question that names the most similar column, whatever the case; empty if none is similar.

    Example:
        >>> like("Zone", ["zone", "hour"])
        " Did you mean 'zone'?"
    """
    near = _near(name, columns)
    return "" if near is None else f" Did you mean {near!r}?"


def _near(name: str, columns: Sequence[str]) -> str | None:
    folded = {column.casefold(): column for column in columns}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    return folded[near[0]] if near else None


def names_of(columns: Iterable[str] | str, what: str) -> list[str]:
    """Names of columns, of which one alone may stand without a list. Raises ``TypeError`` if they are no texts.

    Example:
        >>> names_of("zone", "table"), names_of(("zone", "hour"), "table")
        (['zone'], ['zone', 'hour'])
    """
    names = [columns] if isinstance(columns, str) else list(columns) if isinstance(columns, Iterable) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise TypeError(f'{what}: columns are named by texts, as in "zone" or ["zone", "hour"], not {columns!r}')
    return names


def unknown(name: str, columns: Sequence[str], *, quote: bool = False) -> str:
    """That there is no such column, which one may be meant, and which there are, in sentences.

    Args:
        quote: whether to say how the column is written in a condition.
    """
    near = _near(name, columns)
    how = f" {_as_column(near)}" if quote and near is not None and not near.isidentifier() else ""
    return f"{name!r} is not a column.{like(name, columns)}{how} Columns are: {first(columns)}."


def _described(schema: Mapping[str, pl.DataType], text: str) -> str:
    """Columns and what they hold, in plain words: first those that a condition names."""
    return first([f"{name} ({_kind(schema[name])})" for name in sorted(schema, key=lambda name: name not in text)])


def _kind(kind: pl.DataType) -> str:
    if kind.is_numeric():
        return "number"
    return {pl.String: "text", pl.Boolean: "true or false"}.get(kind.base_type(), "time")
