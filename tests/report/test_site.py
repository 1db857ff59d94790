"""The site: what it holds, that its numbers are those of the releases, and that nobody ever sees half of it."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import synthstream
from synthstream import Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.environment import exchange
from synthstream.errors import ConfigError, SinkError
from synthstream.publish.building import Builder
from synthstream.publish.history import history_of
from synthstream.release.points import PointRelease
from synthstream.report.explorer import Explorer
from synthstream.report.site import check_place, library_name, publish_site
from synthstream.schema.binned import Number
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support import streams
from tests.support.at_rest import reached_by_others
from tests.support.configs import source
from tests.support.environments import Interrupting, Recording, failing

pytest.importorskip("vl_convert", reason="the extra `site` is not installed")

Content = dict[str, bytes]


def quiet(steps: list[int], doing: str) -> list[int]:
    return steps


def begun(
    folder: Path, kind: str, *, ticks: int = streams.TICKS, extra: str = "", number: int = 3000, **how: Any
) -> StreamConfig:
    """A stream of a kind with some releases."""
    streams.configured(folder, kind)
    path = folder / "stream.toml"
    path.write_text(path.read_text() + extra)
    streams.rows(number, 3).write_parquet(folder / "rows-1.parquet")
    config = StreamConfig.from_toml(path.read_text(), base=folder)
    release(config, ticks, **how)
    return config


def release(config: StreamConfig, ticks: int, **how: Any) -> None:
    with Stream(config, **how) as stream:
        stream.ingest()
        for _ in range(ticks):
            stream.release()


def facts_of(site: Path) -> dict[str, Any]:
    return dict(json.loads((site / "latest/facts.js").read_text().split("(", 1)[1].removesuffix(");\n")))


def cells_of(site: Path, tick: int) -> dict[str, Any]:
    found = re.fullmatch(r"synthstream\.cells\((\d+), (.*)\);\n", (site / f"releases/{tick:06d}/cells.js").read_text())
    assert found is not None
    assert int(found[1]) == tick
    return dict(json.loads(found[2]))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[StreamConfig, Path]]:
    folder, found = tmp_path_factory.mktemp("sites"), {}
    for kind in ("refresh", "always", "epochs", "selective", "points"):
        config = begun(folder / kind, kind, number=40 if kind == "epochs" else 3000)  # few: epochs of several ticks
        assert publish_site(config, folder / kind / "site", progress=quiet)
        found[kind] = config, folder / kind / "site"
    return found


# -- what is there ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["refresh", "always", "epochs", "selective", "points"])
def test_a_site_holds_what_was_published(made: dict[str, tuple[StreamConfig, Path]], kind: str) -> None:
    config, site = made[kind]
    content = streams.published(site)
    released = {n: d for n, d in streams.published(config.base / "releases").items() if "/" in n}
    assert {f"releases/{name}" for name in released} == {
        name for name in content if name.startswith("releases/") and not name.endswith("cells.js")
    }
    for name, data in released.items():
        assert content[f"releases/{name}"] == data
        if name.startswith("000007/"):
            assert content[name.replace("000007", "latest")] == data
    for name in ("rows", "tables"):
        known = pl.read_parquet(io.BytesIO(content[f"latest/{name}.parquet"]))
        dated = {"counted_from": pl.String, "counted_before": pl.String} if name == "tables" else {}
        told = pl.read_csv(io.BytesIO(content[f"latest/{name}.csv"]), schema={**known.schema, **dated})
        spans, told = told.select(dated.keys()), told.drop(dated.keys())
        if dated:
            clock = config.clock
            for row, (first, before) in zip(known.iter_rows(named=True), spans.iter_rows(), strict=True):
                last = row.get("measured_at")
                assert first == f"{clock.boundary(row.get('since') or 0):%Y-%m-%d}"
                assert before == f"{clock.boundary((7 if last is None else last) + 1):%Y-%m-%d}"
        assert known.with_columns(pl.selectors.string().fill_null("")).equals(
            told.with_columns(pl.selectors.string().fill_null(""))
        )
    package = json.loads(content["latest/datapackage.json"])
    for resource in package["resources"]:
        assert resource["bytes"] == len(content[f"latest/{resource['path']}"])
        if "hash" in resource:
            assert resource["hash"] == "sha256:" + hashlib.sha256(content[f"latest/{resource['path']}"]).hexdigest()
    for part in json.loads(content["latest/croissant.json"])["distribution"]:
        assert f"latest/{part['contentUrl']}" in content
    for name in ("index.html", "latest/index.html", "latest/explorer.html"):
        links = re.findall(r'(?:href|src)="([^"#][^"]*)"|url=([^"]+)"', content[name].decode())
        for link in {a or b for a, b in links} - {"data:,"}:
            assert os.path.normpath(Path(name).parent / link) in content, link
    assert b"<script" not in content["latest/index.html"]


def test_it_says_who_publishes_it_and_escapes_it(tmp_path: Path) -> None:
    extra = '[publication]\ntitle = "Visits <b>"\ndescription = "All of them."\npublisher = "The city"\n'
    extra += 'contact = "data@city.example"\nlicence = "CC-BY-4.0"\nhomepage = "https://city.example/visits"\n'
    config = begun(tmp_path / "a", "always", ticks=2, extra=extra)
    publish_site(config, tmp_path / "site", progress=quiet)
    page = (tmp_path / "site/latest/index.html").read_text()
    for words in ("Visits &lt;b&gt;", "All of them.", "The city", "data@city.example", "CC-BY-4.0"):
        assert words in page, words
    assert '<a href="https://city.example/visits">' in page
    assert "Visits <b>" not in page + (tmp_path / "site/latest/explorer.html").read_text()


def test_the_command_says_whether_anything_changed_and_stamps_a_simulation(tmp_path: Path) -> None:
    begun(tmp_path, "always", ticks=1)
    words = ["publish", str(tmp_path / "stream.toml"), str(tmp_path / "site")]
    first, again = (CliRunner().invoke(app, words) for _ in range(2))
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert "made from published releases alone" in first.output
    assert "is up to date" in again.output
    assert "latest/explorer.html: the explorer" in again.output.replace("\n", "")
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB" in again.output
    assert "keep = 12" not in again.output
    assert CliRunner().invoke(app, ["run", words[1], "--simulate", "-q"]).exit_code == 0
    refused = CliRunner().invoke(app, [*words, "--simulate"])
    assert "is another release" in refused.output
    assert CliRunner().invoke(app, [*words[:2], str(tmp_path / "tried"), "--simulate"]).exit_code == 0
    for name in ("index.html", "explorer.html"):
        assert "NOT PRIVATE: made with" in (tmp_path / "tried/latest" / name).read_text()
        assert "NOT PRIVATE: made with" not in (tmp_path / "site/latest" / name).read_text()
    assert reached_by_others(tmp_path / "tried") == []
    assert tmp_path / "site/latest/rows.csv" in reached_by_others(tmp_path / "site")


@pytest.mark.parametrize("kind", ["refresh", "always"])
def test_its_windows_are_those_of_the_package(made: dict[str, tuple[StreamConfig, Path]], kind: str) -> None:
    config, site = made[kind]
    facts, found = facts_of(site), synthstream.releases(config.base / "stream.toml")
    (spans, variances), at = facts["steps"]["tick"], facts["at"]
    assert synthstream.releases(site).last.tables.equals(found.last.tables)
    for position, column in enumerate(config.schema.names):
        table = next(q for q, t in enumerate(facts["tables"]) if t[0] == [position])
        place = sum(size for columns, size, *_ in facts["tables"][:table] if len(columns) < 2)
        for first, last in (*map(tuple, spans[1:3]), (2, 6)):
            window = found.between(at[first], at[last + 1]).table([column])
            values = np.subtract(facts["singles"][last], facts["singles"][first - 1])[place : place + window.height]
            np.testing.assert_allclose(values, window["measured"], atol=0.002)
            a, b = cells_of(site, first - 1), cells_of(site, last)
            noise = facts["tables"][table][2]
            variance = a["shared"][noise][first - 1] + b["shared"][noise][last] - 2 * b["shared"][noise][first - 1]
            np.testing.assert_allclose(np.sqrt(variance), window["stderr"][0], rtol=1e-4)
            if first == last:
                series = found.series(column).filter(pl.col("start").dt.strftime("%Y-%m-%d") == at[first])
                np.testing.assert_allclose(values, series["measured"], atol=0.002)
                np.testing.assert_allclose(variances[first][noise], variance, rtol=1e-4)


def test_pairs_are_those_of_the_package_between_refreshes(made: dict[str, tuple[StreamConfig, Path]]) -> None:
    config, site = made["refresh"]
    facts, found = facts_of(site), synthstream.releases(config.base / "stream.toml")
    after, until = facts["moments"][-2:]
    table = next(q for q, t in enumerate(facts["tables"]) if len(t[0]) == 2)
    begin = sum(size for _, size, *_ in facts["tables"][:table])
    noise = facts["tables"][table][2]
    window = found.between(facts["at"][after + 1], facts["at"][until + 1]).table(list(config.schema.names[:2]))
    a, b = cells_of(site, after), cells_of(site, until)
    assert b["at"][table] == until
    values = np.subtract(b["measured"], a["measured"])[begin : begin + window.height]
    np.testing.assert_allclose(values, window["measured"], atol=0.002)
    variance = a["shared"][noise][after] + b["shared"][noise][until] - 2 * b["shared"][noise][after]
    np.testing.assert_allclose(np.sqrt(variance), window["stderr"][0], rtol=1e-4)


@pytest.mark.parametrize("kind", ["refresh", "epochs"])
def test_of_short_ticks_only_those_that_can_be_chosen_have_errors(tmp_path: Path, kind: str) -> None:
    streams.configured(tmp_path, kind, until="2026-01-04")
    text = (tmp_path / "stream.toml").read_text().replace('every = "1d"', 'every = "5h"').replace("= 12", "= 20")
    text = text.replace("start = 2026-01-01", "start = 2026-01-01T00:30:00")
    (tmp_path / "stream.toml").write_text(text)
    streams.rows(40, 3).write_parquet(tmp_path / "rows-1.parquet")
    config = StreamConfig.from_toml(text, base=tmp_path)
    release(config, 14)
    site, found = tmp_path / "site", synthstream.releases(config.base / "stream.toml")
    publish_site(config, site, progress=quiet)
    facts, covariance = facts_of(site), found.covariance(13)
    at, moments = np.array([moment.removesuffix("Z") for moment in facts["at"]], dtype="M8[m]"), facts["moments"]
    chosen = set(moments)
    for start in np.arange("2026-01-01", "2026-01-06", dtype="M8[D]"):  # as the page finds them: ticksOf, windowOf
        for end in np.arange("2026-01-01", "2026-01-06", dtype="M8[D]"):
            first = min(max([0, *np.flatnonzero(at <= start).tolist()]), 13)
            over = np.flatnonzero(at >= end).tolist()
            last = max(over[0] - 1, 0) if over else 13
            chosen |= {first - 1, max(first, last)} - {-1}
    total = facts["tables"][0][2]
    for t in chosen:
        cells = cells_of(site, t)
        ends = cells.get("ends", list(range(t + 1)))
        assert {s for s in chosen if s <= t} <= {*ends}
        for s, value in zip(ends, cells["shared"][total], strict=True):
            np.testing.assert_allclose(value, covariance(s, t)[0], rtol=1e-6)
    without = [tick for tick in range(14) if "shared" not in cells_of(site, tick)]
    assert without
    assert not chosen & {*without}
    assert all("measured" in cells_of(site, tick) for tick in without)


def test_sums_of_epochs_are_those_of_the_package(made: dict[str, tuple[StreamConfig, Path]]) -> None:
    config, site = made["epochs"]
    facts, found = facts_of(site), synthstream.releases(config.base / "stream.toml")
    spans, variances = facts["steps"]["epoch"]
    assert max(last - first for first, last in spans) > 0
    assert facts["moments"] == [last for _, last in spans]
    for position, column in enumerate(config.schema.names):
        series = found.series(column)
        table = next(q for q, t in enumerate(facts["tables"]) if t[0] == [position])
        here = slice(sum(t[1] for t in facts["tables"][:table]), sum(t[1] for t in facts["tables"][: table + 1]))
        noise = facts["tables"][table][2]
        for (first, last), row in zip(spans, variances, strict=True):
            own = series.filter(pl.col("end").dt.strftime("%Y-%m-%d") == facts["at"][last + 1])
            assert f"{own['start'][0]:%Y-%m-%d}" == facts["at"][first]
            so_far = np.array(facts["singles"][last][here])
            before = np.array(facts["singles"][first - 1][here]) if first else 0.0
            np.testing.assert_allclose(so_far - before, own["measured"], atol=0.002)
            np.testing.assert_allclose(np.sqrt(row[noise]), own["stderr"][0], rtol=1e-4)
            cells = cells_of(site, last)
            assert cells["measured"][here] == facts["singles"][last][here]
            shared = [cells["shared"][noise][end] for end in facts["moments"] if end <= last]
            np.testing.assert_allclose(shared, np.cumsum([v[noise] for v in variances[: len(shared)]]), rtol=1e-4)
    total = found.series()
    np.testing.assert_allclose(np.diff([0, *(row[0] for row in facts["singles"])]), total["measured"], atol=0.002)
    variance = [row[facts["tables"][0][2]] for row in facts["steps"]["tick"][1]]
    np.testing.assert_allclose(np.sqrt(variance), total["stderr"], rtol=1e-4)


def test_points_are_explored_by_range_and_on_a_grid(made: dict[str, tuple[StreamConfig, Path]]) -> None:
    config, site = made["points"]
    facts, cells = facts_of(site), cells_of(site, 7)
    assert [table[0] for table in facts["tables"]] == [[0], [1], [1, 0]]
    sizes = [table[1] for table in facts["tables"]]
    assert len(cells["count"]) == sum(sizes)
    parts = np.split(np.array(cells["count"]), np.cumsum(sizes)[:-1])
    rows = len(pl.read_parquet(config.base / "releases/000007/rows.parquet"))
    assert [abs(part.sum() - rows) <= part.size for part in parts] == [True] * 3
    edges = facts["columns"][0]["edges"]
    assert len(edges) == sizes[0] + 1
    for tick in (2, 7):
        release = synthstream.releases(config.base / "stream.toml").at(tick)
        assert isinstance(release, PointRelease)
        for place in (0, sizes[0] - 1):
            told = release.mass({"x": edges[place]}, {"x": edges[place + 1]})
            assert facts["singles"][tick][place] == pytest.approx(told["measured"], abs=0.5)
            assert facts["errors"][tick][place] == pytest.approx(told["stderr"], abs=0.06)


@pytest.mark.parametrize("kind", ["points", "points-zcdp"])
def test_points_whose_ranges_have_become_finer_are_explored_by_those_of_the_newest(tmp_path: Path, kind: str) -> None:
    site = tmp_path / "site"
    how: dict[str, Any] = {"gates": lambda tick: SeededGate(str(tick)), "seed": 1}  # noise decides how fine they are
    config = begun(tmp_path, kind, ticks=1, number=400, **how)
    publish_site(config, site, progress=quiet)
    before = [table[1] for table in facts_of(site)["tables"]]
    release(config, 7, **how)
    publish_site(config, site, progress=quiet)
    facts = facts_of(site)
    sizes, edges = [table[1] for table in facts["tables"]], facts["columns"][0]["edges"]
    assert sizes != before
    young = synthstream.releases(tmp_path / "stream.toml").at(0)
    assert isinstance(young, PointRelease)
    cells = cells_of(site, 0)["count"]
    assert len(cells) == sum(sizes)
    singles = sum(table[1] for table in facts["tables"] if len(table[0]) == 1)
    for place in range(sizes[0]):
        told = young.mass({"x": edges[place]}, {"x": edges[place + 1]})
        assert facts["singles"][0][place] == cells[place] == pytest.approx(told["measured"], abs=0.51)
        assert facts["errors"][0][place] == pytest.approx(told["stderr"], abs=0.06)
    assert [len(facts[name][0]) for name in ("singles", "errors")] == [singles, singles]
    again = tmp_path / "again"
    publish_site(config, again, progress=quiet)
    assert streams.published(again) == streams.published(site)


# -- the series of all ticks, and hashes -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["refresh", "always", "epochs"])
def test_the_history_is_what_the_package_and_the_explorer_say(
    made: dict[str, tuple[StreamConfig, Path]], kind: str
) -> None:
    config, site = made[kind]
    found, releases = (
        pl.read_parquet(site / "latest/history.parquet"),
        synthstream.releases(config.base / "stream.toml"),
    )
    ticks = found.filter(pl.col("span") == "tick").drop("whole")
    own = pl.concat([pl.read_parquet(path) for path in sorted((config.base / "releases").glob("*/series.parquet"))])
    assert ticks.select(own.columns).equals(own.filter(pl.col("span") == "tick"))
    for column in (None, *config.schema.names):
        lines = ticks.filter(pl.col("column").eq_missing(pl.lit(column, dtype=pl.String)))
        known = releases.series(column)
        assert lines.select(known.columns).equals(known)
    facts = facts_of(site)
    if kind != "epochs":  # there the explorer adds up epochs
        singles = np.diff(np.array(facts["singles"]), axis=0, prepend=0.0)
        np.testing.assert_allclose(singles.reshape(-1), ticks["measured"], atol=0.002)
    assert set(found["span"]) - {"tick"} == set(facts["steps"]) & {"month", "quarter", "year"}


def test_the_history_has_months_and_years_and_takes_old_lines_from_the_site(tmp_path: Path) -> None:
    streams.configured(tmp_path, "refresh")
    text = (tmp_path / "stream.toml").read_text().replace("start = 2026", "start = 2025").replace('"1d"', '"2w"')
    text = text.replace("= 12", "= 40").replace("2026-01-09", "2026-04-01")
    (tmp_path / "stream.toml").write_text(text)
    streams.rows(400, 3).write_parquet(tmp_path / "rows-1.parquet")
    config, site, place = StreamConfig.from_toml(text, base=tmp_path), tmp_path / "site", "latest/history.parquet"
    release(config, 8)
    publish_site(config, site, progress=quiet)
    release(config, 22)
    releases, known = synthstream.releases(tmp_path / "stream.toml"), pl.read_parquet(site / place)
    whole, asked = releases.history(), list[int]()
    counted = Builder.counted

    def noted(builder: Builder, first: int, last: int, **more: Any) -> Any:
        asked.append(last)
        return counted(builder, first, last, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Builder, "counted", noted)
        assert releases.history(known).equals(whole)
        assert min(asked) >= 8
        publish_site(config, site, progress=quiet)
    assert pl.read_parquet(site / place).equals(whole)
    for span, every in {"month": "1mo", "quarter": "1q", "year": "1y"}.items():
        lines = whole.filter(pl.col("span") == span).drop("tick", "span")
        assert lines.equals(releases.counts(every=every).select(lines.columns))
    (site / place).write_bytes(b"other")
    publish_site(config, site, progress=quiet)
    assert pl.read_parquet(site / place).equals(whole)


def test_a_history_is_there_where_the_kind_of_stream_has_one(made: dict[str, tuple[StreamConfig, Path]]) -> None:
    for kind, (_, site) in made.items():
        there = [(site / "latest" / name).exists() for name in ("history.parquet", "history.csv")]
        assert there == [kind in ("refresh", "always", "epochs")] * 2
        assert ("history.parquet" in (site / "latest/README.md").read_text()) == there[0]


def test_all_that_is_offered_has_a_hash_and_all_releases_are_listed(
    made: dict[str, tuple[StreamConfig, Path]],
) -> None:
    config, site = made["always"]
    lines = (site / "latest/SHA256SUMS").read_text().splitlines()
    hashes = {name: digest for digest, name in (line.split("  ") for line in lines)}
    here = {path.name: path.read_bytes() for path in (site / "latest").iterdir() if path.name != "SHA256SUMS"}
    assert hashes == {name: hashlib.sha256(data).hexdigest() for name, data in here.items()}
    listed = json.loads(here["releases.json"])
    assert listed["name"] == config.name
    for tick, told in enumerate(listed["releases"]):
        folder = site / "latest" / told["folder"]
        manifest = json.loads((folder / "manifest.json").read_text())
        assert told["head"] == manifest["chain"]["head"]
        assert [told[key] for key in ("tick", "start", "end")] == [tick, manifest["start"], manifest["end"]]
        for name, digest in told["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        assert told["files"].keys() == {*manifest["files"], "manifest.json"}
    assert len(listed["releases"]) == streams.TICKS


# -- again, and later ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [{"min": 0, "max": 9, "bins": 3}, {"cuts": (0.0, 1.0, 9.0)}])
def test_cells_are_drawn_to_scale_where_bins_are_even(
    made: dict[str, tuple[StreamConfig, Path]], bins: dict[str, Any]
) -> None:
    column = Number(name="x", **{"min": 0, "max": 9, "bins": 2} | bins)
    facts = Explorer(history_of(made["always"][0], progress=quiet))._column(0, column)
    assert facts["edges"] == ([0, 3, 6, 9] if column.even else [])
    assert len(facts["labels"]) == facts["values"] + 1


def test_it_grows_with_the_releases_and_changes_nothing_else(tmp_path: Path) -> None:
    config, site = begun(tmp_path, "refresh", ticks=5), tmp_path / "site"
    assert publish_site(config, site, progress=quiet)
    (site / "CNAME").write_text("data.city.example")
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    assert not publish_site(config, site, progress=quiet)
    assert before == {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    old = streams.published(site)
    release(config, 3)
    env = Recording()
    assert publish_site(config, site, progress=quiet, env=env)
    assert env.names.count("rename release") == 3
    new = streams.published(site)
    assert {name: data for name, data in new.items() if name in old and not name.startswith("latest/")} == {
        name: data for name, data in old.items() if not name.startswith("latest/")
    }
    publish_site(config, tmp_path / "afresh", progress=quiet)
    assert streams.published(tmp_path / "afresh") | {"CNAME": b"data.city.example"} == new


def test_what_an_old_script_says_of_other_releases_is_not_believed(
    made: dict[str, tuple[StreamConfig, Path]],
) -> None:
    config, site = made["always"]
    explorer, script = Explorer(history_of(config, progress=quiet)), (site / "latest/facts.js").read_text()
    facts = facts_of(site)
    other = script.replace(facts["heads"][2], "0" * 64)
    for before in (None, "", "no script", script, other, script.replace('"singles":', '"gone":')):
        assert explorer.facts(before) == script
    assert explorer.facts(script.replace('"errors":', '"gone":').replace('"singles":[[', '"singles":[[9,')) == script
    own, short = (",".join(["0"] * number) for number in (len(facts["singles"][2]), 1))
    changed = [
        script.replace(json.dumps(facts["singles"][2], separators=(",", ":")), f"[{each}]") for each in (own, short)
    ]
    assert explorer.facts(changed[0]) == changed[0]  # of the same releases it is
    assert explorer.facts(changed[1]) == script  # an earlier version had series of other cells


def test_older_releases_have_csv_files_where_they_are_asked_for(tmp_path: Path) -> None:
    config, site = begun(tmp_path, "always", ticks=3), tmp_path / "site"
    publish_site(config, site, progress=quiet)
    before = streams.published(site)
    assert publish_site(config, site, csv=True, progress=quiet)
    after = streams.published(site)
    assert before.items() <= after.items()
    new = {f"releases/{tick:06d}/{name}.csv" for tick in range(3) for name in ("rows", "series", "tables")}
    assert after.keys() - before.keys() == new
    for name in new:
        text = pl.read_csv(io.BytesIO(after[name]), infer_schema=False)
        height, width = pl.read_parquet(io.BytesIO(after[name.replace(".csv", ".parquet")])).shape
        assert text.shape == (height, width + 2 * name.endswith("tables.csv"))
    assert not publish_site(config, site, csv=True, progress=quiet)
    with pytest.raises(Ended):
        publish_site(config, tmp_path / "ended", csv=True, progress=quiet, env=Interrupting(end, at="rename file"))
    publish_site(config, tmp_path / "ended", csv=True, progress=quiet)
    assert streams.published(tmp_path / "ended") == after
    (tmp_path / "releases/000001/rows.parquet").unlink()
    publish_site(config, site, progress=quiet)
    assert not list((site / "releases/000001").glob("rows*"))


def test_a_site_that_is_mostly_rows_of_old_releases_names_the_setting(tmp_path: Path) -> None:
    config, site = begun(tmp_path, "always", ticks=2), tmp_path / "site"
    publish_site(config, site, progress=quiet)
    for tick in range(2):  # stands for a long stream
        (site / f"releases/{tick:06d}/rows.csv").write_bytes(bytes(2_000_000))
    said = CliRunner().invoke(app, ["publish", str(tmp_path / "stream.toml"), str(site)]).output
    assert "Rows of single releases are 4.0 MB of it. From the next release on, keep = 12 in [sink]" in said


def test_rows_that_the_publisher_drops_go(tmp_path: Path) -> None:
    config, site = begun(tmp_path, "always", ticks=4), tmp_path / "site"
    publish_site(config, site, progress=quiet)
    (tmp_path / "releases/000001/rows.parquet").unlink()
    publish_site(config, site, progress=quiet)
    assert not (site / "releases/000001/rows.parquet").exists()
    listed = json.loads((site / "latest/releases.json").read_text())["releases"]
    assert ["rows.parquet" in told["files"] for told in listed] == [True, False, True, True]
    assert (site / "releases/000002/rows.parquet").exists()


# -- what is refused -------------------------------------------------------------------------------------------------


def test_a_site_is_kept_apart_from_what_is_private(tmp_path: Path) -> None:
    config = begun(tmp_path / "a", "always", ticks=1)
    places = (tmp_path, tmp_path / "a", tmp_path / "a/state", tmp_path / "a/state/site", tmp_path / "a/releases/site")
    for place in places:
        with pytest.raises(ConfigError):
            publish_site(config, place, progress=quiet)
    (tmp_path / "link").symlink_to(tmp_path / "a/state")
    with pytest.raises(ConfigError, match="secret"):
        publish_site(config, tmp_path / "link" / "site", progress=quiet)
    assert not list((tmp_path / "a/state").glob("site*"))


def test_a_site_holds_nothing_that_would_count_as_events(tmp_path: Path) -> None:
    text = streams.text_of("always").replace('kind = "parquet"\npath = "rows-*', 'kind = "csv"\npath = "**/*', 1)
    config = StreamConfig.from_toml(text.replace("**/*.parquet", "[rs]*/**/*.csv"), base=tmp_path)
    check_place(config, tmp_path / "public")
    with pytest.raises(ConfigError, match="would count as events"):
        check_place(config, tmp_path / "site")


@pytest.mark.parametrize(
    ("log", "private"),
    [
        ('kind = "delta"\npath = "own/lake"', "lake"),
        ('kind = "kafka"\ntopic = "t"\nconfig_file = "own/kafka.properties"', "kafka.properties"),
        ('kind = "kafka"\ntopic = "t"', None),
        ('kind = "postgres"\ntable = "t"\nsequence = "i"', None),
    ],
)
def test_a_site_does_not_hold_what_a_log_is_read_from(tmp_path: Path, log: str, private: str | None) -> None:
    files = source("rows-*.parquet")
    text = streams.text_of("always")
    assert files in text
    config = StreamConfig.from_toml(text.replace(files, f"[source]\n{log}\n"), base=tmp_path)
    if private is None:
        check_place(config, tmp_path / "own")
        return
    with pytest.raises(ConfigError, match=f"{private}, which is private"):
        check_place(config, tmp_path / "own")


def test_nothing_that_is_not_its_own_is_written_over(tmp_path: Path) -> None:
    config, other = begun(tmp_path / "a", "always", ticks=1), begun(tmp_path / "b", "refresh", ticks=1)
    publish_site(other, tmp_path / "theirs", progress=quiet)
    (tmp_path / "page").mkdir()
    (tmp_path / "page/index.html").write_text("my own")
    (tmp_path / "latest/latest").mkdir(parents=True)
    (tmp_path / "longer/releases/000001").mkdir(parents=True)
    for name in ("theirs", "page", "latest", "longer"):
        before = streams.published(tmp_path / name)
        with pytest.raises(ConfigError, match=r"[Nn]ame a"):
            publish_site(config, tmp_path / name, progress=quiet)
        assert streams.published(tmp_path / name) == before


def test_a_release_that_was_changed_is_not_published(tmp_path: Path) -> None:
    config = begun(tmp_path, "always", ticks=2)
    (tmp_path / "releases/000000/tables.parquet").write_bytes(b"other")
    with pytest.raises(SinkError, match="not what was published"):
        publish_site(config, tmp_path / "site", progress=quiet)
    assert not (tmp_path / "site/index.html").exists()


def test_no_manifest_says_where_files_are_written(tmp_path: Path) -> None:
    """A folder of releases may be a stranger's, and its manifest name a file beside it, with its hash."""
    config = begun(tmp_path, "always", ticks=1)
    facts = {"files": {"profile": hashlib.sha256(b"theirs").hexdigest()}}
    (tmp_path / "profile").write_bytes(b"theirs")
    (tmp_path / "manifest.json").write_text(json.dumps(facts))
    path = tmp_path / "releases/000000/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["../../profile"] = facts["files"]["profile"]
    path.write_text(json.dumps(manifest))
    (tmp_path / "home").mkdir()
    with pytest.raises(SinkError, match="no file of a release"):
        publish_site(config, tmp_path / "home/site", progress=quiet)
    assert not [*(tmp_path / "home").rglob("profile")]


