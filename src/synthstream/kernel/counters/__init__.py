"""Private running sums over vectors of cells. One file each, one contract (base.py), one contract suite."""

from __future__ import annotations

from collections.abc import Callable

from synthstream.kernel.counters.base import Counter, Noise, State
from synthstream.kernel.counters.binary import Binary
from synthstream.kernel.counters.block import Block
from synthstream.kernel.counters.blt import Blt
from synthstream.kernel.counters.hybrid import Hybrid
from synthstream.kernel.counters.kary import Kary
from synthstream.kernel.counters.restarted import Restarted
from synthstream.kernel.counters.simple import Simple
from synthstream.kernel.counters.toeplitz import Toeplitz
from synthstream.kinds import CounterKind

__all__ = [
    "Binary",
    "Block",
    "Blt",
    "Counter",
    "Hybrid",
    "Kary",
    "Restarted",
    "Simple",
    "State",
    "Toeplitz",
    "counter",
]

_LAPLACE: tuple[CounterKind, ...] = ("block", "binary", "hybrid", "kary")
_BOUNDED: dict[CounterKind, Callable[..., Counter]] = {"binary": Binary, "kary": Kary, "toeplitz": Toeplitz, "blt": Blt}

# Below these horizons the plainer counter is as good or better (docs/decisions/0002-counters.md).
_SIMPLE_PURE, _TOEPLITZ = 24, 32


def counter(kind: CounterKind, *, horizon: int | None, noise: Noise) -> Counter:
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
    if (kind in _LAPLACE) != (noise == "laplace"):
        needs = "delta = 0 (Laplace noise)" if kind in _LAPLACE else "delta above 0 (Gaussian noise)"
        raise ValueError(f"counter {kind!r} needs {needs}")
    if kind == "block":
        return Block(horizon=horizon)
    if kind == "hybrid":
        return Hybrid(horizon=horizon)
    if horizon is None:
        if kind in ("toeplitz", "binary"):
            instead = "blt" if kind == "toeplitz" else "hybrid"
            raise ValueError(f"counter {kind!r} needs a horizon in ticks; use {instead!r} for an unbounded stream")
        return Restarted(noise=noise)
    return _BOUNDED[kind](horizon=horizon)


def _best(horizon: int | None, noise: Noise) -> CounterKind:
    if noise == "laplace":
        return "simple" if horizon is not None and horizon <= _SIMPLE_PURE else "kary"
    return "toeplitz" if horizon is not None and horizon < _TOEPLITZ else "blt"
