"""What is wrong with a configuration, in words: line, key, value found, what is allowed, nearest valid name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from typing import Any, TypeVar

from pydantic import ValidationError

from synthstream.errors import ConfigError
from synthstream.schema.conditions import like

# Stands in a draft where a person must fill in what is publicly known.
PUBLIC_BOUND = "TODO-public"

Path = tuple[str | int, ...]
T = TypeVar("T")

_UNIT: Path = ("privacy", "unit")
# Where in a location stands which of several sections it is, by its type or kind: that stands in no path of the file.
_TAGS: dict[Path, int] = {("columns",): 2, ("mirror",): 2, ("source",): 1, _UNIT: 2}
_PERSON = 'unit = { person = "column", max_events = 20 }'
_UNITS = f'unit = "event", or {_PERSON}'

# Keys of which pydantic says one error for each part, or for each type that they may have.
_SEVERAL = ("bounds", "missing", "horizon", "rows")
# What a column's missing is, by what pydantic asks for.
_VALUES = {"string_type": "a text in quotes", "bool_type": "true or false"}
_VALUES |= {"datetime_type": "a date without quotes, or the number of its part"}

# What a key takes that takes a word or a number.
_EITHER = {"clock.horizon": 'a number of ticks, or "unbounded"', "sink.rows": 'a number of rows, or "total"'}
_NUMBER = r"'[-+]?[\d._]+(e[-+]?\d+)?'"

# Types of columns, and keys, as other programs call them.
_TYPES = {"float": "number", "double": "number", "decimal": "number", "string": "category", "text": "category"}
_KEYS = {"sep": "delimiter", "separator": "delimiter", "interval": "every", "budget": "epsilon", "categories": "values"}
_KEYS |= {"begin": "start", "from": "start", "end": "until", "to": "until"}

_FEW = "say where each bin begins, two numbers or more, as in [0, 18, 65]; or one number, and max"

# What keys take whose value is a text of a certain form.
_FORMS = {
    "delimiter": r'use one sign, such as ";" or "\t"',
    "quote": "use one sign, or an empty text for none",
    "name": "use signs that can be printed",
    "homepage": "use an address, as in https://example.org",
    "licence": "use a name such as CC-BY-4.0, or the address of its text",
}
# What keys take that an empty text was given to.
_EMPTY = {
    "name": "use at least one letter or digit",
    "state": 'name a folder, as in "state"; exact counts lie there, and nobody else may read it',
    "sink.path": 'name a folder, as in "releases"',
    "source.path": 'name the files, as in "visits-*.csv"',
}
# What keys take that take nothing else, whatever is wrong.
_TAKEN = {
    "status.free": 'use a size, as in "10 GB"',
    "privacy.unit": f"say {_UNITS}, which protects a person, of whom at most max_events events count",
}
# A column's name, in a line of its own or within braces.
_NAME = r"""\bname\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')"""
# What may be a password, and is never repeated: of an address what stands before its @, and all behind its question
# mark, or behind such a word.
_USER = re.compile(r"(?<=://).*(?=@)", re.DOTALL)
_WORDS = r"pass\w*|pwd|secret\w*|token|\w+_key"
_PASSWORD = re.compile(rf"(://[^?]*\?|(?:{_WORDS})['\"]?\s*[=:]\s*).*?(?=['\"}}]*\Z)", re.DOTALL | re.I)
_PLAIN = "use letters, digits and the signs _ . -"


