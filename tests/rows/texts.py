"""Bad rows whose cells are texts: in frames of every kind, in Parquet and in CSV files."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from tests.rows.places import FIRST, HIGH, LAST, LOW, UNREADABLE, Place, at, when


class Text(NamedTuple):
    """A text and its place. ``@`` in the text stands for the canary, ten digits."""

    name: str
    text: str
    place: Place = UNREADABLE


def _t(year: int, month: int, day: int, hour: int = 0) -> Place:
    return when(datetime(year, month, day, hour))


TEXTS = [
    # categories outside of the list, and almost in it
    Text("unseen category", "canary @"),
    Text("long", "x@" * 1000),
    Text("very long", "@" + "x" * 200_000),
    Text("upper case", "RED @"),
    Text("space before", " red"),
    Text("space after", "red "),
    Text("two values", "red,blue @"),
    Text("only spaces", "   "),
    Text("the name of a cell of its own", "other"),
    Text("the name of another", "missing"),
    Text("markup", "[bold]canary @[/bold]"),
    Text("a format", "{0} %s %(x)s ${HOME} @"),
    Text("sql", "'; DROP TABLE meta; -- @"),
    Text("a path", "../../../etc/passwd @"),
    Text("json", '{"canary": "@"}'),
    Text("a spreadsheet formula", "=cmd|' /C @'!A0"),
    Text("html", "<script>@</script>"),
    # characters that break terminals, lines and strings
    Text("nul", "red\0@"),
    Text("only nul", "\0"),
    Text("escape sequence", "\x1b[31m@\x07\x1b]0;@\x07"),
    Text("backspaces", "red\b\b\b@"),
    Text("carriage return", "red\r@"),
    Text("line feed", "red\n@"),
    Text("windows line end", "red\r\n@"),
    Text("vertical tab", "red\x0b@"),
    Text("form feed", "red\x0c@"),
    Text("next line", "red\x85@"),
    Text("line separator", "red\u2028@"),
    Text("tab", "\tred\t@"),
    Text("delete", "red\x7f@"),
    Text("right to left", "\u202ered@"),
    Text("byte order mark", "\ufeffred"),
    Text("zero width", "re\u200bd @"),
    Text("combining", "re\u0301d @"),
    Text("emoji", "👩‍👩‍👧 @"),
    Text("no character", "\uffff\ufdd0 @"),
    Text("last character", "\U0010ffff @"),
    Text("private use", "\ue000 @"),
    Text("replacement", "\ufffd @"),
    Text("quotes", 'canary "@" red'),
    Text("one quote", '"@'),
    Text("apostrophe", "'@"),
    Text("backslash", "\\@\\n"),
    Text("commas", ",,@,,"),
    # words that some readers take for nothing
    Text("na", "NA @"),
    Text("null", "null"),
    Text("none", "None"),
    Text("nan", "NaN"),
    Text("minus nan", "-nan"),
    Text("not a time", "NaT"),
    Text("pandas nothing", "<NA>"),
    Text("dash", "-"),
    Text("question mark", "?@?"),
    # numbers out of range
    Text("big", "@", HIGH),
    Text("big and negative", "-@", LOW),
    Text("big fraction", "@.5", HIGH),
    Text("with spaces", "  @  ", HIGH),
    Text("infinity", "inf", HIGH),
    Text("minus infinity", "-inf", LOW),
    Text("infinity in full", "Infinity", HIGH),
    Text("beyond floats", "@e999", HIGH),
    Text("below floats", "-@e999", LOW),
    Text("too small for a float", "1e-@", at(0.0, written="")),
    Text("many digits", "@" * 50, HIGH),
    Text("very many digits", "-" + "9" * 6000, LOW),
    Text("beyond 64 bits", "18446744073709551616", HIGH),
    Text("just below the end", "99.99999", at(99.99999)),
    Text("the end itself", "100", at(100.0)),
    Text("minus nought", "-0.0", at(-0.0, written="")),
    # almost numbers
    Text("hexadecimal", "0x@"),
    Text("underscores", "1_@"),
    Text("thousands", "1,000,@"),
    Text("decimal comma", "1,5"),
    Text("two points", "1.2.@"),
    Text("two signs", "--@"),
    Text("plus and minus", "+-@"),
    Text("full-width digits", "１２"),
    Text("arabic digits", "٣"),
    Text("infinity sign", "∞"),
    Text("a half", "½"),
    Text("exponent without digits", "@e"),
    Text("percent", "5%"),
    Text("money", "$@"),
    Text("space inside", "1 000"),
    Text("true", "true", Place(boolean="true", integer=1, number=2)),
    Text("a word for true", "oui @"),
    Text("a number for true", "2", at(2.0)),
    # times that are none
    Text("month 13", "2026-13-45"),
    Text("30 February", "2026-02-30"),
    Text("29 February 2025", "2025-02-29T12:00:00"),
    Text("year nought", "0000-00-00"),
    Text("hour 25", "2026-01-02T25:00:00"),
    Text("minute 61", "2026-01-02T05:61:00"),
    Text("american", "01/02/2026"),
    Text("week date", "2026-W01-2"),
    Text("day of year", "2026-002"),
    Text("negative year", "-0001-01-02", FIRST),
    Text("date and junk", "2026-01-02 @"),
    Text("date, time and junk", "2026-01-02T05:00:00@x"),
    Text("offset of 99 hours", "2026-01-02T05:00:00+99:99"),
    Text("now", "now"),
    # times out of range, or in a place that one may not think of
    Text("year 1", "0001-01-01", FIRST),
    Text("year 1, east", "0001-01-01T00:00:00+14:00", FIRST),
    Text("year 9999", "9999-12-30T00:00:00", LAST),
    Text("year 9999, west", "9999-12-31T23:59:59-14:00", LAST),
    Text("last century", "1926-01-02 05:00:00", _t(1926, 1, 2, 5)),
    Text("far future", "2999-01-02T05:00", _t(2999, 1, 2, 5)),
    Text("nanoseconds", "2026-01-02T05:00:00.123456789", _t(2026, 1, 2, 5)),
    Text("with a zone", "2026-01-02T05:30:00-05:30", _t(2026, 1, 2, 11)),
    Text("zulu", "2026-01-02T05:00:00Z", _t(2026, 1, 2, 5)),
    # an op that is none
    Text("minus one", "-1", at(-1.0)),
    Text("minus one as a fraction", " -1.0 ", at(-1.0)),
    Text("minus one and a bit", "-1.0000001", at(-1.0000001)),
    Text("unicode minus", "−1"),
    Text("delete row", "DELETE @"),
]
