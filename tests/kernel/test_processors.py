"""What a fingerprint or the hash chain covers has the same last bits on every processor."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erfcx

from synthstream.accounting import gaussian, zcdp
from synthstream.kernel.counters import counter, restarted
from synthstream.kernel.points import Points
from synthstream.kernel.spending import participation_factor
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.papers.selective import Selective
from synthstream.partition import Partition
from synthstream.privacy import Budget, Unit
from synthstream.strategies.levels import Schedule
from synthstream.strategies.matrices import of_least_variance
from synthstream.workload import Workload

ZCDP = Budget(epsilon=1.0, delta=1e-9, exact=True)
OTHERS = [replace(ZCDP, delta=delta) for delta in (1e-7, 1e-8)]
WORKLOAD = Workload.all_up_to(2, sizes=(2, 3, 7, 11))
TICKS = 20
ROOT = Path(__file__).parents[2]

# To the last bit, as on a processor without AVX-512. A stream that moves to another one is refused if they differ.
DIGESTS = {
    "Points 20": "8e8a9a92bde086f0",
    "Marginals 20": "533b103058b0ec49",
    "Refreshed 20": "85d4872f958ed28a",
    "Selective 20": "1e1b37e9025dab01",
    "Points of a person 1e-07": "039ddc64e82ebe54",
    "Selective 1e-07": "8338fc46673b9102",
    "Points of a person 1e-08": "f1b975230447410c",
    "Selective 1e-08": "c3e3da9bf50a3366",
    "participation 20": "8e00263a17ab3b69",
    "Points 500": "0eedc9243889754b",
    "Marginals 500": "6ebc74aac9f4e256",
    "Refreshed 500": "38f4812e0969e94e",
    "Selective 500": "a1e883be9a127af2",
    "participation 500": "02580585a5b5fb0f",
    "Points None": "0e27f7f95a11d789",
    "Marginals None": "13ea7af161518fb9",
    "Refreshed None": "316135f26c0ed19d",
    "Selective None": "69c317023a074275",
}


def digests() -> dict[str, str]:
    """By mechanism and horizon (20: `toeplitz`, 500: `blt`, none: `restarted`), of all that is to be the same."""
    found = {}
    for horizon in (TICKS, 500, None):
        common: dict[str, Any] = {"budget": ZCDP, "horizon": horizon}
        points = Points(partition=Partition(dimension=2, depth=8), schedule=Schedule(dimension=2), **common)
        found[f"Points {horizon}"] = digest(points.fingerprint(), [])
        common |= {"workload": WORKLOAD}
        for mechanism in (Marginals(**common), Refreshed(**common), Selective(**common, picks=1)):
            variances = [mechanism.variance(tick).tobytes() for tick in range(TICKS)]
            found[f"{type(mechanism).__name__} {horizon}"] = digest(mechanism.fingerprint(), variances)
        if horizon == TICKS:
            for budget in OTHERS:
                own = replace(points, budget=budget.per_event(Fraction(2)))
                found[f"Points of a person {budget.delta:g}"] = digest(own.fingerprint(), [])
                chosen = Selective(workload=WORKLOAD, budget=budget, horizon=horizon, picks=1)
                found[f"Selective {budget.delta:g}"] = digest(chosen.fingerprint(), [])
        if horizon:
            how = counter("auto", horizon=horizon, noise="gaussian")
            factor = participation_factor(how, Unit(kind="person", max_events=9, max_per_tick=2))
            found[f"participation {horizon}"] = digest(str(factor), [])
    return found


def forget() -> None:
    """Let nothing that was computed before stand in for what is computed now."""
    for kept in (of_least_variance, restarted._inner, zcdp.rho_for, gaussian.largest_rho):
        kept.cache_clear()


def digest(name: str, more: list[bytes]) -> str:
    """The first digits of a hash."""
    return hashlib.sha256(name.encode() + b"".join(more)).hexdigest()[:16]


def test_numbers_are_those_of_other_processors() -> None:
    assert digests() == DIGESTS


def test_numbers_do_not_depend_on_last_bits_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    called = set[str]()

    def off(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def moved(*args: Any, **more: Any) -> Any:
            called.add(name)
            found = function(*args, **more)
            return np.nextafter(found, np.inf) if isinstance(found, float | np.ndarray) else found

        return moved

    for name in ("exp", "log", "linalg.solve", "linalg.cholesky"):
        place, _, own = name.rpartition(".")
        home = np.linalg if place else np
        monkeypatch.setattr(home, own, off(name, getattr(home, own)))
    monkeypatch.setattr(gaussian, "erfcx", off("erfcx", erfcx))
    monkeypatch.setattr(zcdp, "_sought", off("_sought", zcdp._sought))
    forget()
    try:
        assert digests() == DIGESTS
        assert called >= {"exp", "log", "linalg.solve", "linalg.cholesky", "erfcx", "_sought"}
    finally:
        forget()


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="names of x86 processors")
@pytest.mark.parametrize(
    "told",
    [
        {"OPENBLAS_CORETYPE": "Prescott"},
        {"OPENBLAS_CORETYPE": "Sandybridge"},
        {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-AVX2,-FMA4,-AVX"},
    ],
    ids=["Prescott", "Sandybridge", "no-fma"],
)
def test_numbers_do_not_depend_on_the_order_in_which_libraries_add(told: dict[str, str]) -> None:
    """OpenBLAS and the C library are told to compute as older processors do, in a process of its own each."""
    code = "import json; from tests.kernel.test_processors import digests; print(json.dumps(digests()))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | told, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    assert json.loads(done.stdout) == DIGESTS
