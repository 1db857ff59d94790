"""The public report and the custodian's page: what they show, and what they must not."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import time
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from synthstream import Releases, Stream, StreamConfig
from synthstream.cli.app import app
from synthstream.errors import ConfigError, FileDamaged, SinkError
from synthstream.evaluate.custodian import STAMP, truth_of_tables
from synthstream.evaluate.custodian_page import _forecasts, custodian_page
from synthstream.publish.history import History, history_of
from synthstream.publish.outlets import simulated
from synthstream.release.points import PointRelease
from synthstream.report.association import chance_of, cramers_v, pairs, seen
from synthstream.report.distributions import middle_chart
from synthstream.report.page import check_place, macro, render, write_page
from synthstream.report.places import axes_of, boxes, grid_of_nodes, grids_of_places
from synthstream.report.public import public_page
from synthstream.report.recent import _chart, _says
from synthstream.report.scales import RANGE, ranged
from synthstream.report.theorems import STATEMENTS
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support import streams
from tests.support.configs import SINK, category, stream_toml
from tests.support.gates import ExactGate

# A text that no page may hold: it is in the rows alone, never in the configuration.
CANARY = "canary-in-the-rows"
THEOREMS = Path(__file__).parents[2] / "docs" / "theorems"


def quiet(steps: list[int], text: str) -> list[int]:
    return steps


def make(folder: Path, kind: str, *, rows: int = 3000, keep: int | None = None) -> StreamConfig:
    """A real stream of a kind, with a release for each of its eight ticks."""
    config = streams.configured(folder, kind)
    if keep is not None:
        path = folder / "stream.toml"
        path.write_text(path.read_text().replace('path = "releases"', f'path = "releases"\nkeep = {keep}'))
        config = StreamConfig.from_toml(path.read_text(), base=folder)
    streams.rows(rows, 3).write_parquet(folder / "rows-1.parquet")
    with Stream(config) as stream:
        stream.ingest()
        for _ in range(stream.due()):
            stream.release()
    return config


class Made(dict[str, StreamConfig]):
    """A stream of each kind that is asked for, made once."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, kind: str) -> StreamConfig:
        self[kind] = make(self._folder / kind, kind)
        return self[kind]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("streams"))


