"""Pages from templates. Whatever a configuration says is escaped; nothing is loaded from elsewhere."""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from synthstream.environment import words, write_new
from synthstream.errors import ConfigError
from synthstream.kinds import span, spelled
from synthstream.privacy import stated
from synthstream.report.scales import bound, number, ranged


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates. Values are escaped, and one that is missing is an error."""
    found = Environment(loader=PackageLoader("synthstream.report"), autoescape=True, undefined=StrictUndefined)
    for each in (bound, moment, number, period, ranged, small, span, spelled, stated, until):
        found.filters[each.__name__] = each
    source, _, _ = PackageLoader("synthstream.report").get_source(found, "style.css")
    style = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)  # without comments and indentation
    found.globals["style"] = Markup(re.sub(r"\s*\n\s*", "\n", style).strip())  # noqa: S704 - our own style sheet
    found.globals["version"] = version("synthstream")
    return found


def _midnight(value: datetime) -> bool:
    """Whether a moment is one between two days, to the minute."""
    return (value.hour, value.minute) == (0, 0)


def moment(value: datetime) -> str:
    """A date; with the time of day, unless it is midnight.

    Example:
        >>> moment(datetime(2026, 1, 31)), moment(datetime(2026, 1, 31, 12, 30))
        ('2026-01-31', '2026-01-31 12:30')
    """
    return f"{value:%Y-%m-%d}" if _midnight(value) else f"{value:%Y-%m-%d %H:%M}"


def until(end: datetime) -> str:
    """The last day before a moment, as people read "up to"; a moment within a day as it is.

    Example:
        >>> until(datetime(2026, 3, 1)), until(datetime(2026, 1, 31, 12, 30))
        ('2026-02-28', '2026-01-31 12:30')
    """
    return f"{end - timedelta(days=1):%Y-%m-%d}" if _midnight(end) else moment(end)


def period(start: datetime, end: datetime) -> str:
    """From when to when, days included; where either end lies within a day, both to the minute.

    Example:
        >>> period(datetime(2026, 2, 1), datetime(2026, 3, 1)), period(datetime(2026, 2, 1), datetime(2026, 2, 2))
        ('2026-02-01 to 2026-02-28', '2026-02-01')
        >>> period(datetime(2026, 2, 1, 18), datetime(2026, 2, 2))
        '2026-02-01 18:00 to before 2026-02-02 00:00'
    """
    if not (_midnight(start) and _midnight(end)):
        return f"{start:%Y-%m-%d %H:%M} to before {end:%Y-%m-%d %H:%M}"
    first, last = moment(start), until(end)
    return first if first == last else f"{first} to {last}"


def small(value: float) -> str:
    """A small number such as delta, as it is written in a configuration.

    Example:
        >>> small(1e-9), small(0.0), small(0.25)
        ('1e-9', '0', '0.25')
    """
    return re.sub(r"e-0*", "e-", stated(value))


def macro(name: str, **values: Any) -> Markup:
    """A piece of HTML from a macro of ``charts.html``."""
    found = getattr(environment().get_template("charts.html").module, name)(**values)
    return Markup(re.sub(r"(?<!\s)\s*\n\s*", "\n", found).strip())  # noqa: S704 - escaped by the template


def render(template: str, **values: Any) -> str:
    """A whole page from a template that extends ``base.html``.

    Raises:
        jinja2.UndefinedError: the template names a value that is not given.

    Example:
        >>> page = render("base.html", title="<script>", name="visits", stamp="")
        >>> "<script>" in page, page.startswith("<!doctype html>")
        (False, True)
    """
    text = environment().get_template(template).render(**values)
    # Looked for from the beginning of blanks alone: a cell of many thousands would take hours.
    return re.sub(r"(?<![ \t])[ \t]*\n\s*", "\n", text).strip() + "\n"


def check_place(path: Path) -> None:
    """Raise ``ConfigError`` unless a page can be written there: a new name, or an ordinary file."""
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"-o {path}: there is no folder {path.parent}.")
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ConfigError(f"-o {path}: is a link or a folder, or something else that is no file. Name another.")


def write_page(path: Path, text: str, *, private: bool = False) -> None:
    """Write a page whole: a reader never sees half of one.

    Args:
        path: where to; an ordinary file there is replaced.
        private: for its owner alone: mode 0600 from the beginning.

    Raises:
        ConfigError: there is no such folder, ``path`` is a folder or a link, or the file cannot be written.
    """
    check_place(path)
    aside = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        write_new(aside, text.encode(), mode=0o600 if private else 0o666)
        aside.replace(path)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigError(f"-o {path}: {words(error)}. Nothing was written.") from error
        raise
