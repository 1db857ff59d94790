"""Cost of all events of one person, in units of the cost of one event; sometimes less than the number of events."""

from __future__ import annotations

from fractions import Fraction

from synthstream.kernel.counters import Counter
from synthstream.privacy import Unit


def participation_factor(how: Counter | None, unit: Unit) -> Fraction:
    """How much further all events of one unit move what passes the gate than one event does; exact, rounded up.

    Privacy:
        Unit        a person with at most ``unit.events`` events, ``unit.in_a_tick`` in a tick; neighbours: add-remove
        Cost        factor^2 times the rho of one event; the factor is the number of events if ``how`` says no better
        Theorem     participation
        Trusts      that no more events of a person are counted (``synthstream.ingest.bounding``)

    Args:
        how: the one counter that all values at the gate come from; ``None`` if there are several, or none.

    Example:
        >>> from synthstream.kernel.counters import counter
        >>> unit = Unit(kind="person", max_events=16, max_per_tick=1)
        >>> float(participation_factor(counter("simple", horizon=100, noise="gaussian"), unit))
        4.0
        >>> participation_factor(counter("kary", horizon=100, noise="laplace"), unit)
        Fraction(16, 1)
    """
    events, layers = unit.events, unit.in_a_tick
    if how is None or how.noise != "gaussian":
        return Fraction(events)
    if how.horizon is not None:  # there are no more ticks to bring events in
        events = min(events, layers * how.horizon)
    full, rest = divmod(events, layers)
    longer, shorter = (
        how.participation(n) if n and times else Fraction(0) for n, times in ((full + 1, rest), (full, layers))
    )
    if longer is None or shorter is None:
        return Fraction(unit.events)
    # Events of one person, in order of time, are dealt out to as many layers as may lie in one tick.
    moved = rest * longer + (layers - rest) * shorter
    return max(Fraction(1), min(Fraction(events), moved / Fraction(how.sensitivity(0))))
