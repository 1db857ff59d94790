"""Texts that are filled in: a draft of a stream.toml, and what lies beside releases for people and registries."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def _templates(room: str) -> Environment:
    """A room's own templates. Nothing is escaped: they are no pages. A value that is missing is an error."""
    found = Environment(  # noqa: S701 - as above
        loader=PackageLoader(f"synthstream.{room}"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["json"] = partial(json.dumps, ensure_ascii=False)
    return found


def filled(room: str, template: str, **values: Any) -> str:
    """The text of a template in ``templates`` of a room."""
    return _templates(room).get_template(template).render(**values)