class Problems:
    """Collects what is wrong with a configuration, and says all of it at once.

    Args:
        origin: what to call the text in messages.
        text: TOML.
    """

    def __init__(self, origin: str, text: str, sections: Mapping[str, Sequence[str]]) -> None:
        self._origin, self._text, self._sections = origin, text, sections
        self._lines = _key_lines(text)
        self._found: list[tuple[int, str]] = []

    def add(self, path: Path, message: str) -> None:
        """Note a problem at a key, or at the nearest table above it."""
        line = next((self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines), 0)
        where = f"line {line}: " if line else ""
        self._found.append((line, f"{where}{message}"))

    def attempt(self, where: str, make: Callable[[], T]) -> T | None:
        """What ``make`` returns; ``None``, and a problem noted, if it raises."""
        try:
            return make()
        except ValueError as error:  # so are ConfigError and SchemaError
            path = tuple(int(part) if part.isdigit() else part for part in where.split("."))
            text = str(error)
            named = re.match(r"(column .*?: )?(?:[a-z]+\.)?([a-z_]+)\b", text)
            label = text if text.startswith((where, "column")) else f"{self._key(path, '')}: {text}"
            self.add((*path, named[2]) if named else path, label)
            return None

    def find_unfilled(self) -> None:
        """Note every place that a draft left open."""
        for number, line in enumerate(self._text.splitlines(), 1):
            if PUBLIC_BOUND in line.partition("#")[0]:
                path = next((path for path, at in self._lines.items() if at == number), ())
                key = self._key(path, "") if path else line.partition("=")[0].strip()
                self._found.append(
                    (number, f"line {number}: {key} is still {PUBLIC_BOUND}; fill in what is publicly known")
                )

    def add_validation(self, error: ValidationError) -> None:
        """What pydantic found; keys that are still to be filled in are not named twice."""
        unfilled = {line for line, _ in self._found}
        told: set[Path] = set()
        for detail in error.errors():
            loc = detail["loc"]
            if len(loc) > 1 and isinstance(loc[-1], int) and loc[-2] not in _ARRAYS:  # of many in one list the first
                if (*loc[:-1], detail["type"]) in told:
                    continue
                told.add((*loc[:-1], detail["type"]))
            if detail["type"] == "too_short" and any(one[:-1] == loc for one in told):  # of what is left of it
                continue
            # A column's key stands behind its number and type.
            if cut := next((at for at in (1, 3) if loc[at : at + 1] and loc[at] in _SEVERAL and len(loc) > at + 1), 0):
                loc = detail["loc"] = loc[: cut + 1]
                if loc in told:
                    continue
                told.add(loc)
            at = _TAGS.get(loc[:1], _TAGS.get(loc[:2], len(loc)))
            path, tag = (*loc[:at], *loc[at + 1 :]), str(loc[at]) if len(loc) > at else None
            if detail["type"].startswith("union_tag") and loc[0] != "columns":
                path = (*path, "kind")
            if self._lines.get(path) not in unfilled:
                self.add(path, self._message(detail, path, tag))

    def raise_if_any(self) -> None:
        """Raise ``ConfigError`` if a problem was noted."""
        if self._found:
            raise self.error()

    def error(self) -> ConfigError:
        """All problems in one error, in the order of their lines."""
        lines = [text for _, text in sorted(self._found)]
        if len(lines) == 1:
            return ConfigError(f"{self._origin}, {lines[0]}")
        return ConfigError(f"{self._origin}:\n" + "\n".join(f"  {text}" for text in lines))

    def _message(self, detail: Any, path: Path, tag: str | None) -> str:
        """One of pydantic's errors in our words."""
        key, top = self._key(path, detail["type"]), str(path[0]) if path else ""
        section = ".".join(str(part) for part in path[:-1] if not isinstance(part, int))
        known = self._sections.get(f"{section}.{tag}", self._sections.get(section, ()))
        if tag is not None and top in ("source", "mirror"):
            every = [name for section, keys in self._sections.items() if section.startswith(f"{top}.") for name in keys]
            if detail["type"] == "missing":
                return f'{key}: this key is required for kind = "{tag}"'
            if detail["type"] == "extra_forbidden" and path[-1] in every:
                knows = ", ".join(name for name in known if name != "kind")
                where = f"{self._key(path[:-1], '')}: {path[-1]}"
                return f'{where}: has no effect with kind = "{tag}", whose keys are {knows}'
        if detail["type"] == "union_tag_not_found":
            kinds = [name.removeprefix(f"{top}.") for name in self._sections if name.startswith(f"{top}.")]
            return f"{key}: this key is required: one of {', '.join(kinds)}"
        if detail["type"] == "extra_forbidden":
            meant = self._meant(path, known, detail["input"])
            return f"{key}: there is no such key here.{meant} Allowed: {', '.join(known)}"
        if key in _EITHER and detail["type"] != "missing":
            bare = "; write a number without quotes" if re.fullmatch(_NUMBER, repr(detail["input"])) else ""
            return f"{key} = {_told(detail['input'])}: use {_EITHER[key]}{bare}"
        return self._worded(detail, path, key)

    def _worded(self, detail: Any, path: Path, key: str) -> str:
        kind = detail["type"]
        last = str(path[-1]) if path else ""
        found = detail.get("input") if key != "encryption.key_command" else "..."  # may have a password among its words
        if kind == "string_pattern_mismatch":
            return f"{key} = {_told(found)}: {_FORMS.get(last, _PLAIN)}"
        if kind == "string_too_short":
            return f"{key} = {_told(found)}: {_EMPTY.get(key, 'must not be empty')}"
        if kind == "missing" and len(path) == 1 and last in _SECTIONS:
            return f"{key}: this section is required. Begin it with {_heading(last)}, and write its keys below"
        if kind == "missing":
            return f"{key}: this key is required{_WHY.get(last, '')}"
        if len(path) == 1 and (kind in _NO_SECTION or last == "columns"):
            brackets = ", in double brackets" if last in _ARRAYS else ""
            return f"{key}: must be a section. Begin it with {_heading(last)}{brackets}, and write its keys below"
        if last == "bounds":
            several = "[[32, 37], [-122, -114]], or [[0, 80]] of one coordinate"
            return f"{key}: give each coordinate a list of its lower and upper end, as in {several}"
        if last == "missing" and path[0] == "columns":
            what = f"{_VALUES.get(kind, 'a number')}, or leave it out to count them apart"
            return f"{key} = {_told(found)}: say as which value missing cells count, {what}"
        if key in _TAKEN:
            return f"{key} = {_told(found)}: {_TAKEN[key]}"
        if kind in ("literal_error", "union_tag_invalid"):
            told = detail.get("ctx", {})
            tag, expected = found, str(told.get("expected", told.get("expected_tags", "")))
            if "tag" in told and isinstance(found, dict):  # a text; the value stands in the section
                tag = found["type" if path[0] == "columns" else "kind"]
            words = [a or b for a, b in re.findall(r"'([^']*)'|\"([^\"]*)\"", expected.replace(r"\x", r"\u00"))]
            signs = not all(word[:1].isalnum() for word in words)
            named = ", ".join(map(_quoted, words) if signs else words)
            named = f"one of {named}" if len(words) > 1 else _quoted(words[0])
            return f"{key} = {_told(tag)}: must be {named}.{like(_TYPES.get(str(tag), str(tag)), words)}"
        if kind in ("too_short", "too_long"):
            return f"{key}: {_FEW if last == 'edges' else 'name two columns' + ' or three' * (last == 'columns')}"
        hint = {
            "datetime_type": "; write dates as 2026-01-31, without quotes",
            "string_type": "; write it in quotes",
        }.get(kind, "")
        if kind == "string_type" and last != "every" and isinstance(found, date | time | int | float):
            hint += f', as in "{_told(found)}"'
        if kind in ("list_type", "tuple_type"):
            hint = f"; write it in brackets, as in {'[0, 18, 65]' if last == 'edges' else _LIST}"
            hint += "; `schema init --codebook` drafts a long list" if last == "values" else ""
        elif kind in ("float_type", "int_type") and re.fullmatch(_NUMBER, repr(found)):
            hint = "; write it without quotes"
        elif last == "every":
            hint += f', as in "{found if type(found) is int and found > 0 else 1}d"'
        said = detail["msg"].removeprefix("Value error, ").replace("valid tuple", "valid list")
        return f"{key} = {_told(found)}: {said[0].lower()}{said[1:]}{hint}"

    def _meant(self, path: Path, known: Sequence[str], found: object) -> str:
        """Where a key or section that is unknown here has its place, or which may be meant; ``found``: its value."""
        last = str(path[-1])
        homes = sorted({name.partition(".")[0] for name, keys in self._sections.items() if name and last in keys})
        if len(path) > 1 and last in self._sections.get("", ()):
            own = any(name.partition(".")[0] == last for name in self._sections)
            begin = f" It is a section of its own. Begin it with {_heading(last)}."
            return begin if own else " It stands at the top of the file, before the first section."
        types = [n.removeprefix("columns.") for n, keys in self._sections.items() if "columns." in n and last in keys]
        if path[0] == "columns" and isinstance(found, dict):
            return f" Begin each column with {_heading('columns')}, and say its name there."
        if path[0] == "columns" and types:
            return f" It belongs to type = {' or '.join(map(_quoted, types))}."
        in_braces = last in self._sections.get("privacy.unit", ()) and len(path) <= 2
        if in_braces and path[0] in ("privacy", last) and homes == ["privacy"]:
            return f" It belongs in the braces of {_PERSON}."
        asked = _KEYS[last] if _KEYS.get(last) in known else last
        near = "" if len(path) == 1 and homes and not isinstance(found, dict | list) else like(asked, known)
        return near or (f" It belongs in {' or '.join(map(_heading, homes))}." if homes else "")

    def _name_of(self, column: int) -> str | None:
        line = self._lines.get(("columns", column, "name"))
        name = re.search(_NAME, self._text.splitlines()[line - 1]) if line else None
        return name and (name[1] or name[2])

    def _key(self, path: Path, kind: str) -> str:
        """A key as a person would call it: a column by its name, where it has one."""
        rest = ("type",) if kind.startswith("union_tag") and len(path) == 2 else path[2:]
        if len(path) > 1 and path[0] == "columns" and isinstance(path[1], int):
            name = self._name_of(path[1])
            column = f"columns.{path[1]}" if name is None else f"column {name!r}"
            return f"{column}: {'.'.join(map(str, rest))}" if rest else column
        return ".".join(str(part) for part in path if path[0] != "mirror" or not isinstance(part, int))


