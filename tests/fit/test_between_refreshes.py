"""Between refreshes single columns are measured with more noise than at one: rows follow what stands out of it."""

import numpy as np

from synthstream.fit.aims import Earlier, aims
from synthstream.measured import Measured
from synthstream.workload import Workload


def test_noise_that_is_not_followed_makes_no_code_rare() -> None:
    """Ages beside a long list. At the refresh most ages stand for themselves; afterwards there is as much noise in each
    as it has events.
    """
    workload, rng = Workload.all_up_to(1, sizes=(80, 400)), np.random.default_rng(0)
    ages = np.exp(-((np.arange(80) - 20.0) ** 2) / 800)
    true = [10_000 * shares / shares.sum() for shares in (ages, np.arange(1.0, 401) ** -2)]
    then, now = (
        Measured(
            tick=tick,
            workload=workload,
            values=events / 10_000 * np.array([10_000, *true[0], *true[1]]) + rng.normal(0, [1, *[noise] * 480]),
            variance=np.array([1.0, noise**2, noise**2]),
        )
        for tick, events, noise in ((99, 10_000, 20.0), (100, 10_100, 120.0))
    )
    before = aims(then).margins
    after = aims(now, then=Earlier(then, np.zeros(3))).margins
    for column, share in enumerate(true):
        was, found = (np.abs(margins[column] - share).sum() for margins in (before, after))
        assert found < 1.5 * was
