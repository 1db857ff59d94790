"""The pages as a browser shows them: no errors, no requests, readable on a phone, in the dark and by keyboard."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser.chromium import picture, requests, scheme, size
from tests.browser.looking import CONTRAST, CUT_OFF
from tests.browser.streams import made, page

pytestmark = pytest.mark.slow

PAGES = ("report", "custodian", "check", "plan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, driver: Any) -> Path:
    found = tmp_path_factory.mktemp("a stream")
    made(found)
    return found


@pytest.fixture(scope="module", params=PAGES)
def path(request: pytest.FixtureRequest, folder: Path) -> Path:
    found = page(folder, request.param)
    if found is None:
        pytest.skip(f"no command writes a page {request.param}")
    return found


def show(driver: Any, path: Path, *, width: int = 1200, colours: str = "light") -> None:
    size(driver, width)
    scheme(driver, colours)
    driver.get(path.as_uri())


def manifest(folder: Path) -> dict[str, Any]:
    newest = max((folder / "releases").iterdir())
    return dict(json.loads((newest / "manifest.json").read_text()))


def test_it_loads_nothing_and_complains_of_nothing(driver: Any, path: Path) -> None:
    driver.get("about:blank")
    requests(driver)
    driver.get_log("browser")
    show(driver, path)
    assert requests(driver) == [path.as_uri()]
    assert driver.get_log("browser") == []


def test_it_would_run_and_load_nothing_even_if_a_value_came_into_it_as_it_is(
    driver: Any, path: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.html"
    value = '<img src="beside.png" onerror="document.title = 1"><script>document.title = 2</script>'
    bad.write_text(path.read_text().replace("</main>", f"{value}</main>"))
    driver.get("about:blank")
    driver.get_log("browser")
    show(driver, bad)
    assert driver.title not in ("1", "2")
    refused = [entry["message"] for entry in driver.get_log("browser")]
    assert all("Content Security Policy" in message for message in refused)
    assert len(refused) >= 2, "the picture, and the script"


def test_a_request_would_be_noticed(driver: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<img src="beside.png"><script>console.error("no")</script>')
    show(driver, bad)
    assert (tmp_path / "beside.png").as_uri() in requests(driver)
    assert len(driver.get_log("browser")) >= 2


@pytest.mark.parametrize("width", [320, 360, 768, 1200])
def test_it_fits_the_screen(driver: Any, path: Path, width: int) -> None:
    show(driver, path, width=width)
    for unfold in (False, True):
        if unfold:
            driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        wide = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= width, f"scrolls sideways: {wide}"
        assert driver.execute_script(CUT_OFF) == []


def test_large_letters_fit_a_phone(driver: Any, path: Path) -> None:
    show(driver, path, width=360)
    driver.execute_script("document.documentElement.style.fontSize = '200%'")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 360
    assert driver.execute_script("return document.querySelector('.skip').getBoundingClientRect().bottom") < 0


def test_bars_are_there_in_colours_of_ones_own_choice(driver: Any, folder: Path) -> None:
    report = page(folder, "report")
    assert report is not None
    show(driver, report)
    seen = "return getComputedStyle(document.querySelector('.track i')).backgroundColor"
    plain = driver.execute_script(seen)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "forced-colors", "value": "active"}]})
    assert driver.execute_script(seen) == plain


@pytest.mark.parametrize("width", [360, 1200])
def test_a_label_with_wide_letters_is_not_broken(driver: Any, folder: Path, width: int) -> None:
    found = page(folder, "report")
    assert found is not None
    show(driver, found, width=width)
    heights = driver.execute_script(
        """
        const table = document.querySelector('table.bars'), label = table.querySelector('tbody th');
        table.style.setProperty('--label', '9ch');
        return ['Monday', 'Wednesday'].map(text => (label.textContent = text, label.getBoundingClientRect().height));
        """
    )
    assert heights[0] == heights[1]


def test_a_phone_tells_that_the_table_of_errors_goes_on(driver: Any, folder: Path) -> None:
    plan = page(folder, "plan")
    assert plan is not None
    state = (
        "const s = document.querySelector('[aria-labelledby=errors] .scroll');"
        "return [s.scrollWidth > s.clientWidth, document.querySelector('.swipe').checkVisibility(), "
        "getComputedStyle(s).backgroundAttachment]"
    )
    show(driver, plan, width=390)
    assert driver.execute_script(state) == [True, True, "local, local, scroll, scroll"]
    show(driver, plan, width=1200)
    assert driver.execute_script(state)[:2] == [False, False]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_all_text_contrasts_with_what_is_behind_it(driver: Any, path: Path, colours: str) -> None:
    show(driver, path, colours=colours)
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = driver.execute_script(CONTRAST)
    assert len(found) > 50
    assert [pair for pair in found if pair[0] < 4.5] == []


def test_poor_contrast_would_be_noticed(driver: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text('<body style="background:#fff"><p style="color:#888">grey</p><p style="color:#333">dark</p>')
    show(driver, bad)
    assert [text for ratio, text in driver.execute_script(CONTRAST) if ratio < 4.5] == ["grey"]


def test_dark_and_light_differ(driver: Any, path: Path) -> None:
    pictures, grounds = [], []
    for colours in ("light", "dark"):
        show(driver, path, colours=colours)
        pictures.append(picture(driver, height=1000))
        grounds.append(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert pictures[0] != pictures[1]
    assert grounds[0] == "rgb(255, 255, 255)"
    assert grounds[1] != grounds[0]


def test_the_keyboard_reaches_everything(driver: Any, path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    show(driver, path)
    ActionChains(driver).send_keys(Keys.TAB).perform()
    focused = "const e = document.activeElement, b = e.getBoundingClientRect(), s = getComputedStyle(e);"
    first = driver.execute_script(focused + "return [e.className, b.left >= 0 && b.top >= 0, s.outlineStyle]")
    assert first == ["skip", True, "solid"]
    ActionChains(driver).send_keys(Keys.ENTER).perform()
    assert driver.execute_script("return document.activeElement.id") == "main"
    show(driver, path)
    reachable = driver.execute_script(
        "return [...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).length"
    )
    outlines = []
    for _ in range(reachable):
        ActionChains(driver).send_keys(Keys.TAB).perform()
        outlines.append(driver.execute_script(focused + "return [e.tagName, s.outlineStyle, b.width > 0]"))
    assert all(outline[0] != "BODY" and outline[1:] == ["solid", True] for outline in outlines), outlines


def test_every_picture_has_words(driver: Any, path: Path) -> None:
    show(driver, path)
    told = driver.execute_script(
        "return [...document.querySelectorAll('svg')].filter(s => !s.closest('[aria-hidden]') && "
        "s.getAttribute('aria-hidden') !== 'true').map(s => [s.getAttribute('role'), "
        "s.querySelector(':scope > title')?.textContent, s.querySelector(':scope > desc')?.textContent])"
    )
    assert bool(told) == (path.stem != "check")  # whose charts are tables of bars
    assert all(role == "img" and title and words for role, title, words in told)
    levels = driver.execute_script("return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert driver.execute_script("return document.documentElement.lang") == "en"


def test_ids_are_distinct_and_links_within_the_page_lead_somewhere(driver: Any, path: Path) -> None:
    show(driver, path)
    ids = driver.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    links = driver.execute_script("return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)


def test_links_lead_to_the_newest_release(driver: Any, folder: Path) -> None:
    report, known = page(folder, "report"), manifest(folder)
    assert report is not None
    show(driver, report)
    links = driver.execute_script(
        "return [...document.querySelectorAll('a[data-file]')].map(a => [a.dataset.file, a.href])"
    )
    assert {name for name, _ in links} == {*known["files"], "manifest.json"}
    for name, url in links:
        content = Path(unquote(urlsplit(url).path)).read_bytes()
        if name in known["files"]:
            assert hashlib.sha256(content).hexdigest() == known["files"][name]
        else:
            driver.get(url)
            assert json.loads(driver.execute_script("return document.body.innerText")) == known


def test_its_numbers_are_those_of_the_manifest(driver: Any, folder: Path) -> None:
    report, known = page(folder, "report"), manifest(folder)
    assert report is not None
    show(driver, report)
    facts = driver.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('[data-fact]')]"
        ".map(e => [e.dataset.fact, e.innerText]))"
    )
    assert int(facts["tick"]) == known["tick"]
    assert int(facts["rows"].replace(",", "")) == known["rows"]
    assert float(facts["epsilon"]) == known["claim"]["epsilon"]
    assert facts["head"] == known["chain"]["head"]
    assert facts["claim"] == known["claim"]["words"]
    assert int(facts["releases"]) == known["tick"] + 1
    assert driver.execute_script("return document.querySelector('time').dateTime") == known["end"]
    text = driver.execute_script("return document.body.innerText")
    assert known["end"][:10] in text
    assert known["start"][:10] not in facts["claim"]


def test_a_stamp_is_printed_on_every_page(driver: Any, folder: Path) -> None:
    for kind, stamp in (("custodian", "NOT PRIVATE"), ("check", "PRIVATE"), ("report", None)):
        shown = page(folder, kind)
        assert shown is not None
        show(driver, shown)
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        rules = driver.execute_script(
            "return [...document.styleSheets].flatMap(s => [...s.cssRules]).filter(r => r instanceof CSSPageRule)"
            ".map(r => r.cssText)"
        )
        fixed = driver.execute_script(
            "const s = document.querySelector('.stamp'); return s && [getComputedStyle(s, '::after').position, "
            "getComputedStyle(s, '::after').content]"
        )
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        assert fixed == (["fixed", f'"{stamp}:\\a do not publish"'] if stamp else None)
        assert any("@top-center" in rule and f'"{stamp}: ' in rule for rule in rules) == bool(stamp)
