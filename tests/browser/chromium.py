"""Debian's Chromium without a window, for looking at pages that lie on this disk."""

from __future__ import annotations

import base64
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
REQUIRED = "SYNTHSTREAM_BROWSER"
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


def why_not() -> str:
    """Why there is no browser; empty if there is one."""
    absent = [str(path) for path in (CHROMIUM, DRIVER) if not path.exists()]
    try:
        import selenium  # noqa: F401
    except ImportError:
        absent.append("the package selenium")
    return f"not installed: {', '.join(absent)}" if absent else ""


def is_required() -> bool:
    """Whether a missing browser is a failure."""
    return os.environ.get(REQUIRED) == "required"


@contextmanager
def browser() -> Iterator[Any]:
    """A driver of a browser that keeps nothing; it notes what pages say and ask for."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    with tempfile.TemporaryDirectory() as profile:
        for switch in (*_SWITCHES, f"--user-data-dir={profile}"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = Chrome(options=options, service=ChromeService(executable_path=str(DRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


def size(driver: Any, width: int, height: int = 900, *, scale: float = 1.0) -> None:
    """Show pages on a screen of this size."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600},
    )


def scheme(driver: Any, name: str) -> None:
    """Prefer light or dark pages."""
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]}
    )


def requests(driver: Any) -> list[str]:
    """Addresses that were asked for since the last call, but for those within the page."""
    entries = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]
    return [url for url in asked if not url.startswith("data:")]


def _extent(driver: Any) -> dict[str, float]:
    found: dict[str, float] = driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    return found


def picture(driver: Any, *, height: int | None = None) -> bytes:
    """PNG of the page from its top; left out: all of it."""
    extent, limit = _extent(driver), time.monotonic() + 30
    while not extent["width"] and time.monotonic() < limit:  # a page that has loaded may not have been laid out yet
        time.sleep(0.05)
        extent = _extent(driver)
    clip = {"x": 0, "y": 0, "width": extent["width"], "height": min(height or 10**6, extent["height"]), "scale": 1}
    shot = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True}
    )
    return base64.b64decode(shot["data"])
