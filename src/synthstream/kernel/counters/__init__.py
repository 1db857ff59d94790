"""Private running sums over vectors of cells. One file each, one contract (base.py), one contract suite."""

from __future__ import annotations

from typing import Literal

from synthstream.kernel.counters.base import Counter, Noise, State
from synthstream.kernel.counters.blt import Blt
from synthstream.kernel.counters.kary import Kary
from synthstream.kernel.counters.restarted import Restarted
from synthstream.kernel.counters.simple import Simple
from synthstream.kernel.counters.toeplitz import Toeplitz

__all__ = ["KINDS", "Blt", "Counter", "Kary", "Kind", "Restarted", "Simple", "State", "Toeplitz", "counter"]

Kind = Literal["auto", "simple", "kary", "toeplitz", "blt"]
KINDS: tuple[Kind, ...] = ("auto", "simple", "kary", "toeplitz", "blt")

# Below these horizons the plainer counter is as good or better (docs/decisions/0002-counters.md).
_SIMPLE_PURE, _TOEPLITZ = 24, 32


def counter(kind: Kind, *, horizon: int | None, noise: Noise) -> Counter:
    """The counter of a kind; ``auto`` takes the most accurate for the horizon and the noise.

    Raises:
        ValueError: the kind does not serve this horizon or this noise.

    Example:
        >>> type(counter("auto", horizon=520, noise="gaussian")).__name__
        'Blt'
        >>> type(counter("auto", horizon=None, noise="laplace")).__name__
        'Restarted'
    """
    if kind == "auto":
        kind = _best(horizon, noise)
    if kind == "simple":
        return Simple(horizon=horizon, noise=noise)
    if (kind == "kary") != (noise == "laplace"):
        needs = "delta = 0 (Laplace noise)" if kind == "kary" else "delta above 0 (Gaussian noise)"
        raise ValueError(f"counter {kind!r} needs {needs}")
    if horizon is None and kind != "toeplitz":
        return Restarted(noise=noise)
    if horizon is None:
        raise ValueError("counter 'toeplitz' needs a horizon in ticks; use 'blt' for an unbounded stream")
    if kind == "kary":
        return Kary(horizon=horizon)
    return Toeplitz(horizon=horizon) if kind == "toeplitz" else Blt(horizon=horizon)


def _best(horizon: int | None, noise: Noise) -> Kind:
    if noise == "laplace":
        return "simple" if horizon is not None and horizon <= _SIMPLE_PURE else "kary"
    return "toeplitz" if horizon is not None and horizon < _TOEPLITZ else "blt"
