"""The documentation as a site: built with warnings as errors, it works from a disk and asks for nothing elsewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import is_required, requests, scheme, size

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("mkdocs") is None and not is_required(), reason="not installed: the package mkdocs"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, freshly built."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own pages
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def wait(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """What a condition gives as soon as it holds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def test_no_page_names_a_script_a_font_or_an_image_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        found = re.findall(r'(?:src|srcset)="(https?:[^"]*)"|<link[^>]*href="(https?:[^"]*)"', page.read_text())
        assert not found, f"{page.relative_to(site)}: {found}"


@pytest.mark.sparing(0, 10)
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1300])
@pytest.mark.parametrize("name", ["index", "tutorial", "concepts/index", "synthesizers/counters", "api"])
def test_a_page_opens_from_a_disk(site: Path, driver: Any, name: str, width: int, colours: str) -> None:
    driver.get_log("browser"), requests(driver)
    size(driver, width)
    scheme(driver, colours)
    driver.get((site / f"{name}.html").as_uri())
    assert [entry["message"] for entry in driver.get_log("browser")] == []
    assert not [url for url in requests(driver) if url.startswith(("http", "ws"))]
    wide = driver.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "the page is wider than the screen"
    shown = driver.execute_script(
        "const images = [...document.querySelectorAll('article img')];"
        "return images.filter(i => i.offsetWidth).map(i => [i.src, i.naturalWidth]);"
    )
    assert all(natural > 0 for _, natural in shown), shown
    assert all(f"-{'light' if colours == 'dark' else 'dark'}.svg" not in src for src, _ in shown), (
        "of the other colours"
    )


def test_search_works_from_a_disk(site: Path, driver: Any) -> None:
    size(driver, 1300)
    driver.get((site / "index.html").as_uri())
    field = driver.find_element("css selector", "input.md-search__input")
    driver.execute_script("arguments[0].focus()", field)

    def found() -> list[str]:
        # Typed anew each time, as the search may not listen yet; read in one step, as it replaces its links.
        field.clear()
        field.send_keys("encryption")
        time.sleep(1)
        links = driver.execute_script(
            "return [...document.querySelectorAll('a.md-search-result__link')].map(a => a.href)"
        )
        return [link for link in links if "operations.html" in link]

    wait(found)
    assert not [url for url in requests(driver) if url.startswith(("http", "ws"))]
