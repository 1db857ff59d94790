"""The explorer as a browser shows it: it answers, it asks nobody else, and everyone can read it."""

from __future__ import annotations

import base64
import csv
import functools
import http.server
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from typer.testing import CliRunner

import synthstream
from synthstream.cli.app import app
from synthstream.config.config import load
from synthstream.publish.history import history_of
from synthstream.report.association import pairs, seen
from tests.browser.chromium import picture, requests, scheme, size
from tests.browser.looking import CONTRAST, CUT_OFF
from tests.browser.streams import made

pytestmark = pytest.mark.slow
pytest.importorskip("vl_convert", reason="the extra `site` is not installed")

EVICTIONS = Path(__file__).parents[2] / "examples"
# From npm: axe-core (make test-all puts it there).
AXE = Path(os.environ.get("SYNTHSTREAM_AXE", Path(sys.prefix) / "node_modules/axe-core/axe.min.js"))


class Asked(http.server.SimpleHTTPRequestHandler):
    """As ``python -m http.server``, but silent."""

    def log_message(self, *words: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, driver: Any) -> Path:
    """A stream with columns of all kinds, and its site."""
    found = tmp_path_factory.mktemp("a stream")
    made(found)
    publish(found)
    return found


@pytest.fixture(scope="module")
def evictions(tmp_path_factory: pytest.TempPathFactory, driver: Any) -> Path:
    """The example of its last eight months, 35 releases, and its site."""
    found = tmp_path_factory.mktemp("examples")
    for name in ("data", "evictions"):
        shutil.copytree(EVICTIONS / name, found / name, ignore=shutil.ignore_patterns("state*", "releases*"))
    config = found / "evictions/stream.toml"
    text = config.read_text()
    assert "start = 2011-01-01" in text
    config.write_text(text.replace("start = 2011-01-01", "start = 2015-05-02"))
    command(["run", str(config), "-q", "--yes"])
    publish(found / "evictions")
    return found / "evictions"


def command(words: list[str]) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output


def publish(folder: Path) -> None:
    command(["publish", str(folder / "stream.toml"), str(folder / "site"), "-q"])


