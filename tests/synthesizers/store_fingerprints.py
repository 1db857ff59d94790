"""Writes what each edition draws: ``python -m tests.synthesizers.store_fingerprints``.

Of the newest edition, and of a kind of stream that is new here. It refuses to change what an older edition drew.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args
from unittest.mock import patch

from synthstream import StreamConfig, measured
from synthstream.errors import ConfigError
from synthstream.kinds import NEWEST, Edition
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from tests.support.streams import KINDS, PERSONS, text_of

STORED = Path(__file__).parent / "fingerprints.json"
EDITIONS: tuple[Edition, ...] = get_args(Edition)
# As other streams of tests, but for what they say: an edition decides of the rest.
_OTHERWISE = {
    "table": ("always", '\nmeasure = "always"', ""),
    "table-pure": ("epochs", "\npicks = 1", ""),
    "points-delta": ("points", "delta = 0\n", "delta = 1e-9\n"),
}
ALL = (*KINDS, PERSONS, *_OTHERWISE)
REFUSED = "refused"


def drawn(kind: str) -> dict[str, str]:
    """What a stream of a kind draws, by its edition: the fingerprint of its mechanism, and what it claims to cost.

    Numbers count to ten digits: before edition 10 the last ones depend on the processor. Since then they are held by
    ``tests/kernel/test_processors.py``.
    """
    like, said, instead = _OTHERWISE.get(kind, (kind, "", ""))
    config = StreamConfig.from_toml(text_of(like).replace(said, instead), base=Path("/nowhere"))
    with patch.object(measured, "json", SimpleNamespace(dumps=lambda facts: json.dumps(_short(facts)))):
        return {str(edition): _drawn(config.begun_as({"edition": edition})) for edition in EDITIONS}


def _drawn(config: StreamConfig) -> str:
    try:
        mechanism = synthesizer_of(config).mechanism
    except ConfigError:
        return REFUSED
    claim = claim_of(config, mechanism)
    return f"{mechanism.fingerprint()[:12]} rho {float(claim.rho):.10g} {' '.join(claim.theorems)}"


def _short(facts: Any) -> Any:
    if isinstance(facts, list | tuple):
        return [_short(fact) for fact in facts]
    return float(f"{facts:.10g}") if isinstance(facts, float) else facts


def stored() -> dict[str, dict[str, str]]:
    """What was written, by kind and edition."""
    found: dict[str, dict[str, str]] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def main() -> None:
    known, found = stored(), {kind: drawn(kind) for kind in ALL}
    for kind, editions in known.items():
        for edition, value in editions.items():
            if edition != str(NEWEST) and found.get(kind, {}).get(edition) != value:
                raise SystemExit(f"{kind}: edition {edition} would draw otherwise, and running streams be refused")
    STORED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