_LIST, _QUOTES = '["A", "B"]', 'Texts stand in quotes: "A", not A'

# The commonest slips: what is said of them; how the line looks, and behind \0 what stands at the place that is named;
# and how to mend it.
_SLIPS = (
    ("", r"(=\s*\[?\s*|\0)[“”„‘’‚«»]", 'Quotation marks are straight ones, as in "visits"'),
    (
        "Unescaped|Invalid hex",
        "",
        "In double quotes \\ begins an escape: write / in a path, or put it in '...'",
    ),
    (r"Illegal character '\\n'|Expected \"'\"", "", "A quotation mark is not closed"),
    ("Unclosed array", r"\0[\"'\d;+-]", "In a list texts stand in quotes, and commas between them"),
    ("Invalid value", r"\0,", "Nothing stands before a comma: leave it out"),
    ("", r"=\s*10\^", "Powers of ten are written as in 1e-9"),
    ("Invalid value", r"\0[-+]?\.\d", "Numbers begin with a digit, as in 0.5"),
    ("Unclosed array", "", "A list ends with ]: it is missing above"),
    ("Expected '='", r"^\s*[\w.-]+\s*:", "After a key stands =, not :"),
    ("", r"=\s*(True|False)\b", "Write true or false, in small letters"),
    ("", r"=\s*\d+-\d+-\d+[T ]\d+:\d+(?!:)", "Moments have seconds, as in 2026-01-31T12:00:00"),
    ("Invalid date", r"=\s*\d{4}-\d\d-\d\d\b", "There is no such day"),
    ("", r"=\s*\d+([-./])\d+\1\d", "Dates are written as 2026-01-31"),
    ("", r"=\s*\(|=\s*\{[^={}:]*\}", f"A list stands in brackets, as in {_LIST}"),
    ("", r"=\s*\[?\s*(?!true|false|\d+e-?\d+\b)\d*[A-Za-z_]", _QUOTES),
    ("Invalid value", r"\0[^\s,\]]", _QUOTES),
)