@pytest.fixture(scope="module", params=["server", "disk"])
def root(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    yield from address(folder, request.param)


@pytest.fixture(scope="module")
def disk(folder: Path) -> str:
    """Where it is found on a disk, for what looks the same from anywhere."""
    return (folder / "site").as_uri()


@pytest.fixture(scope="module")
def server(evictions: Path) -> Iterator[str]:
    yield from address(evictions, "server")


def address(folder: Path, kind: str) -> Iterator[str]:
    """Where the site in a folder is found."""
    if kind == "disk":
        yield (folder / "site").as_uri()
        return
    handler = functools.partial(Asked, directory=str(folder / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


def show(driver: Any, root: str, *, width: int = 1200, colours: str = "light", **picked: Any) -> None:
    size(driver, width)
    scheme(driver, colours)
    driver.get("about:blank")
    driver.get(f"{root}/latest/explorer.html#{urlencode(picked)}")
    ready(driver)


def ready(driver: Any) -> None:
    begun = time.monotonic()
    while not driver.execute_script("return document.body.dataset.ready"):
        assert time.monotonic() - begun < 30, driver.execute_script("return document.getElementById('said').innerText")
        time.sleep(0.05)


def numbers(driver: Any, section: str) -> list[dict[str, str]]:
    """The table behind a chart, as its CSV says."""
    text = driver.execute_async_script(
        "fetch(document.querySelector(`#${arguments[0]} [data-csv]`).href).then(r => r.text()).then(arguments[1])",
        section,
    )
    return list(csv.DictReader(text.splitlines()))


def drawn(driver: Any, section: str, kind: str) -> int:
    """How many marks of a kind a chart has."""
    marks = f"#{section} .mark-{kind}:not([aria-hidden=true]) > path, #{section} .mark-{kind} > g > path"
    return int(driver.execute_script("return document.querySelectorAll(arguments[0]).length", marks))


# -- it answers ------------------------------------------------------------------------------------------------------


def test_non_payment_by_week_in_half_a_year(driver: Any, server: str, evictions: Path) -> None:
    picked: dict[str, Any] = {
        "column": 3,
        "values": "1",
        "from": "2015-07-01",
        "to": "2016-01-01",
        "every": "tick",
        "with": "",
    }
    show(driver, server, **picked)
    found = numbers(driver, "series")
    assert len(found) == 27
    assert {row["value"] for row in found} == {"true"}
    assert (found[0]["start"], found[-1]["end"]) == ("2015-06-27", "2016-01-02")
    releases = synthstream.releases(evictions / "stream.toml")
    for row in (found[0], found[20], found[-1]):
        own = releases.between(row["start"], row["end"]).table(["Non Payment"]).row(1, named=True)
        assert own["Non Payment"] == "true"
        assert float(row["measured"]) == pytest.approx(own["measured"], abs=0.01)
        assert float(row["stderr"]) == pytest.approx(own["stderr"], rel=1e-3)
    assert drawn(driver, "series", "symbol") == 27
    assert drawn(driver, "series", "area") == drawn(driver, "series", "line") == 1
    assert "week" in driver.execute_script("return document.querySelector('#series svg').textContent")
    title = driver.find_element("css selector", "#series h3").text
    assert title == "Non Payment: true, by week; measured, with noise"
    year = releases.between(found[0]["start"], found[-1]["end"]).table(["Non Payment"]).row(1, named=True)
    assert sum(float(row["measured"]) for row in found) == pytest.approx(year["measured"], abs=0.1)


def test_zip_by_cause_in_a_quarter_beside_the_one_before(driver: Any, server: str, evictions: Path) -> None:
    picked: dict[str, Any] = {"column": 0, "with": 10, "to": "2016-01-02", "beside": 1}
    picked |= {"from": "2015-10-03", "from2": "2015-07-04", "to2": "2015-10-03"}
    show(driver, server, **picked)
    titles = driver.execute_script("return [...document.querySelectorAll('#pairs h3')].map(h => h.textContent)")
    found = numbers(driver, "pairs")
    spans = [[found[0][f"{end}{side}"] for end in ("start", "end")] for side in ("", " beside")]
    assert [span[1][:4] for span in spans] == ["2015", "2015"]
    for title, (first, before) in zip(titles, spans, strict=True):  # with the last day
        last = datetime.fromisoformat(before) - timedelta(days=1)
        assert title.endswith(f"Owner Move In, {first} to {last:%Y-%m-%d}; measured, with noise")
    head = driver.execute_script("return [...document.querySelectorAll('#pairs thead th')].map(h => h.textContent)")
    assert head[2:6] == ["start", "before", "measured", "95 % range"]
    first = driver.execute_script("return document.querySelectorAll('#pairs tbody td')[4].textContent")
    low, high = (float(text.replace(",", "")) for text in first.split(" to "))
    assert high - low == pytest.approx(4 * float(found[0]["stderr"]), abs=1)
    assert spans[0][0] <= "2015-10-03" <= spans[0][1]
    assert len(found) == 29 * 2
    releases, names = (
        synthstream.releases(evictions / "stream.toml"),
        ["Eviction Notice Source Zipcode", "Owner Move In"],
    )
    for span, suffix in zip(spans, ("", " beside"), strict=True):
        own = releases.between(*span).table(names)
        np.testing.assert_allclose([float(row[f"measured{suffix}"]) for row in found], own["measured"], atol=0.01)
        np.testing.assert_allclose([float(row[f"stderr{suffix}"]) for row in found], own["stderr"], rtol=1e-3)
    begin, end, then, until = (datetime.fromisoformat(day) for span in spans for day in span)
    assert ("difference" in found[0]) == (begin >= until and end - begin == until - then)
    assert drawn(driver, "pairs", "rect") >= 2 * 29 * 2
    bars = numbers(driver, "bars")
    assert len(bars) == 29
    assert {"measured", "measured beside", "difference", "stderr of difference"} <= bars[0].keys()
    for row in bars:
        apart = float(row["measured"]) - float(row["measured beside"])
        assert float(row["difference"]) == pytest.approx(apart, abs=0.01)


def test_two_releases_side_by_side(driver: Any, server: str, evictions: Path) -> None:
    show(driver, server, column=0, beside=1, from2="2015-05-02", to2="2015-10-01")
    found = numbers(driver, "bars")
    releases = synthstream.releases(evictions / "stream.toml")
    column = "Eviction Notice Source Zipcode"
    both = (("", releases.last), (" beside", releases.at("2015-10-03")))
    for suffix, release in both:
        own = release.table([column])
        assert [int(row[f"rows{suffix}"]) for row in found] == own["count"].to_list()
        np.testing.assert_allclose([float(row[f"measured{suffix}"]) for row in found], own["measured"], atol=0.01)
    known = {
        row[column]: row["stderr"] for row in releases.last.compare(releases.at("2015-10-03"), [column]).to_dicts()
    }
    for row in found:
        assert float(row["stderr of difference"]) == pytest.approx(known[row["value"]], rel=1e-3)


def test_cells_that_noise_could_fill_are_grey_and_pairs_are_judged_as_in_the_report(
    driver: Any, disk: str, folder: Path
) -> None:
    show(driver, disk, column=0, **dict[str, Any]({"with": 1, "every": "month"}))
    found = numbers(driver, "pairs")
    z = [min(float(row["measured"]), float(row["rows"])) / float(row["stderr"]) for row in found]
    plain = [
        not real or float(row["rows"]) <= 0
        for real, row in zip(seen([float(norm.sf(each)) for each in z]), found, strict=True)
    ]
    fills = driver.execute_script(
        "return [...document.querySelectorAll('#pairs .mark-rect.role-mark path')].map(p => getComputedStyle(p).fill)"
    )
    grey = driver.execute_script("return getComputedStyle(document.body).getPropertyValue('--m0').trim()")
    blank = [f"#{int(a):02x}{int(b):02x}{int(c):02x}" == grey for a, b, c in (f[4:-1].split(",") for f in fills)]
    assert blank == plain
    assert 0 < sum(blank) < len(blank)
    key = driver.execute_script(
        "return [...document.querySelectorAll('#pairs .role-legend-label text')].map(t => t.textContent)"
    )
    bounds = [float(text.replace(",", "")) for text in key if text]
    assert len(bounds) > 3
    assert bounds == sorted(bounds)
    assert bounds[-1] < max(float(row["rows"]) for row in found)
    history = history_of(load(folder / "stream.toml"), progress=lambda steps, _: steps)
    judged = {pair.columns: pair for pair in pairs(history, history.cells(history.newest))}
    note = driver.execute_script("return document.querySelector('#pairs [data-note]').innerText")
    assert ("no sign that the two are related" in note) == judged[0, 1].is_noise
    assert "no cell stands out" not in note
    within = driver.execute_script(
        "return [...document.querySelectorAll('#with optgroup[label^=\"within noise\"] option')].map(o => +o.value)"
    )
    assert within == [i for i in range(1, 7) if judged[0, i].is_noise]


# Labels of the axis of dates, how many ticks it has, dashes of lines and of the legend, ends of the bars' lines and of
# their frame, and the smallest cell of the pairs.
_READ = """
const all = found => [...document.querySelectorAll(found)], dates = "#series .role-axis[aria-label^=X]";
const dashes = found => all(found).map(p => p.getAttribute("stroke-dasharray") ?? "");
const box = p => p.getBoundingClientRect(), bars = all("#bars .mark-rule.role-mark line").map(box);
return [all(`${dates} .role-axis-label text`).filter(t => t.getAttribute("opacity") !== "0").map(t => t.textContent),
  all(`${dates} .role-axis-tick line`).length, dashes("#series .mark-line.role-mark path"),
  dashes("#series .role-legend-symbol path"), Math.max(...bars.filter(b => b.width > 2).map(b => b.right)),
  Math.max(...all("#bars .role-axis-domain line").map(l => box(l).right)),
  Math.min(...all("#pairs .mark-rect.role-mark path").map(p => box(p).width))];
"""


def test_axes_legends_and_cells_can_be_read(driver: Any, disk: str) -> None:
    show(driver, disk, column=0, values="0.1.2", every="tick", **dict[str, Any]({"with": 1}))
    labels, ticks, lines, legend, reach, frame, cell = driver.execute_script(_READ)
    weeks = {row["start"] for row in numbers(driver, "series")}  # with their year
    assert len(labels) == ticks > 3
    assert set(labels) <= weeks, "labels stand where something was counted"
    assert lines == legend
    assert len({*lines}) == 3
    assert reach < frame - 5
    assert cell >= 60
    lede = driver.execute_script("return document.querySelector('.lede').innerText")
    assert "Bars and colours count synthetic rows" in lede


def test_a_month_that_is_not_over_is_an_open_dot(driver: Any, root: str) -> None:
    show(driver, root, column=1, values="1", every="month")
    assert [row["whole"] for row in numbers(driver, "series")] == ["yes", "yes", "no"]
    note = driver.find_element("css selector", "#series [data-note]").text
    assert "An open dot is a month that is not complete." in note
    show(driver, root, column=1, values="1", every="tick")
    assert "whole" not in numbers(driver, "series")[0]


def test_a_stream_in_epochs_has_bands_and_all_events_by_tick(
    driver: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("epochs")
    made(folder, delta=0)
    publish(folder)
    found = synthstream.releases(folder / "stream.toml")
    show(driver, (folder / "site").as_uri(), column=1, values="1", every="epoch", beside=1)
    own = found.series("urgent").filter(pl.col("value") == "true")
    rows = numbers(driver, "series")
    np.testing.assert_allclose([float(row["measured"]) for row in rows], own["measured"], atol=0.01)
    np.testing.assert_allclose([float(row["stderr"]) for row in rows], own["stderr"], rtol=1e-3)
    assert drawn(driver, "series", "area") == 1
    bars = numbers(driver, "bars")
    assert float(bars[1]["measured"]) == pytest.approx(own["measured"].sum(), abs=0.01)
    assert float(bars[1]["stderr"]) == pytest.approx(np.linalg.norm(own["stderr"].to_numpy()), rel=1e-3)
    show(driver, (folder / "site").as_uri(), column=7, every="tick")
    rows, total = numbers(driver, "series"), found.series()
    np.testing.assert_allclose([float(row["measured"]) for row in rows], total["measured"], atol=0.01)
    np.testing.assert_allclose([float(row["stderr"]) for row in rows], total["stderr"], rtol=1e-3)


def test_where_nothing_is_to_be_drawn_over_time_words_say_so(driver: Any, disk: str) -> None:
    driver.get_log("browser")
    day: dict[str, Any] = {"from": "2026-02-05", "to": "2026-02-05"}
    show(driver, disk, column=1, values="1", every="month", **day)
    note = driver.find_element("css selector", "#series [data-note]")
    assert note.text.startswith("Nothing is counted by this length of time within these dates")
    assert numbers(driver, "series") == []
    assert drawn(driver, "bars", "rect") > 0
    driver.find_element("css selector", "#values input:checked").click()
    ready(driver)
    assert note.text == "No value is chosen."
    assert driver.get_log("browser") == []


# -- on any page -----------------------------------------------------------------------------------------------------


@pytest.mark.sparing(0, 1)
def test_no_request_leaves_the_site_and_nothing_is_complained_of(driver: Any, root: str) -> None:
    driver.get("about:blank")
    requests(driver)
    driver.get_log("browser")
    every: list[dict[str, Any]] = [{}, {"column": 4, "with": 5}, {"column": 3, "every": "tick", "beside": 1}]
    for picked in every:
        show(driver, root, **picked)
    asked = requests(driver)
    assert len(asked) > 5
    assert [url for url in asked if not url.startswith((root, "about:", "blob:"))] == []
    assert driver.get_log("browser") == []


@pytest.mark.sparing(0, 2)
@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_it_fits_the_screen(driver: Any, disk: str, width: int) -> None:
    every: list[dict[str, Any]] = [{"beside": 1}, {"column": 4, "with": 5}]
    for picked in every:
        show(driver, disk, width=width, **picked)
        driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert driver.execute_script(CUT_OFF) == []


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_all_text_contrasts_with_what_is_behind_it(driver: Any, disk: str, colours: str) -> None:
    show(driver, disk, colours=colours, beside=1)
    found = driver.execute_script(CONTRAST)
    assert len(found) > 40
    assert [pair for pair in found if pair[0] < 4.5] == []
    # Labels within charts take the page's own colours, which follow it into the dark.
    inked = driver.execute_script(
        "return [...new Set([...document.querySelectorAll('.vega-embed svg text')].map(t => getComputedStyle(t).fill))]"
    )
    known = driver.execute_script(
        "return ['--ink', '--muted'].map(n => { const p = document.createElement('p'); p.style.color = `var(${n})`;"
        "document.body.append(p); return getComputedStyle(p).color; })"
    )
    assert set(inked) <= set(known)


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm)")
@pytest.mark.sparing(0, 2)
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("page", ["explorer.html", "index.html"])
def test_axe_finds_no_serious_fault(driver: Any, disk: str, page: str, width: int, colours: str) -> None:
    show(driver, disk, width=width, colours=colours, beside=1)
    if page == "index.html":
        driver.get(f"{disk}/latest/index.html")
    driver.execute_script(AXE.read_text())
    found = driver.execute_async_script("axe.run().then(arguments[0])")
    assert len(found["passes"]) > 15
    serious = [f for f in found["violations"] if f["impact"] in ("serious", "critical")]
    assert [(fault["id"], [n["html"][:120] for n in fault["nodes"]][:3]) for fault in serious] == []


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (npm)")
def test_axe_would_find_a_fault(driver: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<html lang="en"><title>x</title><main><h1>x</h1><select></select><img src="data:,"></main>')
    driver.get(bad.as_uri())
    driver.execute_script(AXE.read_text())
    found = driver.execute_async_script("axe.run().then(arguments[0])")
    assert {"select-name", "image-alt"} <= {fault["id"] for fault in found["violations"]}


def test_words_say_what_is_picked_and_what_charts_show(driver: Any, disk: str) -> None:
    from selenium.webdriver.support.ui import Select

    show(driver, disk, column="District", every="tick", values="0.1", **dict[str, Any]({"with": "urgent"}))
    rows = sorted((int(row["rows"]), row["value"]) for row in numbers(driver, "bars") if row["value"] in "1234")
    most, least = (f"{row[1]} ({row[0]:,})" for row in (rows[-1], rows[0]))
    said = driver.find_element("id", "said")
    assert said.text == (
        "District, with urgent, 2026-01-01 up to and including 2026-03-25; over time by week, 2 values. "
        f"Most in {most}, fewest in {least}."
    )
    charts = driver.find_elements("css selector", ".sideways")
    names = [chart.get_attribute("aria-label") for chart in charts]
    assert [chart.get_attribute("role") for chart in charts] == ["img"] * 4
    assert names[1].startswith(f"District, 2026-01-01 to 2026-03-25; synthetic rows. Most in {most}, fewest")
    newest = float([row for row in numbers(driver, "series") if row["value"] == "1"][-1]["measured"])
    heard = re.search(r": 1, 2, by week; measured, with noise\. 1: ([-\d.]+) \(", names[0])
    assert heard is not None, names[0]
    assert float(heard[1]) == pytest.approx(newest, abs=0.51)
    assert "in the newest of 12, lowest" in names[0]
    reach = "e => [e.scrollWidth > e.clientWidth, e.tabIndex === 0]"
    for width in (1200, 320):
        show(driver, disk, width=width, column=0, **dict[str, Any]({"with": 2}))
        for wide, stops in driver.execute_script(f"return [...document.querySelectorAll('.sideways')].map({reach})"):
            assert wide == stops, "one stops where there is more to see"
    Select(driver.find_element("id", "column")).select_by_visible_text("urgent")
    ready(driver)
    assert driver.find_element("id", "said").text.startswith("urgent, ")
    links = driver.execute_script("return [...document.querySelectorAll('[data-csv]')].map(a => a.textContent)")
    assert "The numbers as CSV: Over time" in links


def test_it_prints_without_what_is_for_the_pointer(driver: Any, disk: str) -> None:
    show(driver, disk, colours="dark")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shown = driver.execute_script(
        "return [document.querySelector('form').checkVisibility(), getComputedStyle(document.body).backgroundColor,"
        "getComputedStyle(document.querySelector('#bars svg text')).fill]"
    )
    pdf = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert shown == [False, "rgb(255, 255, 255)", "rgb(86, 97, 111)"]
    assert len(base64.b64decode(pdf["data"])) > 20_000


# -- by hand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [360, 1200])
def test_paper_holds_whole_charts_and_what_was_picked(driver: Any, disk: str, width: int) -> None:
    show(driver, disk, width=width, column=0, **dict[str, Any]({"with": 2}))
    size(driver, 718)  # A4 within its margins; charts stay as they were drawn
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    ends = driver.execute_script(
        "return [...document.querySelectorAll('.plotted svg')].map(s => s.getBoundingClientRect().right)"
    )
    said = driver.find_element("id", "said").is_displayed()
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert said
    assert len(ends) == 3
    assert max(ends) <= 718


def test_legends_and_large_letters_fit_a_phone(driver: Any, disk: str) -> None:
    legend = (
        "return [...document.querySelectorAll('#places svg, #pairs svg')].map(s => [s.getBoundingClientRect().right,"
        "Math.max(...[...s.querySelectorAll('.role-legend-band path, .role-legend-label text')]"
        ".map(p => p.getBoundingClientRect().right))])"
    )
    show(driver, disk, width=360, column=6, **dict[str, Any]({"with": 0}))
    found = driver.execute_script(legend)
    assert len(found) == 2
    for edge, end in found:
        assert end <= min(edge, 344)
    letters = "return parseFloat(getComputedStyle(document.querySelector('#bars .role-axis-label text')).fontSize)"
    plain = driver.execute_script(letters)
    large = driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument",
        {
            "source": "new MutationObserver(() => { if (document.documentElement)"
            " document.documentElement.style.fontSize = '32px'; }).observe(document, { childList: true })"
        },
    )
    show(driver, disk, width=360, column=6, beside=1)
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", large)
    assert driver.execute_script(letters) == 2 * plain
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 360


def test_what_is_picked_is_shown_and_kept_in_the_address(driver: Any, root: str) -> None:
    from selenium.webdriver.support.ui import Select

    show(driver, root)
    Select(driver.find_element("id", "column")).select_by_visible_text("urgent")
    Select(driver.find_element("id", "every")).select_by_value("tick")
    ready(driver)
    assert [row["value"] for row in numbers(driver, "series")] == ["true"] * 12
    driver.find_element("css selector", "#values input[value='0']").click()
    driver.find_element("id", "beside").click()
    ready(driver)
    kept = driver.execute_script("return location.href")
    before = [numbers(driver, name) for name in ("series", "bars", "pairs")]
    assert len(before[0]) == 24
    driver.get("about:blank")
    driver.get(kept)
    ready(driver)
    assert [numbers(driver, name) for name in ("series", "bars", "pairs")] == before


@pytest.mark.sparing(0, 1)
def test_the_pointer_reads_out_numbers_and_dates_are_dragged(driver: Any, root: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    show(driver, root, column=1, every="tick")
    plot = driver.find_element("css selector", "#series svg")
    ActionChains(driver).move_to_element(plot).perform()
    time.sleep(0.5)
    tip = driver.execute_script("return document.getElementById('vg-tooltip-element').innerText")
    own = next(row for row in numbers(driver, "series") if f"{row['start']} to" in tip)
    low, high = (float(own["measured"]) + reach * float(own["stderr"]) for reach in (-2, 2))
    said = re.search(r"true\S*\s+([-\d.]+) \(([-\d.]+) to ([-\d.]+)\)", tip)
    assert said is not None, tip
    assert [float(text) for text in said.groups()] == pytest.approx([float(own["measured"]), low, high], abs=0.51)
    whole = driver.execute_script("return document.getElementById('from').value")
    ActionChains(driver).move_to_element_with_offset(plot, -150, 0).click_and_hold().move_by_offset(
        250, 0
    ).release().perform()
    time.sleep(0.5)
    ready(driver)
    assert driver.execute_script("return document.getElementById('from').value") > whole
    assert len(numbers(driver, "series")) < 12


def test_a_finger_reads_out_numbers_until_it_touches_elsewhere(driver: Any, disk: str) -> None:
    def tap(selector: str) -> str:
        x, y = driver.execute_script(
            "const mark = document.querySelector(arguments[0]); mark.scrollIntoView({ block: 'center' });"
            "const b = mark.getBoundingClientRect(); return [(b.left + b.right) / 2, (b.top + b.bottom) / 2]",
            selector,
        )
        for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
            driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        time.sleep(0.5)
        return str(driver.execute_script(visible)).replace("\u200b", "")

    visible = "return document.querySelector('#vg-tooltip-element.visible')?.innerText ?? ''"
    show(driver, disk, width=390, column=6, every="tick", **dict[str, Any]({"with": 1}))
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    rows = {row["value"]: int(row["rows"]) for row in numbers(driver, "bars")}
    for mark in ("#bars .mark-rect.role-mark path", "#places .mark-shape path"):
        assert f"synthetic rows\t\n{rows['1']:,}" in tap(mark)
    assert "2026-02-" in tap("#series svg")
    assert "urgent" in tap("#pairs .mark-rect.role-mark path")
    assert tap("h1") == ""
    assert tap("#bars .mark-rect.role-mark path")
    driver.execute_script("document.getElementById('pick').dispatchEvent(new Event('change'))")
    ready(driver)
    assert driver.execute_script(visible) == "", "of a chart that is there no more"
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_degrees_are_drawn_as_a_map(driver: Any, disk: str) -> None:
    show(driver, disk, column=4, **dict[str, Any]({"with": 5}))
    text = driver.execute_script("return document.querySelector('#pairs svg').textContent")
    assert "longitude" in text
    boxes = driver.execute_script(
        "return [...document.querySelectorAll('#pairs .mark-rect.role-mark path')].map(p => p.getBoundingClientRect())"
        ".map(b => [b.left, b.top, b.right, b.bottom])"
    )
    assert len(boxes) == 12 * 12
    left, top, right, bottom = np.array(boxes).T
    aspect = (right.max() - left.min()) / (bottom.max() - top.min())
    assert aspect == pytest.approx(2 * np.cos(np.radians(47.5)), rel=0.03)  # 2 degrees by 1, at 47.5 north
    colours = driver.execute_script(
        "return [...document.querySelectorAll('#pairs .mark-rect.role-mark path')].map(p => getComputedStyle(p).fill)"
    )
    fullest = [i for i, colour in enumerate(colours) if colour == "rgb(21, 48, 107)"]
    assert fullest
    for i in fullest:  # events lie around (47.3, 8.5) and (47.7, 9.4)
        longitude = 8 + 2 * ((left[i] + right[i]) / 2 - left.min()) / (right.max() - left.min())
        latitude = 48 - ((top[i] + bottom[i]) / 2 - top.min()) / (bottom.max() - top.min())
        assert min(abs(longitude - 8.5) + abs(latitude - 47.3), abs(longitude - 9.4) + abs(latitude - 47.7)) < 0.3


def test_districts_of_a_city_lie_as_they_are(driver: Any, disk: str) -> None:
    show(driver, disk, column=6)
    boxes = driver.execute_script(
        "return [...document.querySelectorAll('#places .mark-shape path')].map(p => p.getBoundingClientRect())"
        ".map(b => [b.left, b.top, b.right, b.bottom])"
    )
    assert len(boxes) == 3
    left, top, right, bottom = np.array(boxes).T
    aspect = (right.max() - left.min()) / (bottom.max() - top.min())
    assert aspect == pytest.approx(6 / 4 * np.cos(np.radians(47.4)), rel=0.03)
    assert left[0] < left[1] < right[1] <= right[2]
    assert [row["value"] for row in numbers(driver, "places")] == ["1", "2", "3"]
    note = driver.execute_script("return document.querySelector('#places [data-note]').innerText")
    assert "Not on the map: 4, other, missing." in note
    assert "District" in driver.execute_script("return document.getElementById('column').selectedOptions[0].text")
    names = driver.execute_script(
        "return [...document.querySelectorAll('#places .mark-text.role-mark text')]"
        ".map(t => [t.textContent, t.getBoundingClientRect()]).map(([t, b]) => [t, (b.left + b.right) / 2, b.top])"
    )
    assert {text for text, *_ in names} == {"1", "2", "3"}
    for text, x, y in names:
        district = int(text) - 1
        assert left[district] < x < right[district]
        assert top[district] < y < bottom[district]
    show(driver, disk, column=0)
    assert driver.execute_script("return document.getElementById('places').checkVisibility()") is False


YEARS = """
name = "years"
state = "state"
privacy = { epsilon = 4.0, delta = 1e-9, unit = "event" }
clock = { column = "when", start = 2014-01-04, every = "1w", until = 2016-01-02, horizon = 200 }
source = { kind = "parquet", path = "rows.parquet" }
sink = { kind = "parquet", path = "releases" }
[[columns]]
name = "ward"
type = "category"
label = "Ward of the city"
values = ["north", "south", "island"]
[[columns]]
name = "road"
type = "category"
values = ["bridge", "street", "ferry"]
[[constraints]]
columns = ["ward", "road"]
allowed = [["north", "street"], ["north", "bridge"], ["south", "street"], ["south", "bridge"], ["island", "ferry"]]
"""


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory, driver: Any) -> str:
    """Two years of weeks, of which the first begins on a Saturday: 52 weeks each."""
    found, rng = tmp_path_factory.mktemp("years"), np.random.default_rng(5)
    (found / "stream.toml").write_text(YEARS)
    ward = rng.integers(0, 3, 20_000)
    pl.DataFrame(
        {
            "when": [datetime(2014, 1, 4) + timedelta(days=float(day)) for day in rng.uniform(0, 728, 20_000)],
            "ward": np.array(["north", "south", "island"])[ward],
            "road": np.where(ward == 2, "ferry", np.where(rng.random(20_000) < 0.5, "street", "bridge")),
        }
    ).write_parquet(found / "rows.parquet")
    command(["run", str(found / "stream.toml"), "-q", "--yes"])
    publish(found)
    return (found / "site").as_uri()


def warned(driver: Any, where: str) -> str:
    """What a box of warning says; nothing if it is hidden."""
    box = driver.find_element("css selector", where)
    return str(box.text) if box.is_displayed() else ""


def test_a_year_before_has_as_many_weeks(driver: Any, years: str) -> None:
    dates: dict[str, Any] = {"from": "2015-01-03", "to": "2016-01-02"}
    show(driver, years, column="ward", beside=1, every="year", **dates)
    note = driver.find_element("css selector", "#series [data-note]").text
    assert "Each number is the count of one year, drawn where that begins." in note
    assert "A year is the whole weeks that begin in that of the calendar: some have one more than others" in note
    now = numbers(driver, "bars")[0]
    spans = [now[key] for key in ("start", "end", "start beside", "end beside")]
    assert spans == ["2015-01-03", "2016-01-02", "2014-01-04", "2015-01-03"]
    assert "difference" in now
    assert warned(driver, "#bars [data-warning]") == ""


def test_dates_that_are_empty_or_turned_around_are_told(driver: Any, years: str) -> None:
    def asked(name: str, day: str) -> None:
        driver.execute_script(
            "const date = document.getElementById(arguments[0]); date.value = arguments[1];"
            "date.dispatchEvent(new Event('change', { bubbles: true }))",
            name,
            day,
        )
        ready(driver)

    show(driver, years, column="ward", every="year")
    every = numbers(driver, "bars")
    assert driver.find_element("css selector", ".lede strong").text == "from 2014-01-04 up to and including 2016-01-01"
    assert "2014-01-04 up to and including 2016-01-01" in driver.find_element("id", "said").text
    for name in ("from", "to"):
        asked(name, "")
    assert numbers(driver, "bars") == every
    assert warned(driver, "#unread") == ""
    asked("from", "2015-03-10")
    asked("to", "2015-02-01")
    assert "Until 2015-02-01 lies before 2015-03-10" in warned(driver, "#unread")
    assert "2015-03-07 up to and including 2015-03-13" in driver.find_element("id", "said").text
    asked("to", "2015-04-04")
    assert warned(driver, "#unread") == ""


def test_spans_that_overlap_or_differ_in_length_have_no_difference(driver: Any, years: str) -> None:
    dates: dict[str, Any] = {"from": "2014-12-20", "to": "2015-12-19", "from2": "2014-03-01", "to2": "2015-02-28"}
    show(driver, years, column="ward", beside=1, **dates | {"with": "road"})
    for section in ("bars", "pairs"):
        found = numbers(driver, section)[0]
        assert not {"difference", "stderr of difference"} & found.keys()
        said = warned(driver, f"#{section} [data-warning]")
        assert "overlap" in said
        for key in ("start", "start beside"):
            last = datetime.fromisoformat(found[key.replace("start", "end")]) - timedelta(days=1)
            assert f"{found[key]} to {last:%Y-%m-%d}" in said
    assert (found["start"], found["end"]) != (dates["from"], dates["to"]), "widened to refreshes"
    dates = {"from": "2015-03-07", "to": "2015-05-30", "from2": "2014-03-01", "to2": "2014-05-17"}
    show(driver, years, column="ward", beside=1, **dates)
    assert "(12 weeks)" in (said := warned(driver, "#bars [data-warning]"))
    assert "(11), which differ in length" in said
    assert "difference" not in numbers(driver, "bars")[0]


def test_an_address_may_hold_names_and_what_is_not_understood_is_told(driver: Any, years: str, grids: Path) -> None:
    def picked(name: str) -> str:
        return str(driver.execute_script(f"return document.getElementById('{name}').selectedOptions[0].text"))

    asked: dict[str, Any] = {"column": "road", "with": "ward", "every": "week", "values": "ferry"}
    show(driver, years, **asked)
    assert [picked(name) for name in ("column", "with", "every")] == ["road", "Ward of the city", "week"]
    assert {row["value"] for row in numbers(driver, "series")} == {"ferry"}
    assert warned(driver, "#unread") == ""
    asked = {"column": "Ward of the city", "every": "fortnight", "colour": "red", "values": "east", "from": "soon"}
    show(driver, years, **asked)
    assert picked("column") == "Ward of the city"
    said = warned(driver, "#unread")
    assert all(f"{key}={value}" in said for key, value in asked.items() if key != "column")
    assert "column=" not in said
    show(driver, years, column="wards")
    assert "column=wards" in warned(driver, "#unread")
    driver.find_element("id", "beside").click()
    assert warned(driver, "#unread") == ""
    root = next(address(grids, "disk"))
    for name, cells in (("at", "16 cells"), ("at_5", "1,024 cells")):  # of a place the finest grid with a series
        show(driver, root, column=name)
        assert picked("column").endswith(cells)


def test_it_begins_with_what_stands_out_of_the_noise(driver: Any, years: str, evictions: Path) -> None:
    """All pairs but one of the evictions are noise in so few months, and cells of ZIP codes are."""
    show(driver, (evictions / "site").as_uri())
    assert sum(float(row["measured"]) > 2 * float(row["stderr"]) for row in numbers(driver, "pairs")) > 0
    coloured = (
        "return [...document.querySelectorAll('#pairs .mark-rect.role-mark path')].map(p => p.getAttribute('fill'))"
    )
    assert any("m0" not in fill for fill in driver.execute_script(coloured))
    show(driver, years)
    found = numbers(driver, "series")
    assert sum(float(row["measured"]) > 2 * float(row["stderr"]) for row in found) > len(found) / 2
    assert driver.execute_script("return document.getElementById('every').value") == "tick"
    show(driver, (evictions / "site").as_uri(), column=0)
    assert len({row["value"] for row in numbers(driver, "series")}) == 1, "of what is noise the largest alone"


def test_cells_that_public_constraints_forbid_are_blank(driver: Any, years: str) -> None:
    show(driver, years, column="ward", **dict[str, Any]({"with": "road"}))
    found = numbers(driver, "pairs")
    assert len(found) == 5 * 5
    cells = driver.find_elements("css selector", "#pairs .mark-rect.role-mark path")
    assert len(cells) == 5 * 5 - 4
    assert "forbid are blank" in driver.find_element("css selector", "#pairs [data-note]").text
    shown = [float(row["rows"]) for row in found if float(row["rows"]) > 1000]
    assert len(shown) == 5
    key = "return [...document.querySelectorAll('#pairs .role-legend-label text')].map(t => t.textContent)"
    bounds = [float(text.replace(",", "")) for text in driver.execute_script(key) if text]
    said = driver.execute_script("return document.querySelector('#pairs .role-legend-title').textContent")
    least, most = (float(text.replace(",", "")) for text in re.findall(r"[\d,]*\d", said))
    assert least < bounds[0], "colours begin with the least count"
    # A cell of noise alone may stand out of it, and is coloured then.
    assert (least == min(shown) or least <= 1000, most) == (True, max(shown))


PLACES = """
name = "places"
state = "state"
privacy = { epsilon = 4.0, delta = 1e-9, unit = "event" }
clock = { column = "when", start = 2026-01-01, every = "1w", until = 2026-01-15, horizon = 20 }
source = { kind = "parquet", path = "rows.parquet" }
sink = { kind = "parquet", path = "releases" }
[[columns]]
name = "kind"
type = "category"
values = ["north west", "south east"]
[[columns]]
name = "at"
type = "place"
coordinates = ["lat", "lon"]
bounds = [[32, 37], [-122, -114]]
views = [2]
depth = 5
with = ["kind"]
"""


@pytest.fixture(scope="module")
def grids(tmp_path_factory: pytest.TempPathFactory, driver: Any) -> Path:
    """Events of two kinds, in two corners of a place."""
    found, rng = tmp_path_factory.mktemp("places"), np.random.default_rng(3)
    (found / "stream.toml").write_text(PLACES)
    south = np.repeat([False, True], 3000)
    pl.DataFrame(
        {
            "when": pl.Series([datetime(2026, 1, 2)] * 3000 + [datetime(2026, 1, 9)] * 3000),
            "kind": np.where(south, "south east", "north west"),
            "lat": np.where(south, 32.5, 36.5) + rng.uniform(-0.3, 0.3, 6000),
            "lon": np.where(south, -115.0, -121.0) + rng.uniform(-0.5, 0.5, 6000),
        }
    ).write_parquet(found / "rows.parquet")
    command(["run", str(found / "stream.toml"), "-q", "--yes"])
    publish(found)
    return found


# Middles of the coloured cells of a map, in shares of its width and height from the upper left corner.
_MIDDLES = """
const map = document.querySelectorAll(`${arguments[0]} .plotted svg`)[arguments[1]];
const cells = [...map.querySelectorAll(".mark-rect.role-mark path")], boxes = cells.map(c => c.getBoundingClientRect());
const left = Math.min(...boxes.map(b => b.left)), right = Math.max(...boxes.map(b => b.right));
const top = Math.min(...boxes.map(b => b.top)), bottom = Math.max(...boxes.map(b => b.bottom));
const middle = b => [((b.left + b.right) / 2 - left) / (right - left), ((b.top + b.bottom) / 2 - top) / (bottom - top)];
return [cells.length, boxes.filter((_, k) => !cells[k].getAttribute("fill").includes("m0")).map(middle)];
"""


def test_places_are_drawn_by_period_and_by_value(driver: Any, grids: Path) -> None:
    """Columns are the kind, and grids of 16 and 1,024 cells; only the first of these has a series."""
    root = next(address(grids, "disk"))

    def middles(section: str, number: int, cells: int) -> list[list[float]]:
        found, listed = driver.execute_script(_MIDDLES, section, number)
        assert found == cells
        assert listed
        return list(listed)

    show(driver, root, column=1, **dict[str, Any]({"with": 0}))
    assert drawn(driver, "series", "line") > 0
    assert not driver.execute_script("return document.getElementById('bars').checkVisibility()")
    # Each kind fills one of 16 cells. Noise colours one more in many a run, and more than three in one of thousands.
    north, south = (0.125, 0.125), (0.875, 0.875)
    for section, number, filled in [("#places", 0, {north, south}), ("#pairs", 0, {north}), ("#pairs", 1, {south})]:
        coloured = {(round(8 * x) / 8, round(8 * y) / 8) for x, y in middles(section, number, 16)}
        assert filled <= coloured
        assert len(coloured) <= len(filled) + 3
    dates: dict[str, Any] = {"from": "2026-01-01", "to": "2026-01-08", "from2": "2026-01-08", "to2": "2026-01-15"}
    show(driver, root, column=2, beside=1, **dates | {"with": ""})
    assert not driver.execute_script("return document.getElementById('series').checkVisibility()")
    # Some of 1,024 cells are noise, anywhere: of these a quarter would lie here.
    assert np.mean([x < 0.5 and y < 0.5 for x, y in middles("#places", 0, 1024)]) > 0.7
    assert np.mean([x > 0.5 and y > 0.5 for x, y in middles("#places", 1, 1024)]) > 0.7
    assert len(numbers(driver, "places")) == 1024
    assert "difference" in numbers(driver, "places")[0]
    facts = (grids / "site/latest/facts.js").read_text()
    assert len(facts) < 12_000  # no name and no series of 1,024 cells
    for asked in ("kind", "unknown"):  # by name; the first column stands in for one that does not exist
        show(driver, root, column=asked)
        assert driver.execute_script("return document.getElementById('column').value") == "0"


def test_a_release_that_is_missing_is_told(driver: Any, folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(folder / "site", site)
    newest = max((site / "releases").iterdir())
    shutil.rmtree(newest)
    driver.get("about:blank")
    driver.get((site / "latest/explorer.html").as_uri())
    time.sleep(2)
    said = driver.execute_script("return document.getElementById('said').innerText")
    assert f"up to and including 2026-03-25 (tick {int(newest.name)}) is not here" in said
    driver.get_log("browser")


def test_until_all_is_loaded_words_say_so_and_nothing_can_be_picked(driver: Any, folder: Path, tmp_path: Path) -> None:
    seen = (
        "return [document.getElementById('said').innerText, document.getElementById('pick').checkVisibility(),"
        "[...document.querySelectorAll('section')].some(s => s.checkVisibility()),"
        "document.querySelectorAll('[data-csv][href]').length]"
    )
    shutil.copytree(folder / "site", tmp_path / "site")
    page = tmp_path / "site/latest/explorer.html"
    (page.parent / "explorer.js").rename(page.parent / "later.js")
    driver.get(page.as_uri())
    said, *shown = driver.execute_script(seen)
    assert re.match(r"Loading 9\d\d\.\d kB… ", said), said
    assert shown == [False, False, 0]
    (page.parent / "later.js").rename(page.parent / "explorer.js")
    library = next(page.parent.glob("vega-*.js"))
    library.unlink()
    driver.get("about:blank")
    driver.get(page.as_uri())
    said, *shown = driver.execute_script(seen)
    assert said == f"{library.name} could not be loaded. Load the page again."
    assert shown == [False, False, 0]
    driver.get_log("browser")


def test_dark_and_light_differ(driver: Any, disk: str) -> None:
    pictures = []
    for colours in ("light", "dark"):
        show(driver, disk, colours=colours)
        pictures.append(picture(driver, height=1000))
    assert pictures[0] != pictures[1]
