"""A release that is copied, or sent to another process: with what is public of it alone."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from synthstream.errors import NotReleased


class Sent:
    """What goes along: all but what asks other ticks. That leads back to where the release was made."""

    def __copy__(self, *_: object) -> Self:
        return self

    __deepcopy__ = __copy__  # it never changes

    def __getstate__(self) -> dict[str, Any]:
        return {name: _not_here if callable(value) and name != "files" else value for name, value in vars(self).items()}


def _not_here(*_: object, **__: object) -> NoReturn:
    raise NotReleased(
        "This release came from another process, with its rows and tables alone. Ask the one there about other ticks; "
        'or read it here: synthstream.releases("stream.toml")'
    )
