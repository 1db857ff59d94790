"""A browser for the tests of pages, one for each module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.chromium import browser, is_required, why_not


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    reason = why_not()
    if reason and is_required():
        pytest.fail(f"SYNTHSTREAM_BROWSER=required, but {reason}")
    if reason:
        pytest.skip(reason)
    with browser() as found:
        yield found
