"""Private running sums over vectors of cells. One contract (base.py), one contract suite, one file each.
What those that are matrices share is in matrix.py.

It sees exact counts and hands out what passed the gate. Names are registered here; the counters of the papers register
themselves when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from synthstream.kernel.counters.base import Counter, State
from synthstream.kernel.counters.blt import Blt
from synthstream.kernel.counters.kary import Kary
from synthstream.kernel.counters.restarted import Restarted
from synthstream.kernel.counters.simple import Simple
from synthstream.kernel.counters.toeplitz import Toeplitz
from synthstream.kinds import COUNTERS, Noise, load_counter
from synthstream.strategies.matrices import best_counter

__all__ = ["Blt", "Counter", "Kary", "Restarted", "Served", "Simple", "State", "Toeplitz", "counter", "register"]


class Served(NamedTuple):
    """What a kind of counter serves.

    Args:
        make: the counter for a horizon in ticks (``None``: no end) and a law of noise.
        noises: laws that it serves.
        instead: the kind to use for a stream without end, where this one needs a horizon.
    """

    make: Callable[[int | None, Noise], Counter]
    noises: tuple[Noise, ...]
    instead: str | None = None


_SERVED: dict[str, Served] = {}


def register(kind: str, served: Served) -> None:
    """Let configurations and :func:`counter` use a kind of counter. Raises ``ValueError`` if the name is taken."""
    if kind in _SERVED:
        raise ValueError(f"there is a counter {kind!r} already")
    _SERVED[kind] = served
    COUNTERS.setdefault(kind, None)


register("simple", Served(lambda t, noise: Simple(horizon=t, noise=noise), ("laplace", "gaussian")))
register("kary", Served(lambda t, noise: Restarted(noise=noise) if t is None else Kary(horizon=t), ("laplace",)))
register("toeplitz", Served(lambda t, _: Toeplitz(horizon=t or 0), ("gaussian",), instead="blt"))
register("blt", Served(lambda t, noise: Restarted(noise=noise) if t is None else Blt(horizon=t), ("gaussian",)))


def counter(kind: str, *, horizon: int | None, noise: Noise) -> Counter:
    """The counter of a kind; ``auto`` takes the most accurate for the horizon and the noise.

    Raises:
        ValueError: there is no such kind, or it does not serve this horizon or this noise.

    Example:
        >>> type(counter("auto", horizon=520, noise="gaussian")).__name__
        'Blt'
        >>> type(counter("auto", horizon=None, noise="laplace")).__name__
        'Restarted'
    """
    if kind == "auto":
        kind = best_counter(horizon, noise)
    if kind not in _SERVED:
        load_counter(kind)
    if kind not in _SERVED:
        raise ValueError(f"there is no counter {kind!r}")
    served = _SERVED[kind]
    if noise not in served.noises:
        needs = "delta = 0 (Laplace noise)" if "laplace" in served.noises else "delta above 0 (Gaussian noise)"
        raise ValueError(f"counter {kind!r} needs {needs}")
    if horizon is None and served.instead is not None:
        raise ValueError(f"counter {kind!r} needs a horizon in ticks; use {served.instead!r} for an unbounded stream")
    return served.make(horizon, noise)