def hint_of(text: str, error: str) -> str:
    """How to mend TOML that cannot be read, by its line and what is said of it; nothing where that is not clear."""
    if text.endswith(".toml") and "\n" not in text:
        return f". This is a path, and here its text is asked for. A stream of a file is synthstream.open({text!r})"
    number = re.search(r"at line (\d+), column (\d+)", error)
    line = text.splitlines()[int(number[1]) - 1] if number and int(number[1]) <= len(text.splitlines()) else ""
    seen = f"{line}\0{line[int(number[2]) - 1 :]}" if number else ""
    section = re.match(rf"\s*\[+\s*({'|'.join(_ARRAYS)})\b", line)
    single = section and re.search(rf"^\s*\[\s*{section[1]}\s*\]", text, re.MULTILINE)
    if section and single and ("twice" in error or "overwrite" in error):
        return f". Begin each with {_heading(section[1])}, in double brackets"
    if ("twice" in error or "overwrite" in error) and (key := re.match(r"\s*(\[*\s*[\w.-]+\s*\]*)", line)):
        return f". {key[1].strip()} is there before. Leave one of them"
    form = r"=\s*([-+]?\d+(?:[.,]\d{3})*)([.,])(\d+)\s*(#.*)?$"
    if (written := re.search(form, line)) and ("," in written[0] or "." in written[1]):
        whole, rest = re.sub("[.,]", "", written[1]), written[3]
        plain = f"Nothing stands between thousands, as in {whole}{rest}"
        if len(rest) == 3 and written[2] in written[1]:
            return f". {plain}"
        return f". Numbers take a decimal point, as in {whole}.{rest}" + (f". {plain}" if len(rest) == 3 else "")
    return next((f". {hint}" for said, form, hint in _SLIPS if re.search(said, error) and re.search(form, seen)), "")