class Reader(HTMLParser):
    """Collects tags with their attributes, and the text outside of style sheets."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._silent else data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def touching(page: str) -> list[str]:
    """Sentences, or parts of one, with no space between them."""
    words = re.sub(r"<style.*?</style>|</?(?:strong|b|a|code|time|span)\b[^>]*>", "", page, flags=re.DOTALL)
    return re.findall(r".*(?:[.;:!?][A-Z]|,[A-Za-z]).*", re.sub(r"<[^>]*>", "\n", words))


def check_self_contained(page: str) -> None:
    reader = Reader(page)
    assert not reader.all("script")
    assert not [tag for tag, _ in reader.tags if tag in ("img", "iframe", "object", "embed", "base", "form")]
    for tag, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on")], "no handlers"
        for name in ("src", "srcset", "xlink:href", "action"):
            assert name not in attributes, f"{tag} loads something"
    assert [link["href"] for link in reader.all("link")] == ["data:,"]
    assert "url(" not in page
    assert "@import" not in page
    for link in reader.all("a"):
        assert urlsplit(link.get("href") or "").scheme == "", link


@pytest.mark.sparing(3)
@pytest.mark.parametrize("kind", [*streams.KINDS, streams.PERSONS])
def test_every_kind_of_stream_has_a_page(made: Made, kind: str, tmp_path: Path) -> None:
    config = made[kind]
    page = public_page(config, tmp_path / "report.html", progress=quiet)
    assert page == public_page(config, tmp_path / "report.html", progress=quiet)
    check_self_contained(page)
    assert touching(page) == []
    assert len(page) < 200_000
    manifest = history_of(config, progress=quiet).newest.manifest
    reader = Reader(page)
    assert manifest["claim"]["words"] in reader.text
    assert manifest["chain"]["head"] in reader.text
    assert f"{manifest['rows']:,}" in reader.text
    assert config.privacy.unit.meaning.split(".")[0] in reader.text
    for name in manifest["claim"]["theorems"]:
        assert STATEMENTS[name] in page.split("<summary>Theorems")[1].split("</details>")[0].replace("&#39;", "'")
    for figure in [attributes for tag, attributes in reader.tags if tag == "svg" and "role" in attributes]:
        assert figure["role"] == "img"
    assert page.count('role="img"') == page.count("<desc>")
    assert page.count("<figure") == page.count("<figcaption")
    for column in config.schema.columns:
        assert getattr(column, "place", column.name) in reader.text
    assert "Too few events" not in page
    assert " over time</figcaption>" not in page, "what counts from the start says so"
    assert ("Rows that were replaced" in page) == ("No real event was changed." in page)
    written = reader.text.split("The exact promise")[0]  # what follows are the words of the claim, and theorems
    assert not re.search(r"\bgates?\b|-way\b|\bbox", written)
    assert written.count("Cramér's V") == written.count("from 0 (not at all) to 1 (one follows from the other): Cram")


def test_places_have_a_map_of_all_events_and_of_each_value(made: Made, tmp_path: Path) -> None:
    config = made["places"]
    page = public_page(config, tmp_path / "report.html", progress=quiet)
    maps = re.findall(r"<figcaption>([^<]*) up to 2026-01-08, in (\d) by \2 cells", page)
    assert [what for what, _ in maps] == ["spot", "ward A", "ward B", "ward C"]
    found = history_of(config, progress=quiet)
    newest = found.cells(found.newest)
    whole, *values = grids_of_places(found, newest)
    assert (whole[0], [name for name, _ in values]) == ("spot", ["ward A", "ward B", "ward C"])
    rows = Releases(config).last.rows()
    assert (whole[1].across.name, whole[1].up.name, whole[1].degrees) == ("x", "y", False)
    side = int(maps[0][1])  # which grid stands out depends on the noise
    at = np.histogram2d(rows["y"].drop_nulls(), rows["x"].drop_nulls(), bins=side, range=[[0, 10], [0, 10]])[0]
    assert whole[1].counts.tolist() == at.tolist()
    assert len({one.span for _, one in values}) == 1, "a colour means the same count on each"
    coloured = [
        ((one.counts >= 0.5) & (one.noise == 0)).any() for _, one in values
    ]  # of few events, noise may leave none
    assert page.count("on a logarithmic scale, the same for all values") == sum(coloured)
    assert 'class="empty"' in page, "white cells are in the legend"
    assert sum(grid.counts.sum() for _, grid in values) <= at.sum()
    told = boxes(whole[1])
    assert whole[1].measured is not None
    assert told.headings == ["y", "x", "Synthetic rows", RANGE]
    assert sum(int(row[2].replace(",", "")) for row in told.rows) == at.sum()
    parts = [int(row[3].split(" ")[0].replace(",", "").replace("\u2212", "-")) for row in told.rows]
    assert sum(parts) == pytest.approx(whole[1].measured[0].sum(), abs=len(parts))


def test_maps_of_two_places_name_theirs_and_are_of_kinds_before_flags(tmp_path: Path) -> None:
    flag = '[[columns]]\nname = "night"\ntype = "boolean"\n'
    at, to = (
        f'[[columns]]\nname = "{name}"\ntype = "place"\ncoordinates = ["{name}_lat", "{name}_lon"]\n'
        'bounds = [[0, 8], [0, 8]]\ndepth = 2\nwith = ["kind", "night"]\n'
        for name in ("at", "to")
    )
    config = StreamConfig.from_toml(
        stream_toml(category("kind", "a", "b"), flag, at, to, SINK, column=None), base=tmp_path
    )
    even = {f"{name}_{axis}": np.linspace(0, 8, 90) for name in ("at", "to") for axis in ("lat", "lon")}
    with Stream(config) as stream:
        stream.update(pl.DataFrame({"kind": ["a", "b"] * 45, "night": [True] * 90, **even}))
        stream.release()
    found = history_of(config, progress=quiet)
    names = [name for name, _ in grids_of_places(found, found.cells(found.newest))]
    assert names == ["at", "at, kind a", "at, kind b", "to", "to, kind a", "to, kind b"]


@pytest.mark.parametrize(
    ("epsilon", "delta", "says", "never"),
    [
        (2.0, "1e-6", ["without giving away any one event", "more than 7.39 times as likely"], ["weak", "next to"]),
        (4.5, "1e-9", ["The promise is weak: ε = 4.5 is large.", "more than 90.1 times"], ["next to", "giving away"]),
        (50.0, "1e-9", ["ε = 50 promises next to nothing.", "so much more likely"], ["giving away", "times as likely"]),
        (1.0, "1e-3", ["weak: there is a chance of one in 1,000 that it does not hold at all"], ["giving away"]),
        (1.0986122886681098, "1e-9", ["with ε = 1.0986123, no", "(ε, δ) = (1.0986123, 1e-9)"], ["1.09861,"]),
        (1.0, "1.047e-3", ["weak: there is a chance of one in 950 that it does not hold at all"], ["giving away"]),
        (50.0, "0.3", ["There is a chance of one in 3.3 that it does"], ["giving away", "times as likely"]),
    ],
)
def test_a_weak_promise_is_called_weak(
    tmp_path: Path, epsilon: float, delta: str, says: list[str], never: list[str]
) -> None:
    text = streams.text_of("always").replace("epsilon = 2.0", f"epsilon = {epsilon}")
    text = text.replace("delta = 1e-09", f"delta = {delta}")
    config = StreamConfig.from_toml(text, base=tmp_path)
    assert (config.privacy.budget.epsilon, config.privacy.budget.delta) == (epsilon, float(delta))
    (tmp_path / "stream.toml").write_text(text)
    with Stream(config) as stream:
        stream.update(streams.rows(300, 3))
        stream.release()
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    shown = " ".join(Reader(page).text.split())
    for words in says:
        assert words in shown
    for words in never:
        assert words not in shown
    assert not re.search(r"[\d,]{12,}", shown.split("Download the newest")[0]), "absurd numbers"


@pytest.mark.sparing(2)
@pytest.mark.parametrize("kind", ["always", "epochs", "points", streams.PERSONS])
def test_links_lead_to_files_with_the_hashes_of_the_manifest(made: Made, kind: str) -> None:
    config = made[kind]
    manifest = history_of(config, progress=quiet).newest.manifest
    for place in (config.base, config.base / "releases"):
        links = Reader(public_page(config, place / "r.html", progress=quiet)).all("a")
        files = {link["data-file"]: link["href"] or "" for link in links if "data-file" in link}
        assert set(files) == {*manifest["files"], "manifest.json"}
        assert ("series.parquet" in files) == (config.workload is not None)
        for name, href in files.items():
            content = (place / unquote(href)).read_bytes()
            if name in manifest["files"]:
                assert hashlib.sha256(content).hexdigest() == manifest["files"][name]
            else:
                assert json.loads(content) == manifest


@pytest.mark.parametrize("place", ["elsewhere", "own/a folder"])
def test_a_page_that_lies_elsewhere_names_files_without_links(tmp_path: Path, place: str) -> None:
    config = make(tmp_path / "own", "always", rows=500)
    (tmp_path / place).mkdir()
    page = tmp_path / place / "r.html"
    said = CliRunner().invoke(app, ["report", str(config.base / "stream.toml"), "-o", str(page)])
    shown = Reader(page.read_text())
    names = {link["data-file"]: link.get("href") for link in shown.all("a") if "data-file" in link}
    assert names == dict.fromkeys(
        ["rows.parquet", "tables.parquet", "series.parquet", "measured.parquet", "manifest.json"]
    )
    assert "The files are not beside this page." in shown.text
    assert "../" not in page.read_text()
    assert "names files without links" in said.output


def test_a_folder_with_odd_characters_is_linked(tmp_path: Path) -> None:
    config = make(tmp_path / 'a "b" #c & <d>', "always")
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    check_self_contained(page)
    hrefs = [link["href"] or "" for link in Reader(page).all("a") if "data-file" in link]
    assert len(hrefs) == 5
    for href in hrefs:
        assert (tmp_path / unquote(href)).is_file()


def test_the_state_is_not_opened(tmp_path: Path) -> None:
    config = make(tmp_path, "always")
    before = public_page(config, tmp_path / "r.html", progress=quiet)
    shutil.rmtree(tmp_path / "state")
    for path in tmp_path.glob("rows-*.parquet"):
        path.unlink()
    assert public_page(config, tmp_path / "r.html", progress=quiet) == before


def test_the_public_page_opens_nothing_but_releases(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Python opens by itself; polars reads the files of releases by their names."""
    config, opened = made["epochs"], []
    real = os.open

    def spied(path: Any, *rest: Any, **more: Any) -> int:
        opened.append(str(path))
        return real(path, *rest, **more)

    monkeypatch.setattr(os, "open", spied)
    read = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        opened.append(str(self))
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    public_page(config, tmp_path / "r.html", progress=quiet)
    inside = [path for path in opened if path.startswith(str(config.base))]
    assert inside
    assert all(path.startswith(str(config.base / "releases")) for path in inside)


