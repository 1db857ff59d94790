"""What a condition compares columns with: whether a cell may be so, and where what it says changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise, takewhile

from synthstream.errors import SchemaError
from synthstream.schema.conditions import TIMES, Token, first, is_column, like, quoted, tokenised, unquoted

# Signs of a comparison, and what they are if its sides change places.
_MIRRORED = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def check_values(text: str, texts: Mapping[str, Sequence[str]], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse a condition that compares a column with what it can never hold: a misspelt value would count as 0.

    Numbers and times are refused where no row could satisfy the whole: not beside arithmetic, OR or NOT, nor in lists.

    Args:
        text: a condition that can be read.
        texts: by column of texts, all that a cell may hold.
        ranges: by column of numbers or times, the lowest and highest that a cell may hold; times as seconds since 1970.

    Raises:
        SchemaError: a text is none of its column's, or a number lies out of its range.

    Example:
        >>> check_values("zone = 'Nroth'", {"zone": ["North", "South"]}, {})
        Traceback (most recent call last):
        synthstream.errors.SchemaError: where: 'Nroth' is none of the values of zone. Did you mean 'North'? Its values \
are North, South
    """
    tokens = tokenised(text)
    ranges = {} if _computed(tokens) or {"OR", "NOT"} & {token.text.upper() for token in tokens} else ranges
    bounds = dict.fromkeys(ranges, (-math.inf, math.inf))
    for name, sign, literal in _comparisons(tokens, [*texts, *ranges]):
        said = unquoted(literal[-1])
        written = literal[0].kind in ("text", "name") and _MIRRORED.get(sign, "=") in ("=", "!=")
        if name in texts and written and said not in texts[name]:
            null = f" Where it is missing: {quoted(name)} IS NULL." if said == "missing" else ""
            every = "; a table of it lists all" if " more" in (listed := first(texts[name])) else ""
            raise SchemaError(
                f"where: {said!r} is none of the values of {name}.{like(said, texts[name])}{null} Its values are "
                f"{listed}{every}"
            )
        (low, high), value = ranges.get(name, (-math.inf, math.inf)), _value(literal)
        above = value >= high if sign == ">" else value > high and sign in (">=", "=", "==")
        below = value <= low if sign == "<" else value < low and sign in ("<=", "=", "==")
        if name in ranges and (above or below):
            raise SchemaError(
                f"where: {name} {sign} {_as_said(value, literal)}: no row can satisfy it. {name} goes from "
                f"{_as_said(low, literal)} to {'below ' if high % 1 else ''}{_as_said(high, literal)}"
            )
        if name in ranges and sign in ("=", "==") and literal[0].text.upper() in TIMES:
            column = name if name.isidentifier() else quoted(name)
            day, after = (_as_said(value // 86400 * 86400 + more, literal)[:11] + "'" for more in (0, 86400))
            raise SchemaError(
                f"where: {name} = {_as_said(value, literal)}: no row lies at a single moment. For a day say "
                f"{column} >= DATE {day} AND {column} < DATE {after}"
            )
        if name in ranges and not math.isnan(value):
            least, most = bounds[name]
            least = max(least, value) if sign in (">", ">=", "=", "==") else least
            most = min(most, value) if sign in ("<", "<=", "=", "==") else most
            if least > most:
                ends = f"above {_as_said(least, literal)} and below {_as_said(most, literal)}"
                raise SchemaError(f"where: {name} {ends}: no row can satisfy it")
            bounds[name] = least, most


def _comparisons(tokens: Sequence[Token], columns: Sequence[str]) -> Iterator[tuple[str, str, list[Token]]]:
    """Every column that is compared with something written: its name, the sign, and the tokens of that."""
    for place, token in enumerate(tokens):
        if not is_column(token, columns):
            continue
        name, before, after = unquoted(token), tokens[:place], tokens[place + 1 :]
        sign = after[0].text.upper() if after else ""
        if sign in _MIRRORED:
            yield name, sign, _literal(after[1:], columns)
        elif "IN" in [one.text.upper() for one in after[:2]]:
            listed = list(takewhile(lambda one: one.text != ")", after))
            commas = [k for k, one in enumerate(listed) if one.text in ("(", ",")]
            yield from ((name, "IN", _literal(listed[k + 1 :], columns)) for k in commas)
        elif sign == "BETWEEN":
            end = next((k for k, one in enumerate(after) if one.text.upper() == "AND"), len(after))
            yield name, ">=", _literal(after[1:], columns)
            yield name, "<=", _literal(after[end + 1 :], columns)
        if before and (turned := _MIRRORED.get(before[-1].text)):
            first = -3 if before[-3:-2] and before[-3].text.upper() in ("-", *TIMES) else -2
            yield name, turned, _literal(before[first:-1], columns)


def _literal(tokens: Sequence[Token], columns: Sequence[str]) -> list[Token]:
    """The tokens of the text, number or time that stands first; nothing that can be compared, if none does."""
    number = 2 if tokens and tokens[0].text.upper() in ("-", *TIMES) else 1
    found = list(tokens[:number])
    written = bool(found) and found[-1].kind in ("text", "name", "number") and not is_column(found[-1], columns)
    return found if written else [Token("", "")]


def _value(literal: Sequence[Token]) -> float:
    """The number, or second since 1970, that is written; NaN if it is none."""
    if literal[0].text.upper() in TIMES:
        with suppress(ValueError):
            return datetime.fromisoformat(unquoted(literal[-1])).replace(tzinfo=UTC).timestamp()
    elif literal[-1].kind == "number":
        return float(literal[-1].text) * (-1 if literal[0].text == "-" else 1)
    return math.nan


def _as_said(value: float, literal: Sequence[Token]) -> str:
    """A number, or a time where one was written."""
    if literal[0].text.upper() in TIMES:
        with suppress(ValueError, OverflowError, OSError):  # a number that is no second of the calendar
            return f"'{datetime.fromtimestamp(value, UTC).replace(tzinfo=None)}'"
    return f"{value:.15g}"


def thresholds(text: str, wide: Sequence[str]) -> list[float] | None:
    """Numbers between which a condition says the same of all values of some columns; ``None`` if nobody can tell.

    Each of these columns must stand beside numbers or times alone: below or above one, BETWEEN two, IS NULL. What is
    equal to a single number, nobody can tell of a cell.

    Args:
        wide: columns whose cells hold many values.
    """
    tokens, found = tokenised(text), list[float]()
    parts = [Token("wide", "") if is_column(token, wide) else token for token in tokens]
    for place, part in enumerate(parts):
        before, after = parts[:place], parts[place + 1 :]
        asked = next((one.text.upper() for one in after if one.text.upper() != "NOT"), "") in ("IS", "BETWEEN")
        if part.kind == "wide" and not (asked or _compared(after) or _compared(before[::-1])):
            return None
        written = [*before[-1:], part]
        if part.kind == "number" or written[0].text.upper() in TIMES:
            found.append(_value(written))
    return None if wide and _computed(tokens) else found


def _computed(tokens: Sequence[Token]) -> bool:
    """Whether there is arithmetic in it; the sign of a number is none."""
    if any(token.text in ("+", "*", "/", "%") or token.text.upper() == "ABS" for token in tokens):
        return True
    return any(two.text == "-" and (one.kind != "sign" or one.text == ")") for one, two in pairwise(tokens))


def _compared(beside: Sequence[Token]) -> bool:
    """Whether what stands on one side of a column, from it outwards, compares it with a number or a time."""
    if not beside or beside[0].text not in ("<", ">", "<=", ">="):
        return False
    other = next((one for one in beside[1:] if one.text not in ("-", "(")), Token("", ""))
    return other.kind in ("number", "text") or other.text.upper() in TIMES
