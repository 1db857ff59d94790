"""Wide tables: how many pairs can rise above the noise, and whether rows take long. From public numbers alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from synthstream.config.config import StreamConfig
from synthstream.config.synthesis import is_near
from synthstream.synthesizers.assembly import synthesizer_of
from synthstream.synthesizers.contract import TableMechanism
from synthstream.workload import FloatArray, Workload

# Fewer columns are no wide table.
_WIDE = 20
# A weak association of two columns, as Cramer's V, and how many standard deviations of the noise it must stand out.
_WEAK, _OUT = 0.1, 2.0
# SQLite keeps no blob of more bytes.
_LARGEST_STATE = 1_000_000_000
# From one distance that is tried to the next.
_STEP = 1.25
# Rows are left out where to simulate them takes longer, in seconds of one core; what each of the _FITS for one time
# takes, and more for a table and a cell. Measured; a machine may be twice as fast. Every epoch that is over is fitted.
_LONG, _FITS = 30.0, 9
_SECONDS, _SECONDS_IN_EPOCHS = (0.01, 3e-4, 7e-7), (0.3, 1e-4, 7e-6)


class Proposal(NamedTuple):
    """Pairs to count instead of all.

    Args:
        near: of columns at most so far apart; 0: none at all.
        pairs, rising: how many these are, and of how many a weak association stands out of their noise.
        all_pairs, all_rising: the same of all pairs.
        asked: after which of the forecast's times.
    """

    near: int
    pairs: int
    rising: int
    all_pairs: int
    all_rising: int
    asked: str

    @property
    def toml(self) -> str:
        """The section to paste."""
        return f"[synthesizer]\n{f'near = {self.near}' if self.near else 'order = 1'}\n"

    @property
    def words(self) -> str:
        """Why, and when not."""
        begin = (
            f"At the expected number of events, a weak association of two columns (Cramer's V = {_WEAK:g}) stands out "
            f"of the noise by {self.asked} in {self.all_rising:,} of {self.all_pairs:,} pairs. "
        )
        if self.near == 0:
            return begin + "No smaller number of pairs helps; without any, tables of one column have less noise."
        return begin + (
            f"If each column is counted with the {self.near} before and after it alone, it does in {self.rising:,} of "
            f"{self.pairs:,}. Errors then fall where related columns stand side by side, and rise where they do not: "
            "nothing is known of other pairs. So sort [[columns]] by subject first, and name other pairs in "
            "marginals; or keep all pairs. Keep them also where one thing shows in most columns: together they tell "
            "more of it than each alone."
        )

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "words": self.words, "toml": self.toml}


def proposed(config: StreamConfig, *, ticks: int, events: float, asked: str) -> Proposal | None:
    """Fewer pairs, if more of them then rise above the noise; ``None`` if not, or if tables were chosen already.

    An association of strength V between columns of a and b values has a squared size of about n^2 V^2 (min(a, b) - 1) /
    (a b) for n events. Of the noise's own, with (a - 1) (b - 1) degrees of freedom, the standard deviation is sqrt(2 (a
    - 1) (b - 1)) times the variance of a cell.

    Args:
        ticks, events: that have been released, and have come, by then; ``asked`` in words.
    """
    section, columns = config.synthesizer, len(config.schema.names)
    chosen = section.marginals is not None or section.near is not None or section.order not in (None, 2)
    if chosen or config.workload is None or section.of_paper or columns < _WIDE:
        return None
    if config.measures == "epochs":  # it chooses by itself what to measure
        return None
    steps = range(math.ceil(math.log(columns - 1) / math.log(_STEP)) + 1)
    found = {}
    for near in sorted({round((columns - 1) / _STEP**step) for step in steps}):
        marginals = enumerate(config.workload.marginals)
        workload = config.workload.only(q for q, one in marginals if is_near(one, near, config.schema))
        made = synthesizer_of(replace(config, workload=workload))
        found[near] = _rising(workload, made.expected_variance(ticks - 1), events)
    whole = found[columns - 1]
    best = max(found, key=lambda near: (found[near][1], -near))
    if found[best][1] <= whole[1] and whole[1] > 0:
        return None
    near, (pairs, rising) = (best, found[best]) if found[best][1] else (0, (0, 0))
    return Proposal(near, pairs, rising, *whole, asked)


def too_long(mechanism: TableMechanism | None, times: int, *, epochs: bool) -> str:
    """That to simulate rows after so many times takes long; empty if it does not. ``epochs``: whether it has any."""
    if mechanism is None:
        return ""
    number, (a_fit, a_table, a_cell) = len(mechanism.workload.marginals), _SECONDS_IN_EPOCHS if epochs else _SECONDS
    seconds = times * _FITS * (a_fit + a_table * number + a_cell * mechanism.workload.cells)
    if seconds <= _LONG:
        return ""
    return (
        f"Published rows are left out: to simulate those of {number:,} tables takes about {seconds:.0f} s. "
        "plan --rows does it, and says how long a release takes; in Python, rows=True."
    )


def _rising(workload: Workload, variance: FloatArray, events: float) -> tuple[int, int]:
    """Number of pairs, and of those in which a weak association stands out of the noise."""
    pairs = np.array([q for q, marginal in enumerate(workload.marginals) if len(marginal) == 2])
    shapes = np.array([workload.shapes[q] for q in pairs], dtype=np.float64)
    freedom = np.prod(shapes - 1, axis=1)
    size = (events * _WEAK) ** 2 * (shapes.min(axis=1) - 1) / np.prod(shapes, axis=1)
    rises = (freedom > 0) & (size > _OUT * variance[pairs] * np.sqrt(2 * freedom))
    return len(pairs), int(rises.sum())


def too_large(mechanism: TableMechanism | None, state: int) -> str:
    """That counts become more than the state's database can keep; empty if they do not. ``state``: their bytes."""
    if mechanism is None or state < _LARGEST_STATE:
        return ""
    return (
        f"Counts of the state become {state / 1e6:,.0f} MB, and its database keeps no more than "
        f"{_LARGEST_STATE / 1e6:,.0f} MB: the stream would stop at that tick for good. Ask for fewer tables, with near "
        "or marginals."
    )