def test_true_rows_leave_no_trace_on_the_public_page(tmp_path: Path) -> None:
    config = streams.configured(tmp_path, "always")
    rows = streams.rows(2000, 3).with_columns(ward=pl.lit(CANARY), secret=pl.lit(CANARY))
    rows.write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        stream.ingest()
        for _ in range(3):
            stream.release()
    assert CANARY not in public_page(config, tmp_path / "r.html", progress=quiet)


HOSTILE = "<script>alert(1)</script>"


def hostile(folder: Path) -> StreamConfig:
    """A stream whose public names would be code, if they were not escaped."""
    text = streams.text_of("always")
    text = text.replace('name = "always"', f"name = '{HOSTILE}\" onload=\"x'")
    text = text.replace('name = "ward"', f"name = 'ward{HOSTILE}'").replace('"C"', "'\"><img src=x onerror=alert(1)>'")
    text = text.replace('name = "x"', "name = '</style><b>&amp;'")
    (folder / "stream.toml").write_text(text)
    config = StreamConfig.from_toml(text, base=folder)
    rows = streams.rows(1000, 1).rename({"ward": f"ward{HOSTILE}", "x": "</style><b>&amp;"})
    with Stream(config) as stream:
        stream.update(rows, batch_id="1")
        rows.write_parquet(folder / "rows-1.parquet")
        for _ in range(3):
            stream.release()
    return config


def test_texts_of_the_configuration_are_escaped(tmp_path: Path) -> None:
    config = hostile(tmp_path)
    for page in (public_page(config, tmp_path / "r.html", progress=quiet), custodian_page(config, progress=quiet)):
        check_self_contained(page)
        assert HOSTILE not in page
        assert HOSTILE in Reader(page).text
        assert "<img" not in page
        assert page.count("</style>") == 1


def test_a_simulated_stream_says_so(tmp_path: Path) -> None:
    config = streams.configured(tmp_path, "always")
    streams.rows(500, 3).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(simulated(config), gates=lambda tick: SeededGate(str(tick)), seed=0) as stream:
        stream.ingest()
        stream.release()
        stream.release()
    result = CliRunner().invoke(
        app, ["report", str(tmp_path / "stream.toml"), "-o", str(tmp_path / "r.html"), "--simulate"]
    )
    assert result.exit_code == 0, result.output
    assert "NOT PRIVATE" in result.output
    page = (tmp_path / "r.html").read_text()
    assert page.count("NOT PRIVATE") >= 3
    assert page.count("protects nobody; do not publish") >= 3
    assert "without giving away" not in page
    assert 'class="stamped"' in page
    assert "@top-center" in page
    with pytest.raises(SinkError, match="no release yet"):
        public_page(config, tmp_path / "r.html", progress=quiet)


def test_nothing_to_report_is_said_clearly(tmp_path: Path) -> None:
    config = streams.configured(tmp_path, "always")
    with pytest.raises(SinkError, match="no release yet"):
        public_page(config, tmp_path / "r.html", progress=quiet)
    text = streams.text_of("always").split("[sink]")[0] + streams._TABLE
    with pytest.raises(ConfigError, match=r"\[sink\]"):
        public_page(StreamConfig.from_toml(text, base=tmp_path), tmp_path / "r.html", progress=quiet)


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "always", rows=200)
    for ours, other in (("epsilon = 2.0", "epsilon = 1.0"), ("bins = 4", "bins = 5"), ('= "always"', '= "refresh"')):
        config = StreamConfig.from_toml(streams.text_of("always").replace(ours, other), base=tmp_path)
        with pytest.raises(ConfigError, match="other settings"):
            public_page(config, tmp_path / "r.html", progress=quiet)


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    config = make(tmp_path, "always", rows=200)
    path = tmp_path / "releases" / "000007" / "tables.parquet"
    pl.read_parquet(path).with_columns(count=pl.col("count") + 1).write_parquet(path)
    with pytest.raises(SinkError, match="not what was published"):
        public_page(config, tmp_path / "r.html", progress=quiet)


