"""Pictures of the pages for the documentation, of the shipped examples: ``make images``.

python -m tests.browser.screenshots [--to docs/images]
"""

from __future__ import annotations

import argparse
import base64
import io
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from tests.browser.chromium import browser, scheme, size, why_not

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
_LARGEST = 400_000
_GAP = 24
_PHONE = 500
# The lowest line at or above another one that goes through no part of the page, nor just below a heading.
_UNCUT = """
let bottom = arguments[0];
const names = "figure, svg, canvas, img, tr, p, li, pre, article, h1, h2, h3";
const parts = [...document.querySelectorAll(names)].filter(part => part.checkVisibility());
const ends = parts.map(part => part.getBoundingClientRect()).map(b => [b.top + scrollY, b.bottom + scrollY]);
const heading = part => /^H[1-3]$/.test(part.tagName);
for (let moved = true; moved; ) {
  moved = false;
  ends.forEach(([top, end], k) => {
    if (top < bottom && (end > bottom || (heading(parts[k]) && end > bottom - 24))) { bottom = top - 1; moved = true; }
  });
}
return bottom;
"""


@dataclass(frozen=True, kw_only=True)
class View:
    """A piece of a page. Where it is no phone's it ends between two of its parts: no chart or line is cut.

    Args:
        selector: where it begins: the top of the first element that fits.
        width, height: of the screen, in CSS pixels.
        colours: ``light`` or ``dark``.
        picked: of the explorer, as its address has it.
    """

    selector: str = "body"
    width: int = 1120
    height: int = 1280
    colours: str = "light"
    picked: str = ""


# Name of the picture, page, and the views that stand in it side by side.
PICTURES: dict[str, tuple[str, tuple[View, ...]]] = {
    "report": ("evictions", (View(height=1720),)),
    "report-columns": ("evictions", (View(selector="#columns", height=1420),)),
    "report-dark": ("earthquakes", (View(selector="#time", height=1680, colours="dark"),)),
    "report-phone": (
        "earthquakes",
        (
            View(width=375, height=780),
            View(width=375, height=780, selector="#map", colours="dark"),
            View(width=375, height=780, selector="#columns"),
        ),
    ),
    "explorer": ("explorer", (View(height=1640, picked="column=1&with=0&beside=1&from2=2011-01-01&to2=2015-01-02"),)),
    "explorer-phone": (
        "explorer",
        (
            View(width=375, height=780, picked="column=3&every=year"),
            View(width=375, height=780, picked="column=3&every=year", selector="#series", colours="dark"),
            View(width=375, height=780, picked="column=1&with=0&from=2015-01-01&to=2016-01-01", selector="#bars"),
        ),
    ),
    "plan": ("plan", (View(height=1720),)),
}


def pages(folder: Path) -> dict[str, Path]:
    """The pages by name, freshly made."""
    found = {}
    for example in ("evictions", "earthquakes"):
        config = EXAMPLES / example / "stream.toml"
        if not any((config.parent / "releases").glob("[0-9]*")):
            _synthstream("run", str(config), "--yes")
        found[example] = folder / f"{example}.html"
        _synthstream("report", str(config), "-o", str(found[example]))
    _synthstream("publish", str(EXAMPLES / "evictions" / "stream.toml"), str(folder / "site"))
    found["explorer"] = folder / "site" / "latest" / "explorer.html"
    found["plan"] = folder / "plan.html"
    _synthstream("plan", str(EXAMPLES / "evictions" / "stream.toml"), "-o", str(found["plan"]))
    return found


def _synthstream(*words: str) -> str:
    command = [sys.executable, "-c", "from synthstream.cli.app import main; main()", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        raise SystemExit(f"synthstream {' '.join(words)}: {done.stderr}")
    return done.stdout


def shot(driver: Any, path: Path, view: View, *, sharpness: float) -> Image.Image:
    """One view of a page."""
    size(driver, view.width, view.height, scale=sharpness)
    scheme(driver, view.colours)
    driver.get("about:blank")
    driver.get(path.as_uri() + (f"#{view.picked}" if view.picked else ""))
    time.sleep(2 if view.picked else 0)  # for the charts that scripts draw
    top = driver.execute_script(
        "const b = document.querySelector(arguments[0]).getBoundingClientRect(); return b.top + scrollY;", view.selector
    )
    longest = driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]["height"]
    bottom = min(top + view.height, longest)
    if view.width > _PHONE:
        bottom = driver.execute_script(_UNCUT, bottom)
    # A screen that holds the whole view; what then moves into its place must have arrived.
    size(driver, view.width, max(view.height, int(bottom)), scale=sharpness)
    time.sleep(1)
    clip = {"x": 0, "y": top, "width": view.width, "height": bottom - top, "scale": 1}
    found = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "clip": clip})
    return Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")


def beside(images: list[Image.Image], *, gap: int) -> Image.Image:
    """Images side by side on grey; one alone as it is."""
    if len(images) == 1:
        return images[0]
    width = sum(image.width for image in images) + gap * (len(images) + 1)
    sheet = Image.new("RGB", (width, max(image.height for image in images) + 2 * gap), "#8b95a1")
    left = gap
    for image in images:
        sheet.paste(image, (left, gap))
        left += image.width + gap
    return sheet


def save(image: Image.Image, path: Path) -> None:
    """A PNG of few colours. Raises ``SystemExit`` if it is large all the same."""
    image.quantize(colors=160, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > _LARGEST:
        raise SystemExit(f"{path}: {path.stat().st_size:,} bytes, more than {_LARGEST:,}")


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--sharpness", type=float, default=1.5, help="pixels for one CSS pixel")
    args = parser.parse_args()
    if why_not():
        raise SystemExit(f"Pictures need a browser: {why_not()}")
    args.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        found = pages(Path(folder))
        for name, (page, views) in PICTURES.items():
            images = [shot(driver, found[page], view, sharpness=args.sharpness) for view in views]
            path = args.to / f"{name}.png"
            save(beside(images, gap=round(_GAP * args.sharpness)), path)
            print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
