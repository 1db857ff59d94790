"""How the parameters of the blt counter were found: python -m benchmarks.blt_parameters [largest exponent]

Minimises the mean squared error over the horizon, sensitivity included, by Nelder-Mead from a spread start and from
the neighbouring horizon's optimum. Prints the lines of strategies/blt_parameters.py, with the error at
(epsilon, delta) = (1, 1e-9).
"""

from __future__ import annotations

import argparse

import numba
import numpy as np
from scipy.optimize import minimize

from synthstream.accounting.zcdp import rho_for
from synthstream.workload import FloatArray


@numba.njit(cache=True)
def squared_errors(weights, decays, horizon):  # type: ignore[no-untyped-def]
    """Mean and largest variance over the horizon, for noise of variance 1 per unit of squared sensitivity."""
    total = weights.sum()
    sums = np.zeros(weights.size)
    sensitivity = 0.0
    for _ in range(horizon):
        c = (1.0 - np.sum(weights * decays * sums)) / (1.0 + total)
        sums = c + decays * sums
        sensitivity += c * c
    powers = np.ones(weights.size)
    mean = 0.0
    largest = 0.0
    for j in range(horizon):
        b = np.sum(weights * powers) + (1.0 if j == 0 else 0.0)
        powers *= decays
        mean += b * b * (horizon - j) / horizon
        largest += b * b
    return sensitivity * mean, sensitivity * largest


def unpack(x: FloatArray, buffers: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Times, weights and decays from logarithms; the last decay is 1."""
    times, weights = np.exp(x[: buffers - 1]), np.exp(x[buffers - 1 :])
    return times, weights, np.append(np.exp(-1 / times), 1.0)


def search(horizon: int, buffers: int, near: FloatArray | None) -> FloatArray:
    """The best logarithms found."""
    spread = np.concatenate(
        [
            np.linspace(np.log(1.5), np.log(horizon / 4), buffers - 1),
            np.log(np.geomspace(1, horizon**-0.5, buffers)),
        ]
    )

    def loss(x: FloatArray) -> float:
        if np.any(np.abs(x) > 40):
            return 1e9
        _, weights, decays = unpack(x, buffers)
        return float(np.log(squared_errors(weights, decays, horizon)[0]))

    options = {"maxiter": 3000, "maxfev": 3000, "xatol": 1e-6, "fatol": 1e-10, "adaptive": True}
    found = []
    for start in [spread] if near is None else [near, spread]:
        x = start
        for _ in range(4):
            x = minimize(loss, x, method="Nelder-Mead", options=options).x  # type: ignore[call-overload]
        found.append(x)
    return min(found, key=loss)


def main() -> None:
    """Print one line per horizon, 2^6 to 2^20 unless told otherwise."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("last", type=int, nargs="?", default=20, metavar="exponent", help="the largest one")
    last = asked.parse_args().last
    noise = (2 * rho_for(1.0, delta=1e-9)) ** -0.5
    best: dict[int, FloatArray] = {}
    for exponent in range(6, last + 1):
        horizon = 2**exponent
        buffers = 3 if exponent <= 7 else 4 if exponent <= 13 else 5
        best[buffers] = search(horizon, buffers, best.get(buffers))
        times, weights, decays = unpack(best[buffers], buffers)
        mean, largest = squared_errors(weights, decays, horizon)
        taus, ws = (", ".join(f"{v:.6g}" for v in values) for values in (times, weights))
        print(
            f"    {horizon}: (({taus}), ({ws})),  # rms {noise * mean**0.5:.2f} max {noise * largest**0.5:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