def test_a_fixed_number_of_rows_is_told_from_the_number_of_events(tmp_path: Path) -> None:
    text = streams.text_of("always").replace('path = "releases"', 'path = "releases"\nrows = 50')
    (tmp_path / "stream.toml").write_text(text)
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config) as stream:
        stream.update(streams.rows(900, 3))
        stream.release()
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    assert "of which 50 rows are published" in page
    assert len(pl.read_parquet(tmp_path / "releases" / "000000" / "rows.parquet")) == 50


def test_dropped_rows_and_gaps_are_counted(tmp_path: Path) -> None:
    config = make(tmp_path, "always", rows=500, keep=2)
    shutil.rmtree(tmp_path / "releases" / "000003")
    text = " ".join(Reader(public_page(config, tmp_path / "r.html", progress=quiet)).text.split())
    assert "7 releases: the first up to 2026-01-01, the newest up to 2026-01-08." in text
    assert "all events counted from 2026-01-01 up to and including 2026-01-08. An event with an earlier date" in text
    assert "1 tick has no release here." in text
    assert "5 older releases keep tables and manifest, but no rows." in text
    (tmp_path / "releases" / "000007" / "rows.parquet").unlink()
    links = Reader(public_page(config, tmp_path / "r.html", progress=quiet)).all("a")
    assert next(link["data-file"] for link in links if "data-file" in link) == "tables.parquet"


@pytest.mark.sparing(2)
@pytest.mark.parametrize("kind", ["always", "epochs", "selective", "stream-mwem", "points", "hypercube"])
def test_a_stream_without_events_has_pages(tmp_path: Path, kind: str) -> None:
    config = streams.configured(tmp_path, kind)
    streams.rows(8, 3).clear().write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        stream.ingest()
        for ticks in (1, 7):
            for _ in range(ticks):
                stream.release()
            check_self_contained(public_page(config, tmp_path / "r.html", progress=quiet))
            assert "NOT PRIVATE" in custodian_page(config, progress=quiet)


def test_a_first_release_without_rows(tmp_path: Path) -> None:
    config = streams.configured(tmp_path, "always")
    with Stream(config, gates=lambda _: ExactGate()) as stream:
        stream.release()
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    assert "Synthetic rows 0" in " ".join(re.sub("<[^>]+>", " ", page).split())
    assert "0 of 1 pairs have a colour" in page
    assert 'aria-label="Colours' not in page, "a scale of colours that nothing has"
    assert "Too few events so far: every number here may be noise." in page.split("What this is, and")[0]
    assert "1 release, up to 2026-01-01." in page
    assert 'style="left:50.0%">2026-01-02</span>' in page
    assert ">0:00<" not in page
    assert "No error is known" not in page


# -- association -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_noise_is_seldom_called_an_association_and_a_real_one_is_seen() -> None:
    rng = np.random.default_rng(5)
    laws = (((2, 2), "gaussian"), ((4, 7), "gaussian"), ((4, 7), "laplace"), ((15, 12), "laplace"))
    for (shape, law), total in itertools.product(laws, (300, 8000, 400_000)):
        p, q = rng.dirichlet(np.full(shape[0], 0.7)), rng.dirichlet(np.full(shape[1], 0.7))
        beyond = []
        for _ in range(400):
            noise = rng.normal(0, 50, shape) if law == "gaussian" else rng.laplace(0, 50 / np.sqrt(2), shape)
            events = rng.multinomial(total, np.outer(p, q).ravel()).reshape(shape)
            rows, columns = (np.maximum(events.sum(i) + rng.normal(0, 30, s.size), 1) for i, s in ((1, p), (0, q)))
            found = chance_of(
                events + noise,
                stderr=50,
                rows=rows,
                columns=columns,
                kurtosis=0 if law == "gaussian" else 3,
            )
            beyond.append(found)
        for limit, most in ((0.2, 0.26), (0.01, 0.03), (0.0005, 0.006)):
            assert np.mean(np.array(beyond) < limit) < most, (shape, law, total, limit)
    for total, strength in ((8000, 0.1), (400_000, 0.01)):
        table = total / 4 + total / 4 * strength * np.array([[1, -1], [-1, 1]])
        even = np.full(2, total / 2)
        assert chance_of(table, stderr=20, rows=even, columns=even) < 1e-5, total


@pytest.mark.parametrize("stderr", [0.0, 1e-200])
def test_counts_without_noise_to_speak_of_are_judged_by_chance_alone(stderr: float) -> None:
    assert chance_of(50 * np.eye(2), stderr=stderr, rows=np.full(2, 50), columns=np.full(2, 50)) < 1e-9
    assert chance_of(np.full((2, 2), 25.0), stderr=stderr, rows=np.full(2, 50), columns=np.full(2, 50)) > 0.1


def test_too_small_a_standard_error_would_be_noticed() -> None:
    rng = np.random.default_rng(6)
    even = np.full(6, 1000.0)
    found = [
        chance_of(np.full((6, 6), 6000 / 36) + rng.normal(0, 50, (6, 6)), stderr=20, rows=even, columns=even) < 0.01
        for _ in range(200)
    ]
    assert np.mean(found) > 0.9


