"""Bad rows of CSV files that are no rows: too short, too long, broken inside. Their columns are c, n, t, note."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

Cells = tuple[str | None, float | None, datetime | None]
HEADER = b"c,n,t,note\n"
NEW = "2026-01-02"
DAY = datetime(2026, 1, 2)


class Line(NamedTuple):
    """Bytes of a file and the rows that they count as. ``@`` stands for the canary.

    Cells of the rows are those of a plain row that counts the same: a text that is not in the list, a number, a time.
    """

    name: str
    data: bytes
    rows: list[Any]


OTHER, BARE = ("green", 5.0, DAY), (None, None, None)
LINES = [
    Line("one cell", b"@\n", [("green", None, None)]),
    Line("two cells", b"red,5\n", [("red", 5.0, None)]),
    Line("three cells", b"red,5,2026-01-02\n", [("red", 5.0, DAY)]),
    Line("no separator", b"red;5;2026-01-02;@\n", [("green", None, None)]),
    Line("tabs", b"red\t5\t2026-01-02\t@\n", [("green", None, None)]),
    Line("all empty", b",,,\n", [BARE]),
    Line("one comma", b",\n", [BARE]),
    Line("empty quotes", b'"","","",""\n', [BARE]),
    Line("surplus", b"red,5,2026-01-02,x,@,@,@\n", [("red", 5.0, DAY)]),
    Line("a thousand cells", b"red,5,2026-01-02" + b",@" * 1000 + b"\n", [("red", 5.0, DAY)]),
    Line("shifted", b"@,red,5,2026-01-02,x\n", [("green", None, None)]),
    Line("blank", b"\n", []),
    Line("blank lines", b"\n\r\n\r\n", []),
    Line("only spaces", b"   \n", [("green", None, None)]),
    Line("spaces around", b" red , 5 , 2026-01-02 ,@\n", [("green", 5.0, DAY)]),
    Line("comment", b"# canary @\n", [("green", None, None)]),
    Line("the header again", HEADER, [("green", None, None)]),
    Line("quoted", b'"red","5","2026-01-02","@"\n', [("red", 5.0, DAY)]),
    Line("quotes doubled", b'"re""d@",5,2026-01-02,\n', [OTHER]),
    Line("text after a quote", b'"red"@,5,2026-01-02,x\n', [OTHER]),
    Line("quote inside", b're"d@",5,2026-01-02,x\n', [OTHER]),
    Line("lines inside quotes", b'"red\n\r\n\r@",5,2026-01-02,x\n', [("red", None, None), OTHER]),
    Line("rows inside quotes", b'"red,5,2026-01-02,x\nred,5,2026-01-02,@\n",5,2026-01-02,x\n',
        [("green", None, None), ("red", 5.0, DAY), ("green", None, None)]),
    Line("quote in the surplus", b'red,5,2026-01-02,"@\nred,6,7"\n', [("red", 5.0, DAY), ("red", 6.0, None)]),
    Line("carriage returns", b"red,5,2026-01-02,@\rred,6,2026-01-02,@\r", [("red", 5.0, DAY), ("red", 6.0, DAY)]),
    Line("windows", b"red,5,2026-01-02,@\r\n", [("red", 5.0, DAY)]),
    Line("backslash", b"re\\,5,2026-01-02,@\n", [OTHER]),
    Line("backslash and quote", b'"re\\",5,2026-01-02,@\n', [OTHER]),
    Line("nul", b"\0red\0@,5,2026-01-02,\0\n", [OTHER]),
    Line("only nuls", b"\0\0\0\n", [("green", None, None)]),
    Line("not UTF-8", b"\xff\xfe@,5,2026-01-02,\xff\n", [OTHER]),
    Line("cut in a character", b"@\xe2\x82,5,2026-01-02,\xf0\x9f\n", [OTHER]),
    Line("overlong", b"\xc0\xaf@\xc1\x81,5,2026-01-02,x\n", [OTHER]),
    Line("surrogate", b"@\xed\xa0\x80,5,2026-01-02,x\n", [OTHER]),
    Line("beyond Unicode", b"@\xf4\x90\x80\x80,5,2026-01-02,x\n", [OTHER]),
    Line("latin", b"@M\xfcller,5,2026-01-02,x\n", [OTHER]),
    Line("UTF-16", "red,5,@\n".encode("utf-16-le"), [("green", None, None), ("green", None, None)]),
    Line("byte order mark", b"\xef\xbb\xbfred,5,2026-01-02,@\n", [OTHER]),
    Line("end of file", b"red\x1a@,5,2026-01-02,x\n", [OTHER]),
    Line("separators of Unicode", "red\u2028@\x85\x1c,5,2026-01-02,x\n".encode(), [OTHER]),
    Line("a long cell", b"@" * 100_000 + b",5,2026-01-02,x\n", [OTHER]),
    Line("a gzip", b"\x1f\x8b\x08\x00@\x00\x03,5,2026-01-02,x\n", [OTHER]),
    Line("the end is missing", b"red,5,2026-01-02,@", [("red", 5.0, DAY)]),
    Line("quote that is never closed", b'red,5,2026-01-02,"@\nred,5,2026-01-02,x\n', [("red", 5.0, DAY)] * 2),
    Line("quote that is never closed, first", b'"red,5,2026-01-02,@\nred,5,2026-01-02,x\n',
        [("green", None, None), ("red", 5.0, DAY)]),
]  # fmt: skip
