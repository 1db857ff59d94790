"""No error of a stream takes rows or exact counts along in the variables of its traceback."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from traceback import TracebackException

import polars as pl
import pytest

from synthstream import Counting, Stream, check, errors
from synthstream.environment import REAL, Env
from synthstream.kernel.gate import Question
from synthstream.schema.schema import Schema
from synthstream.stream import opening
from synthstream.workload import IntArray
from tests.support.environments import failing
from tests.support.gates import ExactGate
from tests.support.streams import PERSONS, configured, rows


class Broken(ExactGate):
    def answer(self, question: Question) -> IntArray:
        raise OSError(errno.EIO, "no noise")


def shown(call: Callable[[], object]) -> str:
    """What a tool that shows variables, as monitors and notebooks do, makes of the error of a call."""
    with pytest.raises(Exception, match=r"space|failed|error|made without a key|missing") as found:
        call()
    told = TracebackException.from_exception(found.value, capture_locals=True)
    return "".join(told.format())


def private(text: str) -> list[str]:
    return [word for word in ("Mustermann", "array(", "shape: (") if word in text]


@pytest.mark.parametrize("kind", ["always", "epochs", "points", PERSONS])
def test_variables_of_a_traceback_hold_nothing_private(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, path = configured(tmp_path, kind), tmp_path / "one.csv"
    rows(50, 1).with_columns(ward=pl.lit("Mustermann"), who=pl.lit("Mustermann")).write_csv(path)

    def opened(gate: ExactGate | None = None, env: Env = REAL) -> Stream:
        return Stream(config, gates=lambda _: gate or ExactGate(), env=env)

    def count() -> None:
        with opened() as stream, monkeypatch.context() as patch:
            patch.setattr(Schema, "encode", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "space")))
            stream.update(path)

    def release(gate: ExactGate | None = None, at: str = "commit measurement") -> None:
        with opened(gate, failing(errno.ENOSPC, at=at)) as stream:
            stream.release()

    with opened() as stream:
        stream.update(path)
        stream.release()
        stream.update(path)
        assert repr(stream._counter) == "Sums(private)"
    found = [shown(call) for call in (count, lambda: release(Broken()), release, release)]
    assert [private(text) for text in found] == [[], [], [], []]
    assert ["in encode" in found[0], *("in _commit" in text for text in found[1:])] == [True] * 4  # where it was
    assert "_open_tick" in found[3]  # the tick is half drawn: whoever opens it goes on
    with monkeypatch.context() as patch:
        patch.setattr(opening, "key_of", lambda _: b"Mustermann" + bytes(22))
        assert private(shown(opened)) == []  # nor the key
    monkeypatch.setattr(errors, "clear_frames", lambda _: None)
    assert all(private(shown(call)) for call in (count, release))


def test_what_is_handed_a_frame_does_not_keep_it(tmp_path: Path) -> None:
    config, frame = configured(tmp_path, "always"), rows(9, 1).with_columns(who=pl.lit("Mustermann")).drop("ward")
    handed = {"check": lambda: check(config, frame), "count": lambda: Counting(config).count(frame)}
    for name, call in handed.items():
        below = shown(call).partition("errors.py")[2]  # what the test itself holds stands above
        assert (private(below), "is missing" in below) == ([], True), name


def test_an_error_that_is_raised_again_while_it_is_handled() -> None:
    """Also of several at once; what its handler was handling is its own."""

    @errors.secretive
    def again(name: str, error: BaseException) -> None:
        assert name == "Mustermann"
        raise error

    for error in (ValueError("space"), ExceptionGroup("space", [ValueError("a")])):
        try:
            raise error
        except Exception as handled:
            text = shown(partial(again, "Mustermann", handled))
        assert private(text.partition("errors.py")[2].partition("in test_")[0]) == []