def test_of_many_pairs_of_noise_hardly_one_is_called_an_association() -> None:
    rng, called = np.random.default_rng(7), 0
    for _ in range(200):
        called += sum(seen(list(rng.uniform(size=231))))
    assert called < 40  # one of 20 families has one; each test by itself at 1 % would call 462
    assert sum(seen([1e-6] * 5 + list(rng.uniform(0.1, 1, 226)))) == 5


def test_cramers_v_of_known_tables() -> None:
    assert cramers_v(np.array([[30.0, 10.0], [10.0, 30.0]])) == pytest.approx(0.5)
    assert cramers_v(np.array([[30.0, 10.0], [0.0, 0.0]])) is None


def test_pairs_of_a_stream_that_has_one(tmp_path: Path) -> None:
    config = streams.configured(tmp_path, "always")
    rows = streams.rows(4000, 3).with_columns(x=pl.when(pl.col("ward") == "A").then(1.0).otherwise(9.0))
    rows.write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        stream.ingest()
        for _ in range(stream.due()):
            stream.release()
    found = history_of(config, progress=quiet)
    (pair,) = pairs(found, found.cells(found.newest))
    assert not pair.is_noise
    assert pair.strength is not None
    # 1 in truth. Noise gives values that nothing has a few rows; Cramér's V divides by the number of values less one:
    # five of either column, so 1/2 less a little. Below 0.4 noise must misplace 700 of 4,000 rows, 20 standard errors.
    assert pair.strength > 0.4
    assert "<td>below 0.001</td>" in public_page(config, tmp_path / "r.html", progress=quiet)


def test_a_column_of_one_value_has_grey_cells(tmp_path: Path) -> None:
    text = streams.text_of("always").replace("epsilon = 2.0", "epsilon = 100000.0")
    text += '[[columns]]\nname = "same"\ntype = "category"\nvalues = ["a", "b"]\n'
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config, gates=lambda _: ExactGate()) as stream:
        stream.update(streams.rows(2000, 3).with_columns(same=pl.lit("a")))
        stream.release()
    found = history_of(config, progress=quiet)
    listed = pairs(found, found.cells(found.newest))
    assert [p.columns for p in listed if p.strength is None] == [(0, 2), (1, 2)]
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    for other in ("ward", "x"):
        assert re.search(rf'<rect class="m0"[^>]*><title>same and {other}: one of them has one value alone<', page)
    assert page.count("<rect ") == 3
    assert "within noise and chance, or with a column of one value alone" in page
    rows = page.split('<ol class="rows"')[1].split("</ol>")[0]
    assert re.findall(r'"name">(\w+)</span> <span class="no">(\d)', rows) == [("ward", "1"), ("x", "2"), ("same", "3")]


@pytest.mark.parametrize("kind", ["epochs", "always"])
def test_measurements_of_epochs_add_up_to_the_truth(made: Made, kind: str) -> None:
    found: History = history_of(made[kind], progress=quiet)
    chain = found.measured_chain((0,))
    assert len(chain) > (1 if kind == "epochs" else 0)
    here = found.workload.slice_of((0,))
    truth = truth_of_tables(found, progress=quiet)
    true = truth.counts[[t.tick for t in truth.ticks].index(chain[0][0].tick)][here]
    measured = np.sum([cells.measured[here] for _, cells in chain], axis=0)
    stderr = np.sqrt(np.sum([cells.stderr[here] ** 2 for _, cells in chain], axis=0))
    # 12, as Laplace noise has long tails: Chernoff's bound for a sum of five is 6e-12 a side and cell. An epoch too few
    # would be 65 standard errors.
    assert np.all(np.abs(measured - true) < 12 * stderr)


# -- the custodian's page --------------------------------------------------------------------------------------------


@pytest.mark.sparing(3)
@pytest.mark.parametrize("kind", [*streams.KINDS, streams.PERSONS])
def test_every_kind_has_a_custodians_page(made: Made, kind: str) -> None:
    page = custodian_page(made[kind], progress=quiet)
    check_self_contained(page)
    assert page.count(STAMP) >= 3
    assert "@top-center" in page
    assert touching(page) == []
    assert ("a gap in a line" in page) == ("–</td>" in page)
    assert "</svg>measured</li>" not in page, "measured are noisy counts, and no errors"
    assert ("</svg>forecast</li>" in page) == (kind in {"points", "points-zcdp", "hypercube"}), (
        "distances beside those that plan tells"
    )


def test_points_have_a_forecast_where_noise_made_an_older_release_the_largest(made: Made) -> None:
    found = history_of(made["points"], progress=quiet)
    older = replace(found.newest, tick=3, rows=3 * found.newest.rows)
    (line,) = _forecasts(found, [older, found.newest], quiet)
    assert line.y[0] == line.y[1]
    assert line.y[0]


def test_true_counts_are_those_of_the_stream(made: Made) -> None:
    found = history_of(made["always"], progress=quiet)
    truth = truth_of_tables(found, progress=quiet)
    rows = streams.rows(3000, 3)
    for tick, counts in zip(truth.ticks, truth.counts, strict=True):
        until = rows.filter(pl.col("when") < tick.end.replace(tzinfo=None))
        assert counts[0] == len(until)
        assert counts[found.workload.slice_of((0,))][0] == (until["ward"] == "A").sum()


