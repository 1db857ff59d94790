"""What the reference needs: ``Example:`` in docstrings is code, as ``Examples:`` is to the parser; so are roles."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Rewrites docstrings before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r":(?:mod|class|func|meth|attr|data):`([^`]+)`", r"`\1`", value)