# -- ends anywhere ---------------------------------------------------------------------------------------------------


class Ended(BaseException):
    """In place of the end of the process: nothing that the site does catches it."""


def end() -> None:
    raise Ended


def seen(site: Path) -> Content:
    """What a reader can reach: all but names that begin with a dot."""
    return {name: data for name, data in streams.published(site).items() if not name.startswith(".")}


@pytest.mark.parametrize(
    "every", [19, pytest.param(9, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)]
)
def test_a_process_that_ends_anywhere_leaves_the_old_site_or_the_new_one(tmp_path: Path, every: int) -> None:
    config, first = begun(tmp_path, "refresh", ticks=2), tmp_path / "first"
    publish_site(config, first, progress=quiet)
    old = seen(first)
    release(config, 1)
    env, last = Recording(), tmp_path / "last"
    shutil.copytree(first, last)
    publish_site(config, last, progress=quiet, env=env)
    new, latest = seen(last), {"old": 0, "new": 0}
    assert old != new
    for number in range(len(env.names), 0, -every):
        for when in ("before", "after"):
            site = tmp_path / f"{number}-{when}"
            shutil.copytree(first, site)
            with pytest.raises(Ended):
                publish_site(
                    config,
                    site,
                    progress=quiet,
                    env=Interrupting(end, number=number, when=when),
                )
            left = {n: d for n, d in seen(site).items() if "/." not in n}
            which = "new" if left["latest/index.html"] == new["latest/index.html"] else "old"
            known = new if which == "new" else old
            assert {n: d for n, d in left.items() if not n.startswith("releases/")} == {
                n: d for n, d in known.items() if not n.startswith("releases/")
            }
            assert known.items() <= left.items() <= new.items() | known.items()
            latest[which] += 1
            publish_site(config, site, progress=quiet)
            assert streams.published(site) == new
            assert not list(site.rglob(".*"))
            shutil.rmtree(site)
    assert min(latest.values()) * every > 2