def test_of_persons_as_many_rows_count_as_in_the_stream(tmp_path: Path) -> None:
    """With next to no noise the measured total is the number of rows that counted."""
    text = streams.text_of(streams.PERSONS).replace("epsilon = 2.0", "epsilon = 100000.0")
    (tmp_path / "stream.toml").write_text(text)
    config = StreamConfig.from_toml(text, base=tmp_path)
    streams.rows(3000, 3).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        stream.ingest()
        for _ in range(stream.due()):
            stream.release()
    found = history_of(config, progress=quiet)
    truth = truth_of_tables(found, progress=quiet)
    assert truth.events == 3000
    for tick, counts in zip(truth.ticks, truth.counts, strict=True):
        assert abs(found.cells(tick).measured[0] - counts[0]) < 1
    assert truth.counts[-1][0] < 3000


def test_the_custodians_page_is_for_its_owner_alone(tmp_path: Path) -> None:
    make(tmp_path, "always", rows=300)
    output = tmp_path / "custodian.html"
    seen = []
    old = os.umask(0)
    try:
        real = os.open

        def spied(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
            handle = real(path, flags, mode, **more)
            if str(path).startswith(str(tmp_path)) and flags & os.O_CREAT:
                seen.append((os.fstat(handle).st_mode & 0o777, flags & os.O_EXCL))
            return handle

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "open", spied)
            result = CliRunner().invoke(
                app, ["report", str(tmp_path / "stream.toml"), "-o", str(output), "--custodian"]
            )
    finally:
        os.umask(old)
    assert result.exit_code == 0, result.output
    assert "NOT PRIVATE" in result.output
    assert output.stat().st_mode & 0o777 == 0o600
    assert seen == [(0o600, os.O_EXCL)]
    assert not list(tmp_path.glob(".custodian*"))


def test_a_file_that_cannot_be_read_is_told_with_what_to_do(tmp_path: Path) -> None:
    config = make(tmp_path, "always", rows=300)
    (tmp_path / "rows-9.parquet").touch()
    with pytest.raises(FileDamaged, match="or move it away if it was never counted"):
        custodian_page(config, progress=quiet)


@pytest.mark.parametrize("switch", [["--custodian"], []])
def test_no_page_goes_among_the_releases(tmp_path: Path, switch: list[str]) -> None:
    make(tmp_path, "always", rows=300)
    before = sorted((tmp_path / "releases").rglob("*"))
    (tmp_path / "alias").symlink_to(tmp_path / "releases")
    (tmp_path / "releases-simulated").mkdir()
    for place in ("releases/c.html", "releases/000003/c.html", "alias/c.html", "releases-simulated/c.html"):
        result = CliRunner().invoke(
            app, ["report", str(tmp_path / "stream.toml"), "-o", str(tmp_path / place), *switch]
        )
        assert result.exit_code == 2
        assert "holds releases alone" in result.output
    assert sorted((tmp_path / "releases").rglob("*")) == before


def test_rows_that_take_away_are_subtracted(tmp_path: Path) -> None:
    text = 'op = "op"\n' + streams.text_of("always").replace("epsilon = 2.0", "epsilon = 100000.0")
    (tmp_path / "stream.toml").write_text(text)
    config = StreamConfig.from_toml(text, base=tmp_path)
    rows = streams.rows(900, 3).with_columns(op=pl.Series([1, 1, -1] * 300))
    rows.write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config) as stream:
        stream.ingest()
        for _ in range(stream.due()):
            stream.release()
    found = history_of(config, progress=quiet)
    truth = truth_of_tables(found, progress=quiet)
    assert truth.counts[-1][0] == 300
    assert abs(found.cells(found.newest).measured[0] - 300) < 1
    assert "subtracted" in custodian_page(config, progress=quiet)
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    assert page.count("how that number changed") == 1
    assert "less those that were taken away" in page
    assert CliRunner().invoke(app, ["describe", str(tmp_path / "stream.toml")]).exit_code == 0
    assert "how that number changed" in (tmp_path / "releases/README.md").read_text()
    for command in (
        ["series"],
        ["compare", "ward", "--then", "2026-01-01", "2026-01-03", "--now", "2026-01-03", "2026-01-05"],
    ):
        said = CliRunner().invoke(app, [command[0], str(tmp_path / "stream.toml"), *command[1:]])
        assert (said.exit_code, "how that number changed" in said.stderr) == (0, True), said.stderr


def test_a_public_page_that_lies_there_becomes_private(tmp_path: Path) -> None:
    make(tmp_path, "always", rows=300)
    output = tmp_path / "r.html"
    output.write_text("old")
    output.chmod(0o644)
    write_page(output, "new", private=True)
    assert (output.read_text(), output.stat().st_mode & 0o777) == ("new", 0o600)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.html"
    target.write_text("untouched")
    link = tmp_path / "r.html"
    link.symlink_to(target)
    for path in (link, tmp_path, tmp_path / "no" / "r.html"):
        with pytest.raises(ConfigError, match="-o"):
            write_page(path, "page", private=True)
        with pytest.raises(ConfigError, match="-o"):
            check_place(path)
    assert target.read_text() == "untouched"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "r.html"
    output.write_text("old")

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ConfigError, match=r"-o .*r\.html: No space left on device\. Nothing was written\.$"):
        write_page(output, "new")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    assert output.read_text() == "old"


def test_a_count_measured_below_0_is_shown(tmp_path: Path) -> None:
    """Of many values that nothing has, noise brings about half below 0."""
    values = ", ".join(f'"v{i}"' for i in range(40))
    text = streams.text_of("always").replace("epsilon = 2.0", "epsilon = 0.5").replace('"A", "B", "C"', values)
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config) as stream:
        stream.update(streams.rows(300, 3).with_columns(ward=pl.lit("v0")))
        stream.release()
    found = history_of(config, progress=quiet)
    cells, workload = found.cells(found.newest), found.workload
    measured = np.concatenate([cells.measured[workload.slice_of((c,))] for c in (0, 1)])
    below = int((measured < 0).sum())
    assert below > 3
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    assert page.count('<b class="below"></b>') == below
    assert page.count('<b class="at"') == measured.size - below
    notes = re.findall(r'class="unseen"> \(([^<]*)\)</span>', page)
    assert len(notes) == below
    assert all(re.search(r"measured (\u2212[\d,]+|0) \(below 0\), standard error", note) for note in notes)
    assert "an arrow (◂) at the left stands for its circle" in page


