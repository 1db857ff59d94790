"""Streams for the benchmarks, by name: those to tune on, and real tables that nothing is tuned on.

Seeds shuffle and draw rows, nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from synthstream.config.config import load
from synthstream.constraints import Group
from synthstream.ingest.counting import encode
from synthstream.workload import CodeArray, FloatArray, IntArray

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDER = EXAMPLES / "data"
Order = Literal["random", "by-row-number"]
Every = Literal["1w", "2w"]


@dataclass(frozen=True, kw_only=True)
class Batches:
    """A stream in numbers.

    Args:
        codes: all rows in the order of their ticks, shape ``(rows, columns)``.
        sizes: number of codes of each column.
        ends: rows up to the end of each tick, shape ``(ticks,)``.
        expected: events that a tick brings, a public guess.
        horizon: number of ticks that is declared; left out: as many as there are.
        groups: public constraints.
    """

    codes: CodeArray
    sizes: tuple[int, ...]
    ends: list[int]
    expected: float
    horizon: int | None = None
    groups: tuple[Group, ...] = ()

    @property
    def declared(self) -> int:
        """The horizon that the stream declares."""
        return self.horizon or len(self.ends)


def adult(order: Order, seed: int = 0) -> tuple[CodeArray, tuple[int, ...]]:
    """Codes of UCI Census Income, shape (48813, 14), and the domain sizes; shuffled, or by its row number."""
    sizes = json.loads((FOLDER / "adult-domain.json").read_text())
    codes = pl.read_parquet(FOLDER / "adult.parquet").sort("uci_row").select(list(sizes)).to_numpy().astype(np.int32)
    if order == "random":
        codes = codes[np.random.default_rng(seed).permutation(len(codes))]
    return codes, tuple(sizes.values())


def adult_batches(order: Order, batch: int, seed: int = 0) -> Batches:
    """Census Income in batches of one size, which is public."""
    return _batches(*adult(order, seed), batch)


def _batches(codes: CodeArray, sizes: Sequence[int], batch: int, horizon: int | None = None) -> Batches:
    ends = [min(end, len(codes)) for end in range(batch, len(codes) + batch, batch)]
    return Batches(codes=codes, sizes=tuple(sizes), ends=ends, expected=batch, horizon=horizon)


def evictions(every: Every, *, crosswalk: bool = False) -> Batches:
    """Eviction notices 2011 to 2015 by week or fortnight, coded as in the example, whose lists are public knowledge.

    The expected number is a guess: some 1,800 notices a year.

    Args:
        crosswalk: whether the public constraint of the example holds: which ZIP codes, districts and neighborhoods
            overlap.
    """
    config = load(EXAMPLES / "evictions" / "stream.toml")
    config = replace(config, clock=replace(config.clock, every=every, until=datetime(2016, 1, 2), horizon=None))
    rows = encode(config, pl.read_parquet(FOLDER / "sf_evictions_2011_2015.parquet"))
    order = np.argsort(rows.ticks, kind="stable")
    ends = np.cumsum(np.bincount(rows.ticks)).tolist()
    expected = 35.0 if every == "1w" else 70.0
    groups = config.constraints.groups if crosswalk else ()
    return Batches(codes=rows.codes[order], sizes=config.schema.sizes, ends=ends, expected=expected, groups=groups)


def adult_by(column: str, seed: int) -> Batches:
    """Census Income, 200 a tick, sorted by one column: its codes come one after another, rows of a code shuffled."""
    codes, sizes = adult("random", seed)
    return _batches(codes[np.argsort(codes[:, _place(column)], kind="stable")], sizes, 200)


def switch(seed: int) -> Batches:
    """A stream that switches half way: Census Income in random order, then other people, 200 a tick.

    The second half is drawn with replacement from the half that did not come, the more often the older people are and
    the longer they work, men more often (weights ``exp(seniority)``). That moves most columns.
    """
    codes, sizes = adult("random", seed)
    half = 122 * 200
    rest = codes[half:]
    weights = np.exp(_seniority(rest))
    drawn = np.random.default_rng((seed, 1)).choice(len(rest), size=half, p=weights / weights.sum())
    return _batches(np.concatenate([codes[:half], rest[drawn]]), sizes, 200)


def seasonal(seed: int) -> Batches:
    """Census Income, 200 a tick, three seasons: people of low and of high seniority come more often in turn.

    The times of the lower half have the density 1 + .9 sin(6 pi t) on 0 <= t <= 1, those of the upper half
    1 - .9 sin(6 pi t). Together people come evenly, and at the end all have come.
    """
    codes, sizes = adult("random", seed)
    upper = np.argsort(np.argsort(_seniority(codes), kind="stable")) >= len(codes) / 2
    grid = np.linspace(0, 1, 4001)
    wave = 0.9 * (1 - np.cos(6 * np.pi * grid)) / (6 * np.pi)
    uniform = np.random.default_rng((seed, 1)).random(len(codes))
    times = np.where(upper, np.interp(uniform, grid - wave, grid), np.interp(uniform, grid + wave, grid))
    return _batches(codes[np.argsort(times)], sizes, 200)


def associations(seed: int) -> Batches:
    """Census Income in random order, 200 a tick; in the second half only the associations change.

    There, every second column is shuffled, all of them in the same way: what relates these to each other stays, what
    relates them to the others is gone. The tables of single columns are those of random order.
    """
    codes, sizes = adult("random", seed)
    half = 122 * 200
    others = codes[half:][np.random.default_rng((seed, 1)).permutation(len(codes) - half)]
    codes[half:, ::2] = others[:, ::2]
    return _batches(codes, sizes, 200)


def dependent(seed: int) -> Batches:
    """48,000 rows of 14 columns, 200 a tick: four columns, and ten that are noisy functions of earlier ones.

    Values of the four are as frequent as 1, 1/2, 1/3, ...; functions are fixed; a twentieth of the values are random.
    """
    sizes = (40, 24, 16, 10, 24, 16, 12, 12, 10, 8, 6, 4, 3, 2)
    parents = (0, 1, 2, 3, 0, 1, 2, 3, 4, 5)
    rng, fixed, rows = np.random.default_rng(seed), np.random.default_rng(13), 48_000
    columns = [_falling(rng, rows, size) for size in sizes[:4]]
    for parent, size in zip(parents, sizes[4:], strict=True):
        function = fixed.integers(0, size, sizes[parent])
        columns.append(np.where(rng.random(rows) < 0.05, rng.integers(0, size, rows), function[columns[parent]]))
    return _batches(_table(columns), sizes, 200)


def flags(seed: int) -> Batches:
    """5,000 rows of 20 yes and no, 25 a tick: shares from 30 % to .2 %; the last eight go along with the first."""
    shares = np.geomspace(0.3, 0.002, 20)
    rng = np.random.default_rng(seed)
    found = rng.random((5_000, 20)) < shares
    for flag in range(12, 20):
        # The rarer one is found with the common one alone, mostly, so that its share stays about what it is.
        found[:, flag] &= rng.random(5_000) < 0.2
        found[:, flag] |= found[:, flag - 12] & (rng.random(5_000) < shares[flag] / shares[flag - 12])
    return _batches(found.astype(np.int32), (2,) * 20, 25)


def grades(seed: int) -> Batches:
    """6,000 answers to 30 questions in five grades, 100 a tick, which go along with three hidden variables."""
    rng, rows = np.random.default_rng(seed), 6_000
    loadings = 0.8 * np.random.default_rng(6).normal(size=(3, 30))
    answers = rng.normal(size=(rows, 3)) @ loadings + rng.normal(size=(rows, 30))
    return _batches(np.clip(np.floor(answers + 2.5), 0, 4).astype(np.int32), (5,) * 30, 100)


def lookup(seed: int) -> Batches:
    """50,000 rows of six columns, 500 a tick: a code of 250 values, and what a table of another 180 values says of it.

    Values of the code are as frequent as 1, 2^-.8, 3^-.8, ...; the third column follows the second, mostly, and the
    last the third; the fourth and the fifth go together, and with nothing else.
    """
    rng, rows = np.random.default_rng(seed), 50_000
    shares = np.arange(1, 251) ** -0.8
    code = rng.choice(250, size=rows, p=shares / shares.sum())
    group = (np.random.default_rng(3).permutation(250) * 180 // 250)[code]
    area = np.where(rng.random(rows) < 0.9, group // 20, rng.integers(0, 9, rows))
    kind = rng.integers(0, 4, rows)
    other = np.where(rng.random(rows) < 0.5, kind, rng.integers(0, 4, rows))
    flag = rng.random(rows) < np.where(area == 2, 0.6, 0.1)
    return _batches(_table([code, group, area, kind, other, flag.astype(np.int64)]), (250, 180, 9, 4, 4, 2), 500)


def products(seed: int) -> Batches:
    """48,000 rows of four columns, 800 a tick: a list of 3,000 values as frequent as 1, 1/2, 1/3, ..., what group of
    twelve each is in, and two columns of which one goes with the group.

    Most values are lost in noise, and yet hold half of all rows. From the middle on a tenth of the rows have a value of
    the last hundred.
    """
    rng, rows, number = np.random.default_rng(seed), 48_000, 3_000
    shares = 1 / np.arange(1, number + 1)
    product = rng.choice(number, size=rows, p=shares / shares.sum())
    late = (np.arange(rows) >= rows // 2) & (rng.random(rows) < 0.1)
    product = np.where(late, rng.integers(number - 100, number, rows), product)
    group = np.random.default_rng(4).integers(0, 12, number)[product]
    paid = np.where(rng.random(rows) < 0.6, group % 4, rng.integers(0, 4, rows))
    return _batches(_table([product, group, paid, rng.integers(0, 5, rows)]), (number, 12, 4, 5), 800)


def screenings(seed: int) -> Batches:
    """12,000 persons, 115 a tick: 82 ages beside 700 charges, and six columns that go with them.

    Most are between 20 and 40, with a tail of ages that few have; a quarter of the charges has nine tenths of the rows.
    What is known of ages and charges is as large as the noise between refreshes.
    """
    rng, rows, number = np.random.default_rng(seed), 12_000, 700
    age = np.clip(np.round(rng.gamma(2.2, 7.5, rows)), 0, 81).astype(np.int64)
    shares = 1 / (np.arange(number) + 3.0) ** 1.4
    charge = rng.choice(number, size=rows, p=shares / shares.sum())
    degree = np.random.default_rng(5).integers(0, 3, number)[charge]
    priors = np.minimum(rng.poisson(0.5 + 3 * rng.random(rows) * np.minimum(age, 30) / 20), 12)
    score = np.clip(np.round(5 + priors / 2 - age / 8 + rng.normal(0, 1.5, rows)), 0, 9).astype(np.int64)
    words = np.searchsorted([4, 7], score, side="right")
    sex, again = (rng.random(rows) < 0.2).astype(np.int64), (rng.random(rows) < (1 + score) / 14).astype(np.int64)
    columns = [age, charge, degree, priors, score, words, sex, again]
    return _batches(_table(columns), (82, number, 3, 13, 10, 3, 2, 2), 115)


def bursts(seed: int) -> Batches:
    """Seven columns, 300 ticks: most of about five events, every seventh of none, and eight of 5,000.

    In a burst one value of the first column, another one each time, has 60 % of the rows. The second column is near the
    first, the third a noisy function of it. From tick 240 on half of the rows have a value of the fourth that never
    came before.
    """
    rng, ticks = np.random.default_rng(seed), np.arange(300)
    sizes = np.where(rng.random(ticks.size) < 1 / 7, 0, rng.poisson(5, ticks.size))
    bursting = np.sort(rng.choice(ticks[5:], 8, replace=False))
    sizes[bursting] = 5_000
    tick, rows = np.repeat(ticks, sizes), int(sizes.sum())
    burst = np.isin(tick, bursting)
    here = burst & (rng.random(rows) < 0.6)
    first = np.where(here, np.searchsorted(bursting, tick), rng.choice(10, rows, p=np.arange(10, 0, -1) / 55))
    third = np.where(rng.random(rows) < 0.7, first // 2, rng.integers(0, 5, rows))
    late = (tick >= 240) & (rng.random(rows) < 0.5)
    fifth = np.searchsorted([1, 2, 3, 5, 8, 13, 20, 35, 60], rng.lognormal(1 + first / 10))
    fourth, sixth = (
        np.where(late, 7, rng.integers(0, 5, rows)),
        (rng.random(rows) < np.where(burst, 0.3, 0.05)).astype(np.int64),
    )
    columns = [first, (first + rng.integers(0, 3, rows)) % 12, third, fourth, fifth, sixth, rng.integers(0, 4, rows)]
    return Batches(
        codes=_table(columns), sizes=(10, 12, 5, 8, 10, 2, 4), ends=np.cumsum(sizes).tolist(), expected=100.0
    )


def earthquakes() -> Batches:
    """Earthquakes in Southern California by month, as a table: half degrees, depth, magnitude and hour of the day.

    They come in bursts. The expected number is a guess.
    """
    table = pl.read_parquet(FOLDER / "socal_earthquakes_2020_2026.parquet").sort("time", maintain_order=True)
    steps = {"lat": (32, 0.5, 10), "lon": (-122, 0.5, 16), "depth_km": (0, 2.5, 8), "mag": (0, 0.5, 8)}
    columns: list[IntArray] = [
        np.clip((table[name].to_numpy() - least) // width, 0, size - 1) for name, (least, width, size) in steps.items()
    ]
    columns.append(table["time"].dt.hour().to_numpy())
    month = (table["time"].dt.year().cast(pl.Int64) * 12 + table["time"].dt.month()).to_numpy()
    ends = np.cumsum(np.bincount(month - month[0])).tolist()
    sizes = (*(size for *_, size in steps.values()), 24)
    return Batches(codes=_table(columns), sizes=sizes, ends=ends, expected=1_500.0)


# Columns of the wide tables have so many values that occur, and two more that never do: other and missing.
_VALUES = 8


def wide(seed: int) -> Batches:
    """20,000 rows of 60 columns in 4 ticks of a horizon of 60; all columns follow one hidden variable."""
    rng = np.random.default_rng(seed)
    return _wide(_followers(rng, 20_000, 60))


def wide_independent(seed: int) -> Batches:
    """As ``wide``, but no column says anything of another; values are as frequent as 1, 1/2, 1/3, ..."""
    rng = np.random.default_rng(seed)
    return _wide([_falling(rng, 20_000, _VALUES) for _ in range(60)])


def wide_groups(seed: int) -> Batches:
    """As ``wide``, 100 columns; three groups of 25 follow a hidden variable each; and there are ten strong pairs."""
    rng, rows = np.random.default_rng(seed), 20_000
    columns = [column for _ in range(3) for column in _followers(rng, rows, 25)]
    columns += [_falling(rng, rows, _VALUES) for _ in range(15)]
    columns += [np.where(rng.random(rows) < 0.1, _falling(rng, rows, _VALUES), c) for c in columns[75:85]]
    return _wide(columns)


def _wide(columns: Sequence[IntArray]) -> Batches:
    return _batches(_table(columns), (_VALUES + 2,) * len(columns), 5_000, horizon=60)


def _followers(rng: np.random.Generator, rows: int, number: int) -> list[IntArray]:
    hidden = rng.integers(0, _VALUES, rows)
    return [(hidden + rng.integers(0, 3, rows)) % _VALUES for _ in range(number)]


def _falling(rng: np.random.Generator, rows: int, size: int) -> IntArray:
    """Draws from 0, 1, 2, ..., as frequent as 1, 1/2, 1/3, ..."""
    shares = 1 / np.arange(1, size + 1)
    return rng.choice(size, size=rows, p=shares / shares.sum())


def _table(columns: Sequence[IntArray]) -> CodeArray:
    return np.stack(columns, axis=1).astype(np.int32)


def _place(column: str) -> int:
    return list(json.loads((FOLDER / "adult-domain.json").read_text())).index(column)


def _seniority(codes: CodeArray) -> FloatArray:
    """Age, hours a week and sex of Census Income, each in standard deviations, added up."""
    traits = codes[:, [_place(name) for name in ("age", "hours-per-week", "sex")]].astype(np.float64)
    return np.asarray(((traits - traits.mean(axis=0)) / traits.std(axis=0)).sum(axis=1))


STREAMS: dict[str, Callable[[int], Batches]] = {
    "adult-random": lambda seed: adult_batches("random", 200, seed),
    "adult-by-age": lambda seed: adult_by("age", seed),
    "adult-by-education-num": lambda seed: adult_by("education-num", seed),
    "switch": switch,
    "seasonal": seasonal,
    "associations": associations,
    "dependent": dependent,
    "flags": flags,
    "grades": grades,
    "evictions-weekly": lambda seed: evictions("1w"),
    "evictions-crosswalk": lambda seed: evictions("1w", crosswalk=True),
    "evictions-fortnightly": lambda seed: evictions("2w"),
    "earthquakes": lambda seed: earthquakes(),
    "lookup": lookup,
    "products": products,
    "screenings": screenings,
    "bursts": bursts,
    "wide": wide,
    "wide-independent": wide_independent,
    "wide-groups": wide_groups,
}
TO_TUNE_ON = tuple(STREAMS)
_KEPT_ASIDE = Path(__file__).parent / "unseen"
UNSEEN = (
    "flights",
    "flights-20000",
    "films",
    "diamonds",
    "medical-vietnam",
    "health-insurance",
    "lectures",
    "doctor-contacts",
    "german-health",
    "baseball",
    "vocabulary",
    "tuna",
    "office-visits",
    "verbal-aggression",
    "class-sizes",
    "doctor-australia",
    "cars",
)


def unseen(name: str, seed: int) -> Batches:
    """A real table kept aside, in the order that its package has it in; ``seed`` changes nothing.

    ``make bench-unseen`` writes them: see ``benchmarks/packaged.py``.
    """
    path = _KEPT_ASIDE / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"{path} is missing: make bench-unseen writes it")
    found = np.load(path)
    codes, ends = found["codes"].astype(np.int32), found["ends"].tolist()
    return Batches(codes=codes, sizes=tuple(found["sizes"].tolist()), ends=ends, expected=len(codes) / len(ends))


STREAMS |= {name: partial(unseen, name) for name in UNSEEN}
