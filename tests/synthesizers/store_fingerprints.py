"""Writes what streams draw: ``python -m tests.synthesizers.store_fingerprints``.

Of a new edition, and of a kind of stream that is new here. It refuses to change what an edition drew.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from synthstream import StreamConfig, measured
from synthstream.kinds import EDITION
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from tests.support.configs import category
from tests.support.streams import KINDS, PERSONS, text_of

STORED = Path(__file__).parent / "fingerprints.json"
# As other streams of tests, but for what they say: an edition decides of the rest.
_OTHERWISE = {
    "table": ("always", '\nmeasure = "always"', ""),
    "table-pure": ("epochs", "\npicks = 1", ""),
    "table-open": ("epochs", "picks = 1\n", "".join(category(name, "u", "v", "w") for name in "abcd")),
    "epochs-op": ("epochs", 'name = "epochs"\n', 'op = "op"\nname = "epochs"\n'),
    "points-delta": ("points", "delta = 0\n", "delta = 1e-9\n"),
}
ALL = (*KINDS, PERSONS, *_OTHERWISE)


def drawn(kind: str) -> dict[str, Any]:
    """What a stream of a kind draws: its edition, the fingerprint of its mechanism, and what it claims to cost.

    Numbers count to ten digits. The last ones are held by ``tests/kernel/test_processors.py``.
    """
    like, said, instead = _OTHERWISE.get(kind, (kind, "", ""))
    config = StreamConfig.from_toml(text_of(like).replace(said, instead), base=Path("/nowhere"))
    with patch.object(measured, "json", SimpleNamespace(dumps=lambda facts: json.dumps(_short(facts)))):
        mechanism = synthesizer_of(config).mechanism
        claim = claim_of(config, mechanism)
        words = f"{mechanism.fingerprint()[:12]} rho {float(claim.rho):.10g} {' '.join(claim.theorems)}"
    return {"edition": EDITION, "drawn": words}


def _short(facts: Any) -> Any:
    if isinstance(facts, list | tuple):
        return [_short(fact) for fact in facts]
    return float(f"{facts:.10g}") if isinstance(facts, float) else facts


def stored() -> dict[str, dict[str, Any]]:
    """What was written, by kind."""
    found: dict[str, dict[str, Any]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main() -> None:
    found = {kind: drawn(kind) for kind in ALL}
    for kind, known in stored().items():
        if known["edition"] == EDITION and found.get(kind) != known:
            raise SystemExit(f"{kind}: edition {EDITION} would draw otherwise, and running streams be refused")
    STORED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