# -- small parts -----------------------------------------------------------------------------------------------------


def test_every_theorem_has_a_sentence_and_no_other() -> None:
    assert set(STATEMENTS) == {path.stem for path in THEOREMS.glob("*.md")} - {"README"}


def test_latitude_and_longitude_are_found_by_name(made: Made) -> None:
    columns = made["points"].schema.columns
    assert axes_of(columns) is None
    assert axes_of(columns, any_pair=True) == (0, 1, False)


def test_a_median_has_the_digits_that_its_column_needs(made: Made) -> None:
    tick = history_of(made["points"], progress=quiet).newest
    for low, high, wanted in ((52.3, 52.7, "from 52.463 to"), (0.0, 60.0, "from 52.5 to"), (0.1, 1e4, "from 52.5 to")):
        assert wanted in middle_chart([(tick, (52.0, 52.463, 52.6))] * 2, low=low, high=high)


def test_a_map_of_points_tells_its_errors(made: Made, tmp_path: Path) -> None:
    page = public_page(made["points"], tmp_path / "r.html", progress=quiet)
    assert "A cell has a standard error of" in page
    assert "Measured (range" not in page  # that is of totals, and they have no error here
    assert "any range has a standard error, which the package computes from a release; the numbers of the map" in page
    page = public_page(made["hypercube"], tmp_path / "r.html", progress=quiet)
    assert "No error bars are published with these counts." in page
    assert "Counts of places are renewed when the number of events has doubled" in page
    assert "Detail lags behind" not in page
    found, last = history_of(made["points"], progress=quiet), Releases(made["points"]).last
    assert isinstance(last, PointRelease)
    grid = grid_of_nodes(found, found.nodes(found.newest), last.model)
    assert grid is not None
    assert grid.errors is not None
    assert grid.errors[0].shape == grid.counts.shape
    assert (grid.errors[0] > 0).all()
    x, y = last.coordinates
    for parts, error in ((np.array(grid.counts.shape[::-1]), grid.errors[0]), (np.array([4, 4]), grid.errors[1])):
        first = {c.name: c.min + (c.max - c.min) / part for c, part in zip((x, y), parts, strict=True)}
        assert error[0, 0] == pytest.approx(last.mass({}, first)["stderr"])


def test_a_value_with_many_blanks_takes_no_longer_than_others() -> None:
    """A custodian's page shows values of rows: one of them could keep it from being written."""
    long, begun = f"a{' ' * 100_000}b", time.process_time()
    assert long in render("base.html", title=long, name="x", stamp="")
    assert long in macro("numbers", table={"headings": [long], "rows": [], "caption": ""}, title="x")
    assert time.process_time() - begun < 2


def test_a_template_with_a_missing_value_fails() -> None:
    with pytest.raises(Exception, match="undefined"):
        render("base.html", title="x", name="x")


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_style_sheet_names_each_colour_in_both_schemes() -> None:
    style = render("base.html", title="x", name="x", stamp="")
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    palettes = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in (light, dark)]
    assert palettes[0].keys() == palettes[1].keys()
    for palette in palettes:
        for name in ("bar", "bar-muted", "error", "muted", *(f"s{i}" for i in range(1, 7))):
            assert contrast(palette[name], palette["paper"]) >= 3, f"{name} is hard to see"
        assert contrast(palette["m0"], palette["m1"]) >= 1.2, "noise is told from the least"
        lightness = [luminance(palette[f"m{i}"]) for i in range(1, 8)]
        assert lightness in (sorted(lightness), sorted(lightness, reverse=True)), "a sequence grows in lightness alone"
    rest = style.replace(light, "").replace(dark, "").split("<body")[0]
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;} ])", rest), "colours come from the palette alone"


def test_numbers_stand_below_bars_with_what_may_be_noise(made: Made, tmp_path: Path) -> None:
    found = history_of(made["always"], progress=quiet)
    cells, here = found.cells(found.newest), found.workload.slice_of((0,))
    page = public_page(made["always"], tmp_path / "r.html", progress=quiet)
    table = page.split('aria-label="The numbers: ward now"')[1].split("</table>")[0]
    row = table.split('<th scope="row">A</th>')[1].split("</tr>")[0]
    assert (
        f"<td>{cells.count[here][0]:,.0f}</td><td>{ranged(cells.measured[here][0], cells.stderr[here][0])}</td>" in row
    )
    assert row.endswith("<td>no</td>")
    assert "The numbers: x now" in public_page(made["epochs"], tmp_path / "r.html", progress=quiet)
    assert "The numbers: x now" not in public_page(made["hypercube"], tmp_path / "r.html", progress=quiet)


def test_what_came_in_each_step_is_drawn_with_bands(made: Made, tmp_path: Path) -> None:
    for kind in ("always", "epochs"):
        page = public_page(made[kind], tmp_path / "r.html", progress=quiet)
        assert "Events per day" in page
        assert ("the total alone has numbers" in page) == (kind == "epochs")
        recent = page[page.index('id="recent"') : page.index('id="columns"')]
        assert ('class="multiples"' in recent) == (kind != "epochs")
        assert "A year before" not in page  # the stream is a week old
        assert "before 2026-01-09" not in page.split("How to cite")[0]
    always = history_of(made["always"], progress=quiet)
    assert [_says(always, "x", bin_) for bin_ in ("[2.5, 5)", "missing")] == ["x: 2.5 to 5.0", "x: missing"]
    assert "Events per" not in public_page(made["points"], tmp_path / "r.html", progress=quiet)