def test_a_full_disk_is_told_and_changes_nothing(tmp_path: Path) -> None:
    config, site = begun(tmp_path, "always", ticks=1), tmp_path / "site"
    publish_site(config, site, progress=quiet)
    old = seen(site)
    release(config, 1)
    with pytest.raises(SinkError, match="No space left"):
        publish_site(config, site, progress=quiet, env=failing(28, at="exchange latest"))
    assert {n: d for n, d in seen(site).items() if n in old} == old


def test_two_processes_do_not_write_one_site(tmp_path: Path) -> None:
    config, site = begun(tmp_path, "always", ticks=1), tmp_path / "site"

    def again() -> None:
        with pytest.raises(SinkError, match="another process"):
            publish_site(config, site, progress=quiet)

    assert publish_site(config, site, progress=quiet, env=Interrupting(again, at="sync releases"))


def test_a_lock_that_was_taken_away_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, site, lock = begun(tmp_path, "always", ticks=1), tmp_path / "site", fcntl.flock

    def as_another_one_ends(handle: int, how: int) -> None:
        (site / ".publishing").unlink(missing_ok=True)
        lock(handle, how)

    with monkeypatch.context() as patched:
        patched.setattr("synthstream.report.site.fcntl.flock", as_another_one_ends)
        with pytest.raises(SinkError, match="another process"):
            publish_site(config, site, progress=quiet)
    assert publish_site(config, site, progress=quiet)


