"""Many streams in one list: sums for each unit and relation, tight, and nothing added that does not add."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from synthstream import Stream
from synthstream.accounting.zcdp import epsilon_for
from synthstream.cli.app import app
from synthstream.config.config import load
from synthstream.forecast.ledger import ledgers
from synthstream.stream.opening import begun
from synthstream.stream.succession import succeed
from tests.support.configs import SINK, WARD, stream_toml
from tests.support.halves import exact
from tests.support.successors import NEW, events, half, written

PERSON = '{ person = "who", max_events = 4 }'
STREAMS = {
    "a": {"epsilon": 1.0},
    "b": {"epsilon": 1.0},
    "pure": {"epsilon": 0.5, "delta": 0, "neighbours": "replace-one"},
    "people": {"epsilon": 2.0, "unit": PERSON},
    "monthly": {"epsilon": 2.0, "unit": PERSON.replace(" }", ', per = "4d" }')},
}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for name, settings in STREAMS.items():
        text = stream_toml(WARD, SINK, name=name, **settings)  # type: ignore[arg-type]
        (tmp_path / f"{name}.toml").write_text(text.replace('"state"', f'"state-{name}"').replace("releases", name))
    return [tmp_path / f"{name}.toml" for name in STREAMS]


def test_sums_are_tight_and_nothing_is_added_across_units_and_relations(files: list[Path]) -> None:
    found = ledgers([(path, load(path)) for path in files], begun)
    sums = {total.streams: total for total in found.sums}
    assert set(sums) == {("a", "b"), ("pure",), ("people",), ("monthly",)}
    both = sums["a", "b"]
    single = next(line for line in found.lines if line.name == "a").promise.claim
    assert both.rho == pytest.approx(2 * float(single.rho))
    assert both.epsilon == pytest.approx(replace(single, rho=2 * single.rho).epsilon(1e-9))
    assert 1.3 < both.epsilon < epsilon_for(both.rho, delta=1e-9)  # by the law of all their noise
    assert both.epsilon < 1.45  # less than the 2 that simply add up, at a smaller delta
    assert both.plain == (2.0, 2e-9)
    assert sums["pure",].epsilon == pytest.approx(0.5)
    assert sums["pure",].delta == 0


def test_periods_that_are_written_otherwise_are_the_same_and_add_up(tmp_path: Path) -> None:
    same = [("4w", "1w", "2026-01-05"), ("28d", "7d", "2026-01-05T00:00:00Z")]
    others = [("8w", "1w", "2026-01-05"), ("4w", "1w", "2026-01-06"), ("4w", "1d", "2026-01-05")]
    paths = []
    for number, (per, every, start) in enumerate([*same, *others]):
        text = stream_toml(WARD, SINK, name=str(number), unit=PERSON.replace(" }", f', per = "{per}" }}'), until=None)
        text = text.replace('every = "1d"', f'every = "{every}"').replace("start = 2026-01-01", f"start = {start}")
        paths.append(tmp_path / f"{number}.toml")
        paths[-1].write_text(text.replace('"state"', f'"state-{number}"'))
    found = ledgers([(path, load(path)) for path in paths], begun)
    assert [total.streams for total in found.sums] == [("0", "1"), ("2",), ("3",), ("4",)]
    assert found.sums[0].plain[0] == 2.0


def test_the_command_lists_and_adds_up_and_writes_nothing(files: list[Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(app, ["ledger", *map(str, files)])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "Sum for an event that is in all of them, add-remove: a, b" in text
    assert "Sum for a person in one period of 4d, add-remove: monthly" in text
    assert "simply added up, epsilon = 2 at delta = 2e-09" in text
    assert "Sums are not added to each other" in text
    assert "Sum" not in CliRunner().invoke(app, ["ledger", str(files[0])]).output, "of one stream there is none"
    facts = json.loads(CliRunner().invoke(app, ["ledger", *map(str, files), "--json"]).output)
    assert [stream["name"] for stream in facts["streams"]] == list(STREAMS)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_stream_that_went_on_is_counted_once(tmp_path: Path) -> None:
    old = half(tmp_path, events(60))
    new = written(tmp_path, NEW, "new.toml")
    paths = [tmp_path / "stream.toml", tmp_path / "new.toml"]
    listed = ledgers([(path, load(path)) for path in paths], begun)  # before: the plan of one
    assert listed.left_out == (paths[0],)
    succeed(old, new, gates=exact)
    both = CliRunner().invoke(app, ["ledger", *map(str, paths)])
    assert (both.exit_code, f"Not counted again: {paths[0]}" in both.output) == (0, True)
    refused = CliRunner().invoke(app, ["ledger", str(paths[0])])
    assert refused.exit_code == 2
    assert "went on with other settings at tick 4" in " ".join(refused.output.split())
    with Stream(new, gates=exact) as stream:
        stream.release()
    (total,) = ledgers([(paths[1], load(paths[1]))] * 2, begun).sums
    assert total.epsilon == pytest.approx(1.0, rel=1e-6)
    assert total.streams == ("visits",)


def test_no_sum_is_said_to_be_less_than_it_is(tmp_path: Path) -> None:
    """In six digits these add up to 2.19722, and their deltas to 1e-09."""
    for name, state in (("one", "a"), ("two", "b")):
        text = stream_toml(WARD, SINK, name=name, epsilon=1.0986122886681098, delta=5.0000049e-10)
        (tmp_path / f"{name}.toml").write_text(text.replace('"state"', f'"{state}"').replace("releases", name))
    told = CliRunner().invoke(app, ["ledger", *(str(path) for path in sorted(tmp_path.glob("*.toml")))]).stdout
    assert "simply added up, epsilon = 2.197225 at delta = 1.000001e-09" in " ".join(told.split())
    assert "(1.0986123, 5.000005e-10)-differential privacy" in " ".join(told.split())
