"""What a fingerprint or the hash chain covers has the same last bits on every processor, from edition 10 on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erfcx

from synthstream.accounting import gaussian
from synthstream.kernel.counters import counter
from synthstream.kernel.points import Points
from synthstream.kernel.spending import participation_factor
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.kinds import NEWEST, Edition
from synthstream.papers.selective import Selective
from synthstream.partition import Partition
from synthstream.privacy import Budget, Unit
from synthstream.strategies.levels import Schedule
from synthstream.workload import Workload

ZCDP = Budget(epsilon=1.0, delta=1e-9, exact=True)
WORKLOAD = Workload.all_up_to(2, sizes=(2, 3, 7, 11))
TICKS = 20
ROOT = Path(__file__).parents[2]

# To the last bit, as on a processor without AVX-512. A stream that moves to another one is refused if they differ.
DIGESTS = {
    "Marginals 20": "533b103058b0ec49",
    "Refreshed 20": "13b4579a172dacca",
    "Selective 20": "62b155fdbe05f39d",
    "Points 20": "63f79779157c8c96",
    "participation 20": "8e00263a17ab3b69",
    "Marginals 500": "6ebc74aac9f4e256",
    "Refreshed 500": "e2b3cf25fb659aec",
    "Selective 500": "ffd3ff4df0021da4",
    "Points 500": "4297257117b1126a",
    "participation 500": "02580585a5b5fb0f",
    "Marginals None": "13ea7af161518fb9",
    "Refreshed None": "18dd076f99b68c13",
    "Selective None": "5481e605e7cc3551",
    "Points None": "553e6c4f20c6c400",
}


def digests(edition: Edition = NEWEST) -> dict[str, str]:
    """By mechanism and horizon (20: `toeplitz`, 500: `blt`, none: `restarted`), of all that is to be the same."""
    found = {}
    for horizon in (TICKS, 500, None):
        common: dict[str, Any] = {"budget": ZCDP, "horizon": horizon, "edition": edition}
        points = Points(partition=Partition(dimension=2, depth=8), schedule=Schedule(dimension=2), **common)
        found[f"Points {horizon}"] = digest(points.fingerprint(), [])
        common |= {"workload": WORKLOAD}
        for mechanism in (Marginals(**common), Refreshed(**common), Selective(**common, picks=1)):
            variances = [mechanism.variance(tick).tobytes() for tick in range(TICKS)]
            found[f"{type(mechanism).__name__} {horizon}"] = digest(mechanism.fingerprint(), variances)
        if horizon:
            how = counter("auto", horizon=horizon, noise="gaussian", edition=edition)
            factor = participation_factor(how, Unit(kind="person", max_events=9, max_per_tick=2))
            found[f"participation {horizon}"] = digest(str(factor), [])
    return found


def digest(name: str, more: list[bytes]) -> str:
    """The first digits of a hash."""
    return hashlib.sha256(name.encode() + b"".join(more)).hexdigest()[:16]


def test_numbers_are_those_of_other_processors() -> None:
    assert digests() == DIGESTS


def test_numbers_do_not_depend_on_last_bits_of_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **more: np.nextafter(function(*args, **more), np.inf)

    former = digests(9)
    for name in ("exp", "log", "log1p", "expm1", "log2"):
        monkeypatch.setattr(np, name, off(getattr(np, name)))
    monkeypatch.setattr(np.linalg, "inv", off(np.linalg.inv))
    monkeypatch.setattr(gaussian, "erfcx", off(erfcx))
    gaussian.largest_rho.cache_clear()
    assert digests() == DIGESTS
    assert digests(9) != former  # what is changed here matters before edition 10


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="names of x86 processors")
@pytest.mark.parametrize("processor", ["Prescott", "Sandybridge"])
def test_numbers_do_not_depend_on_the_order_in_which_blas_adds(processor: str) -> None:
    """OpenBLAS is told to compute as older processors do, which it reads as it is loaded: in a process of its own."""
    code = "import json; from tests.kernel.test_processors import digests; print(json.dumps([digests(9), digests()]))"
    env = os.environ | {"OPENBLAS_CORETYPE": processor}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    former, now = json.loads(done.stdout)
    assert now == DIGESTS
    assert former != digests(9)  # so it does compute in another order