def test_nobody_who_can_read_a_site_keeps_it_from_being_written(tmp_path: Path) -> None:
    config, site, modes = begun(tmp_path, "always", ticks=1), tmp_path / "site", list[int]()
    site.mkdir()
    reader = os.open(site, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_EX)

    def look() -> None:
        modes.extend(path.stat().st_mode & 0o777 for path in site.glob(".*") if path.is_file())

    try:
        assert publish_site(config, site, progress=quiet, env=Interrupting(look, at="sync releases"))
    finally:
        os.close(reader)
    assert modes == [0o600]
    assert {path.name for path in site.iterdir()} == {"index.html", "latest", "releases"}


@pytest.mark.parametrize("can", [True, False])
def test_folders_take_each_others_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not can:
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    exchange(tmp_path / "new", tmp_path / "old")
    assert [sorted(p.name for p in (tmp_path / n).iterdir()) for n in ("new", "old")] == [["old"], ["new"]]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_site_that_was_renamed_away_comes_back(tmp_path: Path) -> None:
    config, site = begun(tmp_path, "always", ticks=1), tmp_path / "site"
    publish_site(config, site, progress=quiet)
    old = streams.published(site)
    (site / "latest").rename(site / ".away-latest")
    assert not publish_site(config, site, progress=quiet)
    assert streams.published(site) == old


