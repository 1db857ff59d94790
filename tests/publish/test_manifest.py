"""The manifest against its JSON Schema, and the schema against its page."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from synthstream import Stream
from synthstream.kinds import EDITION
from synthstream.publish.outlets import as_begun
from synthstream.stream.recovery import adopt
from synthstream.stream.succession import succeed
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.halves import exact
from tests.support.streams import KINDS, PERSONS, configured, rows
from tests.support.successors import NEW, events, half, written

PAGE = Path(__file__).parents[2] / "docs" / "manifest.md"
SCHEMA: dict[str, Any] = json.loads((files("synthstream.publish") / "manifest.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def manifests(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("0*/manifest.json"))]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.sparing(5)
@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_manifests_of_every_kind_of_stream_fit(tmp_path: Path, kind: str) -> None:
    config = configured(tmp_path, kind, until="2026-01-05")
    rows(200, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    if kind != PERSONS:  # a segment needs a unit of events
        shutil.rmtree(config.state)
        adopt(config)
        with Stream(configured(tmp_path, kind, until="2026-01-07")) as stream:
            list(stream.run())
    found = manifests(tmp_path / "releases")
    assert len(found) == (4 if kind == PERSONS else 6)
    assert ("segments" in found[-1]) == (kind != PERSONS)
    for manifest in found:
        VALIDATOR.validate(manifest)


def test_a_simulated_manifest_fits_and_one_with_rows_that_take_away(tmp_path: Path) -> None:
    config = configured(tmp_path, "always", until="2026-01-03")
    rows(200, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config, gates=lambda tick: SeededGate(f"1/{tick}"), seed=1) as stream:
        list(stream.run())
    found = manifests(tmp_path / "releases")
    assert found[0]["warning"].startswith("NOT PRIVATE")
    for manifest in found:
        VALIDATOR.validate(manifest)
        VALIDATOR.validate({**manifest, "claim": {**manifest["claim"], "signed": True}})


def test_manifests_after_a_cut_fit(tmp_path: Path) -> None:
    config = succeed(half(tmp_path, events(60)), written(tmp_path, NEW, "new.toml"), gates=exact)
    with Stream(config, gates=exact) as stream:
        list(stream.run())
    found = manifests(tmp_path / "releases")
    assert [("cuts" in manifest, "parts" in manifest["claim"]) for manifest in found] == [(False, False)] * 4 + [
        (True, True)
    ] * 4
    for manifest in found:
        VALIDATOR.validate(manifest)


def places(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        yield at
        for key, inner in value.items():
            yield from places(inner, (*at, key))


def test_what_is_added_or_missing_is_noticed(tmp_path: Path) -> None:
    config = configured(tmp_path, PERSONS, until="2026-01-02")
    rows(50, 1).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    (manifest,) = manifests(tmp_path / "releases")
    tried = 0
    for at in places(manifest):
        for key in [*(_inner(manifest, at).keys() - {"series.parquet", "least_variance"}), "more"]:
            changed = copy.deepcopy(manifest)
            inner = _inner(changed, at)
            if key == "more":
                inner[key] = 1
            else:
                del inner[key]
            assert not VALIDATOR.is_valid(changed), f"{at}: {key}"
            tried += 1
    assert tried >= 30


def _inner(value: dict[str, Any], at: tuple[str, ...]) -> dict[str, Any]:
    for key in at:
        value = value[key]
    return value


def test_the_page_lists_every_key_in_the_words_of_the_schema() -> None:
    def keys(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
        for key, inner in node["properties"].items():
            yield prefix + key, inner["description"]
            described = SCHEMA["$defs"]["claim"] if str(inner.get("$ref", "")).endswith("/claim") else inner
            if "properties" in described:
                yield from keys(described, f"{prefix}{key}.")

    listed = re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert listed == list(keys(SCHEMA, ""))


@pytest.mark.parametrize("cuts", [5, "three", [5], [{}], [{"tick": "three", "edition": 15}]])
def test_cuts_that_cannot_be_are_no_cuts(tmp_path: Path, cuts: object) -> None:
    config = configured(tmp_path, KINDS[0])
    (tmp_path / "releases" / "000000").mkdir(parents=True)
    (tmp_path / "releases" / "000000" / "manifest.json").write_text(json.dumps({"edition": EDITION, "cuts": cuts}))
    assert as_begun(config) == config


def test_the_newest_release_tells_of_cuts_also_when_its_name_is_longer(tmp_path: Path) -> None:
    written(tmp_path)
    config, cut = written(tmp_path, NEW, "new.toml"), {"tick": 1_000_000, "edition": EDITION}
    for name, cuts in (("999999", []), ("1000000", [cut]), ("999999-before", [])):
        (tmp_path / "releases" / name).mkdir(parents=True)
        (tmp_path / "releases" / name / "manifest.json").write_text(json.dumps({"edition": EDITION, "cuts": cuts}))
    assert [one["tick"] for one in as_begun(config).cuts] == [1_000_000]
