"""A stream that runs draws what its edition drew, in whichever version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synthstream.kinds import EDITION
from tests.synthesizers import store_fingerprints
from tests.synthesizers.store_fingerprints import ALL, drawn, stored


@pytest.mark.parametrize("kind", ALL)
def test_streams_draw_what_they_drew(kind: str) -> None:
    assert drawn(kind) == stored()[kind], (
        "Streams of this edition would draw otherwise, and those that run be refused. That needs a new edition ('Make "
        "an edition' in docs/guides/developer.md); write down what it draws with `python -m "
        "tests.synthesizers.store_fingerprints`."
    )


def test_what_an_edition_drew_is_not_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"hypercube": stored()["hypercube"]}
    copy = tmp_path / "fingerprints.json"
    monkeypatch.setattr(store_fingerprints, "STORED", copy)
    monkeypatch.setattr(store_fingerprints, "ALL", ("hypercube",))
    for edition, refused in ((EDITION - 1, False), (EDITION, True)):
        before = {"hypercube": {"edition": edition, "drawn": "otherwise"}}
        copy.write_text(json.dumps(before))
        if refused:
            with pytest.raises(SystemExit, match=f"edition {EDITION} would draw otherwise"):
                store_fingerprints.main()
        else:
            store_fingerprints.main()
        assert stored() == (before if refused else known)
