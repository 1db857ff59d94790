"""The ledger refuses a stream of any kind that would cost more than its budget, before anything is drawn or written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from synthstream import Stream
from synthstream.errors import BudgetExceeded
from synthstream.kernel.gate import Gate
from synthstream.privacy import EXACT, Claim
from synthstream.stream import succession
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.gates import Call, TracingGate
from tests.support.halves import exact
from tests.support.streams import KINDS, PERSONS, configured, published, rows
from tests.support.successors import CUT, NEW, events, half, written


def dearer(honest: Callable[[Any], Claim], times: Fraction) -> Callable[[Any], Claim]:
    """A mechanism's claim that says so many times what it says."""

    def claim(mechanism: object) -> Claim:
        found = honest(mechanism)
        return replace(found, rho=found.rho * times, pure=None if found.pure is None else found.pure * times)

    return claim


@pytest.mark.parametrize("kind", [*KINDS, PERSONS])
def test_a_claim_above_the_budget_opens_no_stream(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path, kind)
    mechanism = type(synthesizer_of(config).mechanism)
    honest, drawn = mechanism.claim, list[list[Call]]()

    def gates(tick: int) -> Gate:
        gate = TracingGate(SeededGate(tick))
        drawn.append(gate.trace)
        return gate

    # As much dearer as brings it just above the budget. Most kinds spend all of it; hypercube leaves some.
    claim, budget = claim_of(config, synthesizer_of(config).mechanism), config.privacy.budget
    spent, above = claim.rho / budget.rho, 1 + Fraction(1, 10**9)
    if claim.pure is not None:
        spent = claim.pure / Fraction(budget.epsilon)
    if EXACT in claim.theorems:  # what such noise may cost has fewer digits
        spent, above = Fraction(1), 1 + Fraction(1, 10**7)
    monkeypatch.setattr(mechanism, "claim", dearer(honest, above / spent))
    for _ in range(2):  # refused once, it is not let in the second time
        with pytest.raises(BudgetExceeded, match="No noise was drawn"):
            Stream(config, gates=gates)
    assert not any(drawn)
    assert published(tmp_path / "releases") == {}

    monkeypatch.setattr(mechanism, "claim", honest)
    with Stream(config, gates=gates) as stream:  # nothing was left behind that would be in its way
        assert len(stream.status()["spent"]) == 1
        stream.update(rows(40, 1))
        stream.release()
    assert any(drawn)


def test_a_claim_above_its_budget_begins_no_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = half(tmp_path, events()), written(tmp_path, NEW, "new.toml")

    def twice(*given: Any) -> Claim:
        claim = claim_of(*given)
        return replace(claim, rho=2 * claim.rho)

    with monkeypatch.context() as patch:
        patch.setattr(succession, "claim_of", twice)
        with pytest.raises(BudgetExceeded, match="No noise was drawn"):
            succession.succeed(old, new, gates=exact)
    with Stream(old, gates=exact) as stream:  # it goes on as if nothing had been said
        assert stream.closed == CUT
        assert len(stream.status()["spent"]) == 1
