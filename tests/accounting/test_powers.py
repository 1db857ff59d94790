"""Powers and their sums, beside exact ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from synthstream.accounting.powers import geometric, powers

BASES = np.array([2**64 - 2**55, 2**63, 3**39], dtype=np.uint64)


def test_powers_and_sums_are_those_of_exact_numbers() -> None:
    exact, events = [Fraction(int(base), 2**64) for base in BASES], 40
    found = powers(BASES / 2.0**64, events)
    np.testing.assert_allclose(found, [[float(base**k) for k in range(events)] for base in exact], rtol=1e-12)
    first, number = np.arange(events), np.arange(events, 0, -1)
    sums = [[float(sum(base**k for k in range(events)[f:])) for f in first] for base in exact]
    np.testing.assert_allclose(geometric(BASES, first, number), sums, rtol=1e-12)


def test_powers_are_products_which_do_not_depend_on_the_processor() -> None:
    base = float(BASES[2]) / 2.0**64
    expected = [1.0]
    for _ in range(39):
        expected.append(expected[-1] * base)
    assert powers(np.array([base]), 40)[0].tolist() == expected
    ones = np.ones(40, dtype=np.int64)
    assert geometric(BASES[2:], np.arange(40), ones)[0].tolist() == expected