# What pydantic says of a key, or of a section in other brackets, where a section must be.
_NO_SECTION = ("model_type", "model_attributes_type", "dict_type", "tuple_type")

# Sections that there may be several of.
_ARRAYS = ("mirror", "columns", "constraints")

# Sections that every file has.
_SECTIONS = ("privacy", "clock", "columns")


def _told(value: object) -> str:
    """A value about as a file has it.

    Example:
        >>> _told([date(2026, 1, 31), True, "A"])
        "[2026-01-31, true, 'A']"
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_told, value))}]"
    if isinstance(value, date | time):
        return value.isoformat()
    told = str(value).lower() if isinstance(value, bool) else repr(value)
    return _PASSWORD.sub(r"\1...", _USER.sub("...", told))


def _quoted(word: str) -> str:
    return f'"{word}"'


def _heading(section: str) -> str:
    return f"[[{section}]]" if section in _ARRAYS else f"[{section}]"


# Why a key is required, or what it says.
_WHY = {
    "epsilon": "; it has no default, because it is the promise",
    "delta": "; it has no default; 0 asks for pure epsilon-DP",
    "state": f"; {_EMPTY['state']}",
    "unit": f"; it has no default. Say {_UNITS}",
    "person": "; name the column that holds each person's key",
    "max_events": "; at most this number of events of each person count, and further ones are left out",
    "min": "; bounds must be publicly known, and are never taken from the data",
    "max": "; bounds must be publicly known, and are never taken from the data",
    "coordinates": '; name one or two columns of numbers, as in ["lat", "lon"]',
    "bounds": "; of each coordinate the lower and upper end, as in [[32, 37], [-122, -114]]; publicly known",
    "bins": "; say into how many equal bins the range is cut",
    "values": "; list the publicly known values",
    "kind": '; say kind = "parquet"',
    "horizon": '; a number of ticks, or "unbounded"',
}


def _key_lines(text: str) -> dict[Path, int]:
    """Line of every table and key of a TOML text, by path."""
    lines: dict[Path, int] = {}
    table: Path = ()
    counts: dict[str, int] = {}
    listed, item = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if array := re.match(r"\s*\[\[\s*([\w-]+)\s*\]\]", line):
            index = counts.get(array[1], 0)
            counts[array[1]] = index + 1
            table = (array[1], index)
            lines.setdefault((array[1],), number)
        elif head := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            table = tuple(head[1].split("."))
        elif key := re.match(r"\s*([\w-]+)\s*=(\s*\[\s*(#.*)?$)?", line):
            lines[(*table, key[1])] = number
            listed, item = key[1] if key[2] and not table else "", 0
            continue
        elif listed and re.match(r"\s*\{", line):  # a table in braces, on a line of its own
            lines[(listed, item)] = number
            if re.search(_NAME, line):
                lines[(listed, item, "name")] = number
            item += 1
            continue
        else:
            continue
        lines[table] = number
    return lines