def test_the_library_has_a_name_of_its_version_and_is_not_made_twice(
    made: dict[str, tuple[StreamConfig, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, site = made["always"]
    monkeypatch.setattr("synthstream.report.site.library", end)
    assert (site / "latest" / library_name()).stat().st_size > 500_000
    assert not publish_site(config, site, progress=quiet)


@pytest.mark.parametrize("kind", ["refresh", "points"])
def test_a_reader_checks_a_site_as_it_was_fetched(
    made: dict[str, tuple[StreamConfig, Path]], tmp_path: Path, kind: str
) -> None:
    config, site = made[kind]
    publish_site(config, site, progress=quiet, csv=True)
    fetched = Path(shutil.copytree(site, tmp_path / "fetched"))
    for folder in (fetched, fetched / "releases"):
        found = CliRunner().invoke(app, ["verify", str(folder)])
        assert (found.exit_code, found.output.count("no state, only releases")) == (0, 1), found.output
    for name, says in (
        ("rows.parquet", "is not that of the newest release, "),
        ("tables.csv" if kind == "refresh" else "rows.csv", "is not what SHA256SUMS says"),
        ("explorer.html", "is missing"),
    ):
        kept = (fetched / "latest" / name).read_bytes()
        (fetched / "latest" / name).write_bytes(kept + b"x")
        if says == "is missing":
            (fetched / "latest" / name).unlink()
        found = CliRunner().invoke(app, ["verify", str(fetched)])
        assert (found.exit_code, found.output.partition("\n")[0][: len(name) + len(says) + 9]) == (
            1,
            f"latest: {name} {says}",
        )
        assert CliRunner().invoke(app, ["verify", str(fetched / "releases")]).exit_code == 0
        (fetched / "latest" / name).write_bytes(kept)
    (fetched / "releases/000000/other.csv").write_text("")
    (fetched / "releases/000001/tables.parquet").write_bytes(b"")
    found = CliRunner().invoke(app, ["verify", str(fetched)])
    assert found.exit_code == 1
    assert found.output.splitlines()[:2] == [
        "000000: other.csv is no part of a release",
        "000001: tables.parquet is not what was published",
    ]


@pytest.mark.parametrize("said", ["state", "../no-state"])
def test_no_site_says_which_state_its_reader_opens(
    made: dict[str, tuple[StreamConfig, Path]], tmp_path: Path, said: str
) -> None:
    """Neither the reader's own, nor one that lies in it."""
    config, site = made["refresh"]
    fetched, settings = Path(shutil.copytree(site, tmp_path / "fetched")), tmp_path / "fetched/latest/settings.toml"
    shutil.copytree(config.state, fetched / "no-state")
    text = settings.read_text()
    assert 'state = "../no-state"' in text
    settings.write_text(text.replace("../no-state", str(config.state) if said == "state" else said))
    (fetched / "latest/SHA256SUMS").unlink()  # it would tell of this change
    for folder in (fetched, fetched / "releases"):
        found = CliRunner().invoke(app, ["verify", str(folder)])
        assert (found.exit_code, found.output.count("no state, only releases")) == (0, 1), found.output
    shutil.rmtree(fetched / "releases")
    found = CliRunner().invoke(app, ["verify", str(fetched)])
    assert (found.exit_code, "there is no state, and there are no releases" in found.output) == (2, True), found.output
