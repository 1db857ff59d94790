"""A stream that runs draws what its edition drew, in whichever version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from synthstream.kinds import NEWEST
from tests.synthesizers import store_fingerprints
from tests.synthesizers.store_fingerprints import ALL, REFUSED, drawn, stored


@pytest.mark.parametrize("kind", ALL)
def test_each_edition_draws_what_it_drew(kind: str) -> None:
    assert drawn(kind) == stored()[kind], (
        "An edition draws otherwise, and running streams would be refused. What is to be drawn otherwise needs a new "
        "edition ('Make an edition' in docs/guides/developer.md); write down what that draws with `python -m "
        "tests.synthesizers.store_fingerprints`."
    )


def test_what_an_older_edition_drew_is_not_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = stored()
    copy = tmp_path / "fingerprints.json"
    monkeypatch.setattr(store_fingerprints, "STORED", copy)
    monkeypatch.setattr(store_fingerprints, "ALL", ("hypercube",))
    for edition, refused in ((str(NEWEST), False), ("1", True)):
        before = {"hypercube": known["hypercube"] | {edition: REFUSED}}
        copy.write_text(json.dumps(before))
        if refused:
            with pytest.raises(SystemExit, match="edition 1 would draw otherwise"):
                store_fingerprints.main()
        else:
            store_fingerprints.main()
        assert stored() == (before if refused else {"hypercube": known["hypercube"]})