def test_the_newest_step_stands_beside_last_years(tmp_path: Path) -> None:
    text = streams.text_of("always").replace('every = "1d"', 'every = "1mo"').replace("2026-01-09", "2025-06-01")
    config = StreamConfig.from_toml(
        text.replace("horizon = 12", "horizon = 24").replace("2026-01-01", "2024-01-01"), base=tmp_path
    )
    when = [datetime(2024, 1, 15) + timedelta(days=30.4 * (i % 17)) for i in range(3400)]
    pl.DataFrame({"when": when, "ward": ["A"] * 3400, "x": [1.0] * 3400}).write_parquet(tmp_path / "rows-1.parquet")
    with Stream(config, gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    beside = Releases(config).beside_last_year()
    one = beside.filter(pl.col("value") == "A").row(0, named=True)
    assert (one["start"], one["start_then"]) == (datetime(2025, 5, 1), datetime(2024, 5, 1))
    assert (one["measured"], one["then"], one["difference"]) == pytest.approx((200, 200, 0), abs=0.5)
    apart = (one["stderr"] ** 2 + one["stderr_then"] ** 2) ** 0.5  # nearly: what two steps share is little
    assert one["stderr_difference"] != apart
    assert one["stderr_difference"] == pytest.approx(apart, rel=0.01)
    page = public_page(config, tmp_path / "r.html", progress=quiet)
    assert "2025-05-01 to 2025-05-31, beside 2024-05-01 to 2024-05-31" in page
    assert re.search(
        r"ward: A</th>(<td>200 \([^)]+ to [^)]+\)</td>){2}<td>0 \(\u2212\d+ to \d+\)</td><td>no</td>", page
    )
    assert "Each count stands where its month begins. Noise" in page


def test_a_month_of_five_weeks_stands_beside_five_weeks_of_last_year(tmp_path: Path) -> None:
    text = streams.text_of("always").replace('every = "1d"', 'every = "1w"').replace("2026-01-09", "2025-04-07")
    text = text.replace("horizon = 12", "horizon = 80").replace("2026-01-01", "2024-01-01")
    when = [datetime(2024, 1, 1, 12) + timedelta(days=day) for day in range(66 * 7) for _ in range(10)]
    frame = pl.DataFrame({"when": when, "ward": ["A"] * len(when), "x": [1.0] * len(when)})
    frame.write_parquet(tmp_path / "rows-1.parquet")
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config, gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    one = Releases(config).beside_last_year(every="1mo").filter(pl.col("column").is_null()).row(0, named=True)
    assert (one["start"], one["end"]) == (datetime(2025, 3, 3), datetime(2025, 4, 7))  # in 2024 March has four Mondays
    assert (one["start_then"], one["end_then"]) == (datetime(2024, 3, 4), datetime(2024, 4, 8))
    assert (one["measured"], one["difference"]) == pytest.approx((350, 0), abs=0.5)
    assert "some have one more than others" in public_page(config, tmp_path / "r.html", progress=quiet)


def test_a_year_does_not_stand_beside_ticks_of_its_own(tmp_path: Path) -> None:
    text = streams.text_of("always").replace('every = "1d"', 'every = "1mo"').replace("2026-01-09", "2026-01-01")
    text = text.replace("horizon = 12", "horizon = 24").replace("start = 2026-01-01", "start = 2024-07-01")
    pl.DataFrame({"when": [datetime(2025, 1, 15)] * 9, "ward": ["A"] * 9, "x": [1.0] * 9}).write_parquet(
        tmp_path / "rows-1.parquet"
    )
    config = StreamConfig.from_toml(text, base=tmp_path)
    with Stream(config, gates=lambda _: ExactGate()) as stream:
        list(stream.run())
    assert Releases(config).beside_last_year(every="1y").is_empty()  # the first year has begun in July


def test_a_step_stands_where_it_begins() -> None:
    ends = [datetime(2026, month, 1) for month in (1, 2, 3, 4)]
    part = pl.DataFrame({"start": ends[:-1], "end": ends[1:], "measured": [5.0, 6, 7], "stderr": [1.0] * 3})
    chart = _chart(part.with_columns(whole=pl.lit(value=True)), "All", small=False)
    line = re.findall(r'class="line s1" d="M([^"]*)"', chart)[0]
    assert [float(point.split()[0]) for point in line.split("L")] == [0, pytest.approx(1000 * 31 / 59, abs=0.1), 1000]


def test_a_step_that_is_not_over_is_a_dot_beside_its_line() -> None:
    days = [datetime(2026, 1, day) for day in (1, 2, 3, 4, 5)]
    part = pl.DataFrame({"start": days[:-1], "end": days[1:], "measured": [5.0, 6, 7, 1], "stderr": [1.0] * 4})
    whole = _chart(part.with_columns(whole=pl.lit(value=True)), "All", small=False)
    partly = _chart(part.with_columns(whole=pl.Series([True, True, True, False])), "All", small=False)
    lines = [re.findall(r'class="line s1" d="([^"]*)"', page)[0] for page in (whole, partly)]
    assert [line.count("L") for line in lines] == [3, 2]
    assert ['class="dot' in page for page in (whole, partly)] == [False, True]
    assert "2026-01-04</th><td>1 (\u22121 to 3) (not whole)" in partly
    assert "is not complete" in partly
    assert "not whole" not in whole
