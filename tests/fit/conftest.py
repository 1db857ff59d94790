"""What all tests of the fit share: none meets what another one has found, maybe without a part of the fit."""

from __future__ import annotations

import pytest

from synthstream.fit import aims


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aims, "_KEPT", [])
