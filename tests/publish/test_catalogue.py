"""The descriptions of the releases, read by the tools that portals use, without a network."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from synthstream import Stream, StreamConfig
from synthstream.errors import ConfigError, SinkError
from synthstream.publish.catalogue import describe, descriptions
from synthstream.publish.folder import DESCRIPTIONS
from synthstream.publish.outlets import simulated
from synthstream.stream.backups import backup
from synthstream.stream.recovery import adopt, republish
from synthstream.stream.verification import verify
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.streams import KINDS, PERSONS, configured, published, rows

PUBLICATION = """
[publication]
title = "Visits"
description = "Visits to the wards of a hospital."
publisher = "A hospital"
contact = "data@example.org"
homepage = "https://example.org/visits"
licence = "CC-BY-4.0"
keywords = ["health"]
"""
# Columns of every type, with and without a cell for what is missing, and names that no URL holds as they are.
COLUMNS = """
[[columns]]
name = "Supervisor District/Ward"
type = "category"
values = ["A", "B", "C"]
[[columns]]
name = "Supervisor District Ward"
type = "category"
values = ["A", "B"]
missing = "A"
other = "B"
[[columns]]
name = "ok"
type = "boolean"
[[columns]]
name = "rooms"
type = "integer"
min = 1
max = 4
missing = 1
[[columns]]
name = "x"
type = "number"
min = 0
max = 10
bins = 4
[[columns]]
name = "hour"
type = "datetime"
part = "hour"
[[columns]]
name = "born"
type = "datetime"
min = 1950-01-01
max = 2026-01-01
bins = 5
"""
DTYPES = {
    "string": pl.String,
    "integer": pl.Int64,
    "number": pl.Float64,
    "boolean": pl.Boolean,
    "datetime": pl.Datetime("us"),
}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("no network here")

    monkeypatch.setattr(socket.socket, "connect", refused)


def released(folder: Path, kind: str, *, until: str = "2026-01-04", secure: bool = True) -> StreamConfig:
    config = configured(folder, kind, until=until)
    rows(400, 1).write_parquet(folder / "rows-1.parquet")
    with Stream(config) if secure else Stream(config, gates=lambda tick: SeededGate(str(tick)), seed=1) as stream:
        list(stream.run())
    return config


def of_all_types(folder: Path) -> StreamConfig:
    configured(folder, "always", until="2026-01-03")
    text = (folder / "stream.toml").read_text()
    text = text[: text.index("[[columns]]")] + COLUMNS + PUBLICATION
    config = StreamConfig.from_toml(text, base=folder)
    frame = rows(300, 1).with_columns(
        pl.col("ward").alias("Supervisor District/Ward"),
        pl.col("ward").alias("Supervisor District Ward"),
        pl.col("x").cast(pl.Int64).alias("rooms"),
        (pl.col("x") > 3).alias("ok"),
        pl.col("when").alias("hour"),
        pl.col("when").alias("born"),
    )
    frame.write_parquet(folder / "rows-1.parquet")
    with Stream(config) as stream:
        list(stream.run())
    return config


def check_files(folder: Path, package: dict[str, Any]) -> None:
    """Every file is as it is described: size, hash, names and types of columns, and the values in them."""
    for resource in package["resources"]:
        path = folder / resource["path"]
        assert path.stat().st_size == resource["bytes"]
        if resource["name"] == "manifest":
            continue
        assert f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" == resource["hash"]
        frame = pl.read_parquet(path)
        fields = resource["schema"]["fields"]
        assert [(f["name"], DTYPES[f["type"]]) for f in fields] == list(frame.schema.items())
        for field in fields:
            column, limits = frame[field["name"]], field.get("constraints", {})
            assert field["description"]
            assert not (limits.get("required") and column.null_count())
            present = column.drop_nulls()
            if "enum" in limits:
                assert set(present) <= set(limits["enum"])
            if "minimum" in limits and present.len():
                low, high = limits["minimum"], limits.get("maximum")
                as_found = present.dt.to_string("iso:strict").to_list() if field["type"] == "datetime" else present
                assert min(as_found) >= low
                assert high is None or max(as_found) <= high


@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_every_kind_of_stream_is_described_as_its_files_are(tmp_path: Path, kind: str) -> None:
    config = released(tmp_path, kind)
    before = published(tmp_path / "releases")
    assert describe(config)
    package = json.loads((tmp_path / "releases/datapackage.json").read_text())
    assert [resource["path"].split("/")[0] for resource in package["resources"]] == ["000002"] * (
        4 if config.workload is None else 5
    )
    check_files(tmp_path / "releases", package)
    after = published(tmp_path / "releases")
    assert set(after) - set(before) == set(DESCRIPTIONS)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize(("kind", "earlier"), [("refresh", True), ("epochs", False)])
def test_a_table_that_was_measured_before_is_not_said_to_be_of_this_tick(
    tmp_path: Path, kind: str, earlier: bool
) -> None:
    config = released(tmp_path, kind, until="2026-01-06", secure=False)  # noise may bring a refresh at any tick
    describe(config)
    tables = pl.read_parquet(tmp_path / "releases/000004/tables.parquet").drop_nulls("measured")
    assert earlier == ("measured_at" in tables.columns and tables["measured_at"].min() != 4)
    package = json.loads((tmp_path / "releases/datapackage.json").read_text())
    said = next(one["schema"]["fields"] for one in package["resources"] if one["path"].endswith("tables.parquet"))
    assert earlier != ("at this tick" in next(one["description"] for one in said if one["name"] == "measured"))


def test_columns_of_all_types_are_described_as_they_are(tmp_path: Path) -> None:
    config = of_all_types(tmp_path)
    describe(config)
    package = json.loads((tmp_path / "releases/datapackage.json").read_text())
    check_files(tmp_path / "releases", package)
    fields = {field["name"]: field for field in package["resources"][0]["schema"]["fields"]}
    assert fields["Supervisor District/Ward"]["constraints"] == {"enum": ["A", "B", "C", "other"]}
    assert fields["Supervisor District Ward"]["constraints"] == {"required": True, "enum": ["A", "B"]}
    assert fields["rooms"]["constraints"] == {"required": True, "minimum": 1, "maximum": 4}
    assert fields["x"]["bins"] == 4
    assert fields["hour"]["constraints"] == {"minimum": 0, "maximum": 23}
    assert package["licenses"] == [{"name": "CC-BY-4.0", "path": "https://spdx.org/licenses/CC-BY-4.0"}]
    assert package["contributors"] == [{"title": "A hospital", "email": "data@example.org", "roles": ["publisher"]}]
    manifest = json.loads((tmp_path / "releases/000001/manifest.json").read_text())
    assert package["synthstream"]["claim"] == manifest["claim"]
    assert package["synthstream"]["chain"] == manifest["chain"]
    assert manifest["claim"]["words"] in package["description"]
    assert "is invented" in fields["x"]["description"]
    found = {r["name"]: {f["name"]: f["description"] for f in r["schema"]["fields"]} for r in package["resources"][:4]}
    assert "No error is known" in found["tables"]["count"]
    assert all("independent from cell to cell" in found[name]["stderr"] for name in ("tables", "series"))


@pytest.mark.sparing(1)
@pytest.mark.parametrize("kind", ["all types", "points"])
def test_the_tools_of_portals_take_it(tmp_path: Path, kind: str) -> None:
    config = of_all_types(tmp_path) if kind == "all types" else released(tmp_path, kind)
    describe(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import frictionless
        import mlcroissant

        # It counts no bytes of Parquet files, and takes nulls for NaN or NaT in columns of numbers or times.
        report = frictionless.validate(
            str(tmp_path / "releases/datapackage.json"), skip_errors=["byte-count", "hash-count"]
        )
        wrong = [
            error
            for task in report.tasks
            for error in task.errors
            if 'cell "nan"' not in error.message and 'cell "NaT"' not in error.message
        ]
        assert (wrong, report.errors) == ([], [])
        assert {task.name for task in report.tasks} - {"series"} == {"rows", "tables", "measured", "manifest"}

        dataset = mlcroissant.Dataset(jsonld=str(tmp_path / "releases/croissant.json"))
        assert dataset.metadata.ctx.issues.errors == set()
        assert dataset.metadata.ctx.is_v1_1()
        for name in ("rows", "tables"):
            frame = pl.read_parquet(next((tmp_path / "releases").glob(f"*{_last(tmp_path)}/{name}.parquet")))
            records = list(dataset.records(name))
            assert len(records) == len(frame)
            assert len(records[0]) == len(frame.columns)


def test_croissant_has_what_its_specification_asks_for(tmp_path: Path) -> None:
    """Croissant 1.1: the required properties of a dataset, unique ids, and references to what is there."""
    config = of_all_types(tmp_path)
    describe(config)
    found = json.loads((tmp_path / "releases/croissant.json").read_text())
    asked = "@context @type conformsTo description license name url creator datePublished distribution"
    assert {key for key in asked.split() if not found.get(key)} == set()
    assert found["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    cr = {key for key, value in found["@context"].items() if str(value).startswith("cr:") or "cr:" in str(value)}
    plain = {"@type", "@id", "name", "description", "contentUrl", "contentSize", "encodingFormat", "sha256"}
    files = found["distribution"]
    assert all({"@id", "name", "contentUrl", "encodingFormat", "sha256"} <= file.keys() <= plain for file in files)
    fields = [field for records in found["recordSet"] for field in records["field"]]
    assert all(field.keys() <= plain | cr and {"dataType", "source"} <= field.keys() for field in fields)
    ids = [one["@id"] for one in (*files, *found["recordSet"], *fields)]
    assert len(ids) == len(set(ids))
    assert {field["source"]["fileObject"]["@id"] for field in fields} <= {file["@id"] for file in files}


def _last(folder: Path) -> str:
    return max(path.name for path in (folder / "releases").glob("0*"))


def test_a_wrong_description_is_noticed_by_the_same_tools(tmp_path: Path) -> None:
    config = released(tmp_path, "always")
    describe(config)
    place = tmp_path / "releases/datapackage.json"
    package = json.loads(place.read_text())
    package["resources"][0]["schema"]["fields"][0]["constraints"]["enum"] = ["A"]
    place.write_text(json.dumps(package))
    with pytest.raises(AssertionError):
        check_files(tmp_path / "releases", package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import frictionless

        assert not frictionless.validate(str(place), skip_errors=["byte-count", "hash-count"]).valid


def test_describing_again_writes_nothing_and_gives_the_same_bytes(tmp_path: Path) -> None:
    config = released(tmp_path, "always")
    assert describe(config)
    first = {name: (tmp_path / "releases" / name).stat() for name in DESCRIPTIONS}
    assert not describe(config)
    assert {name: (tmp_path / "releases" / name).stat().st_ino for name in DESCRIPTIONS} == {
        name: stat.st_ino for name, stat in first.items()
    }
    text = (
        "from synthstream.config.config import load; from synthstream.publish.catalogue import descriptions; "
        "import sys, pathlib;"
    )
    text += "sys.stdout.write(''.join(descriptions(load(pathlib.Path('stream.toml'))).values()))"
    again = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603
    assert again.stdout == "".join(descriptions(config).values())


def test_a_simulation_says_so_where_people_look(tmp_path: Path) -> None:
    config = released(tmp_path, "always", secure=False)
    texts = descriptions(config)
    assert texts.pop("settings.toml").startswith("# NOT PRIVATE")
    assert texts["README.md"].count("NOT PRIVATE") == 4  # title, a line of its own, claim, citation
    del texts["README.md"]
    entry = yaml.safe_load(texts.pop("deployment.yaml"))
    assert entry["deployment"]["product"]["name"].startswith("NOT PRIVATE")
    for text in texts.values():
        found = json.loads(text)
        assert found.get("title", found["name"]).startswith("NOT PRIVATE")
        assert found["description"].startswith("NOT PRIVATE")


def test_the_descriptions_stand_in_nobodys_way(tmp_path: Path) -> None:
    """Opening, verifying, backing up, adopting and republishing are as they were without them."""
    config = released(tmp_path, "always")
    describe(config)
    (tmp_path / "releases" / ".datapackage.json-4711").write_text("left by a process that was killed")
    assert verify(config, rebuild=True).findings == []
    backup(config, tmp_path / "backup")
    shutil.move(tmp_path / "releases/000002", tmp_path / "lost")
    with pytest.raises(SinkError, match="no release"):
        descriptions(simulated(config))
    assert republish(config) == 1
    assert (tmp_path / "lost/manifest.json").read_bytes() == (tmp_path / "releases/000002/manifest.json").read_bytes()
    shutil.rmtree(config.state)
    assert adopt(config).segment
    with Stream(configured(tmp_path, "always", until="2026-01-06")) as stream:
        assert len(list(stream.run())) == 2
    assert describe(config)
    assert verify(config).findings == []


@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_a_readme_says_what_there_is(tmp_path: Path, kind: str) -> None:
    config = released(tmp_path, kind)
    manifest = json.loads((tmp_path / "releases/000002/manifest.json").read_text())
    for beside in (False, True):
        text = descriptions(config, beside=beside)["README.md"]
        for words in (
            "from 2026-01-01 to before 2026-01-04",
            "tick 2",
            manifest["claim"]["words"],
            "No error is known",
        ):
            assert words in text, words
        assert manifest["chain"]["head"][:16] in text
        assert len(text.splitlines()) < 32
        told = set(re.findall(r"`(000002/)?([a-z]+\.parquet)`", text)) - {("", "measured.parquet")}
        assert {name for _, name in told} - {"history.parquet"} <= set(manifest["files"])
        assert {where for where, name in told if name == "rows.parquet"} == {"" if beside else "000002/"}
        described = json.loads(descriptions(config, beside=beside)["datapackage.json"])["description"]
        for limit in ("further ones are left out", "no number says by how much"):  # an error bar does not
            assert (limit in text) == (limit in described) == (kind == PERSONS)
    published = StreamConfig.from_toml((tmp_path / "stream.toml").read_text() + PUBLICATION, base=tmp_path)
    text = descriptions(published)["README.md"]
    for words in ("# Visits\n", "Visits to the wards", "A hospital. Visits", "data@example.org", "CC-BY-4.0"):
        assert words in text, words


def test_a_readme_of_the_publishers_own_stays(tmp_path: Path) -> None:
    config, place = released(tmp_path, "always"), tmp_path / "releases/README.md"
    place.write_text("# Ours")
    assert describe(config)
    assert place.read_text() == "# Ours"
    place.unlink()
    assert describe(config)
    assert "release of tick 2" in place.read_text()


def test_a_release_has_one_name_and_no_date_that_nobody_noted(tmp_path: Path) -> None:
    texts = descriptions(released(tmp_path, "always"))
    package, found = json.loads(texts["datapackage.json"]), json.loads(texts["croissant.json"])
    assert "created" not in package
    assert all("release of tick 2" in text for text in (package["description"], found["description"], found["citeAs"]))
    assert found["temporalCoverage"] == "2026-01-01T00:00:00+00:00/2026-01-04T00:00:00+00:00"
    assert "publication_date" not in texts["deployment.yaml"]


def test_what_is_published_about_a_stream_may_change_while_it_runs(tmp_path: Path) -> None:
    config = released(tmp_path, "always")
    describe(config)
    text = (tmp_path / "stream.toml").read_text()
    changed = StreamConfig.from_toml(text + PUBLICATION, base=tmp_path)
    assert changed.public_json() == config.public_json()
    Stream(changed).close()
    assert describe(changed)
    assert "https://example.org/visits" in (tmp_path / "releases/croissant.json").read_text()
    for wrong in ('licence = "by attribution only"', 'homepage = "example.org"', 'licenze = "CC0-1.0"'):
        with pytest.raises(ConfigError, match=wrong.split(" ")[0]):
            StreamConfig.from_toml(f"{text}\n[publication]\n{wrong}\n", base=tmp_path)


def test_it_says_when_there_is_nothing_to_describe_or_no_place(tmp_path: Path) -> None:
    config = configured(tmp_path, "always")
    with pytest.raises(SinkError, match="no release yet"):
        describe(config)
    config = released(tmp_path, "always")
    (tmp_path / "releases/croissant.json").mkdir()
    with pytest.raises(SinkError, match=r"croissant.json: Is a directory"):
        describe(config)
    assert not list((tmp_path / "releases").glob(".croissant*"))
