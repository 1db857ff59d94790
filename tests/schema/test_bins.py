"""Bins that are not equally wide, several columns from one, and what people are told of columns."""

from __future__ import annotations

import json
from datetime import datetime

import numpy as np
import polars as pl
import pytest

from synthstream import Integer, Number, StreamConfig
from synthstream.errors import ConfigError, SchemaError
from synthstream.publish.describing import rows_fields
from synthstream.report.distributions import labels_of
from synthstream.schema.binned import Binned, Datetime
from synthstream.schema.columns import Words
from tests.support.configs import WARD, stream_toml


def column(keys: str, *, type_: str = "number") -> Binned:
    config = StreamConfig.from_toml(stream_toml(f'[[columns]]\nname = "x"\ntype = "{type_}"\n{keys}\n'))
    (found,) = config.schema.columns
    assert isinstance(found, Binned)
    return found


LOG = 'bins = 3\nscale = "log"'


@pytest.mark.parametrize(
    ("type_", "keys", "labels", "codes"),
    [
        ("number", "edges = [0, 18, 65]", ("[0, 18)", "[18, 65)"), [0, 0, 0, 1, 1, 1, 2]),
        ("number", "edges = [0, 18, 65]\nmax = 110", ("[0, 18)", "[18, 65)", "[65, 110)"), [0, 0, 0, 1, 2, 2, 3]),
        ("integer", "edges = [0, 18, 65]\nmax = 110", ("0..17", "18..64", "65..110"), [0, 0, 0, 1, 2, 2, 3]),
        ("integer", "edges = [0, 18, 65]", ("0..17", "18..64"), [0, 0, 0, 1, 1, 1, 2]),
        ("integer", "min = 0\nmax = 100\nwidth = 50", ("0..49", "50..99", "100"), [0, 0, 0, 0, 1, 2, 3]),
        ("number", f"min = 1\nmax = 1000\n{LOG}", ("[1, 10)", "[10, 100)", "[100, 1000)"), [0, 0, 1, 1, 1, 2, 3]),
        ("integer", f"min = 1\nmax = 999\n{LOG}", ("1..9", "10..99", "100..999"), [0, 0, 1, 1, 1, 2, 3]),
    ],
)
def test_numbers_have_their_bins_and_come_back_within(
    type_: str, keys: str, labels: tuple[str, ...], codes: list[int]
) -> None:
    found = column(keys, type_=type_)
    assert found.value_labels == labels
    values = pl.Series([-5.0, 0.0, 17.0, 18.0, 65.0, 1e9, None])
    assert found.encode(values).tolist() == codes
    every = np.repeat(np.arange(found.size, dtype=np.int32), 500)
    assert found.encode(found.decode(every, np.random.default_rng(1))).tolist() == every.tolist()
    assert all("." not in label for label in labels_of(found))
    assert labels_of(found)[0].split()[0] in ("below", "up")  # -5 is there, too
    assert labels_of(found)[found.size - 2].endswith(" and more")


def test_the_ends_of_logarithmic_bins_are_readable_and_their_numbers_even_on_that_scale() -> None:
    found = Number(name="x", min=1, max=1000, bins=6, scale="log")
    assert found.edges == (1.0, 3.16, 10.0, 31.6, 100.0, 316.0, 1000.0)
    drawn = found.decode(np.repeat(np.arange(6, dtype=np.int32), 4000), np.random.default_rng(1)).to_numpy()[-4000:]
    assert abs(np.log(drawn).mean() - np.log(316 * 1000) / 2) < 0.02


def test_numbers_lie_in_their_bins_as_the_bins_beside_them_say() -> None:
    """Of an exponential law each bin tells the next: so do the rows, in bins of several widths, at both ends, in whole
    numbers too, and on a logarithmic scale of a power law."""
    rng = np.random.default_rng(0)
    waits = rng.exponential(10.0, 40_000)
    waits = waits[waits < 60]
    for keys, type_ in (("min = 0\nmax = 60\nbins = 6", "number"), ("edges = [0, 5, 20]\nmax = 59", "integer")):
        true = np.floor(waits) if type_ == "integer" else waits
        found = column(keys, type_=type_)
        rows = found.decode(found.encode(pl.Series(true)), np.random.default_rng(1)).to_numpy()
        at = np.linspace(0.05, 0.99, 40)
        assert np.abs(np.quantile(rows, at) - np.quantile(true, at)).max() < 1.3, keys
        assert abs(rows.mean() - true.mean()) < 0.15, keys
    power = 1000 * rng.random(40_000) ** 2 + 1
    found = Number(name="x", min=1, max=1001, bins=3, scale="log")
    rows = found.decode(found.encode(pl.Series(power)), np.random.default_rng(1)).to_numpy()
    assert abs(rows.mean() / power.mean() - 1) < 0.05


def test_times_lie_in_their_bins_as_numbers_do() -> None:
    codes = np.repeat(np.arange(4, dtype=np.int32), [800, 400, 100, 50])
    times = Datetime(name="x", min=datetime(1970, 1, 1), max=datetime(1970, 1, 1, 0, 0, 3), bins=3)
    seconds = times.decode(codes, np.random.default_rng(1)).dt.epoch("us").to_numpy() / 1e6
    numbers = Number(name="x", min=0, max=3, bins=3).decode(codes, np.random.default_rng(1)).to_numpy()
    assert np.allclose(seconds, numbers, atol=2e-6, equal_nan=True)
    assert numbers[:800].mean() < 0.45


def test_a_bin_of_one_value_says_nothing_of_the_one_beside_it() -> None:
    """Most pay nothing. Of the others nothing else is known; or the next bin tells as if nobody paid nothing."""
    codes = np.repeat(np.arange(3, dtype=np.int32), [20_000, 5_000, 1_000])
    two, three, without = (
        column(f"edges = {edges}", type_="number")
        for edges in ("[0, 0.01, 100]", "[0, 0.01, 10, 100]", "[0.01, 10, 100]")
    )
    paid = two.decode(codes[codes < 2], np.random.default_rng(1)).to_numpy()
    assert abs(paid[-5_000:].mean() - 50) < 2
    some = three.decode(codes, np.random.default_rng(1)).to_numpy()[codes == 1]
    beside = without.decode(codes[codes > 0] - 1, np.random.default_rng(1)).to_numpy()[:5_000]
    assert abs(some.mean() - beside.mean()) < 0.1


def test_a_peak_does_not_lean_nor_does_a_row_that_stays_move() -> None:
    found = Number(name="x", min=0, max=3, bins=3)
    codes = np.random.default_rng(0).permutation(np.repeat(np.arange(4, dtype=np.int32), [1000, 9000, 1000, 500]))
    rows = found.decode(codes, np.random.default_rng(1)).to_numpy()
    peak = rows[codes == 1]
    assert abs(peak.mean() - 1.5) < 0.01
    assert abs(peak.std() - 12**-0.5) < 0.01
    assert rows[codes == 0].mean() > 0.65
    assert rows[codes == 2].mean() < 2.35
    assert np.isnan(rows[codes == 3]).all()
    more = np.concatenate([codes, np.full(20, 2, dtype=np.int32)])  # one bin 2 % fuller
    again = found.decode(more, np.random.default_rng(1)).to_numpy()[: len(codes)]
    assert np.array_equal(again[codes == 3], rows[codes == 3], equal_nan=True)
    moved = np.mean(again[codes < 3] != rows[codes < 3])
    assert 0 < moved < 0.004


@pytest.mark.parametrize("codes", [[], [3] * 5, [0, 1, 2, 3, 9]])
def test_rows_may_be_none_or_all_missing_and_codes_beyond_are_missing(codes: list[int]) -> None:
    found = Number(name="x", min=0, max=3, bins=3).decode(np.array(codes, dtype=np.int32), np.random.default_rng(1))
    assert found.is_null().to_list() == [code > 2 for code in codes]


def test_numbers_come_back_with_so_many_decimals_and_in_their_bins() -> None:
    """So a bin that holds 0 alone, on that scale, comes back as 0."""
    found = column("edges = [0, 0.01, 0.295, 5, 5.001, 20]\ndecimals = 2", type_="number")
    codes = np.repeat(np.arange(6, dtype=np.int32), 500)
    drawn = found.decode(codes, np.random.default_rng(0))
    assert found.encode(drawn).tolist() == codes.tolist()
    cells = [drawn.gather(np.flatnonzero(codes == code)).to_numpy() for code in range(6)]
    assert set(cells[0]) == {0.0}
    assert set(cells[3]) == {5.0}  # a bin without a number of two decimals but its end
    assert {0.01, 0.28, 0.29} <= set(cells[1])
    assert found.at(np.array([2]), np.array([0.0])).to_list() == [0.295]
    assert len(set(cells[4])) > 100
    assert all(np.allclose(own * 100, np.rint(own * 100)) for own in (cells[1], cells[4][cells[4] > 5.001]))
    assert np.isnan(cells[5]).all()
    with pytest.raises(ConfigError, match="decimals must be from 0 to 12, not 13"):
        column("min = 0\nmax = 9\nbins = 3\ndecimals = 13", type_="number")


def test_what_decimals_leave_is_what_a_condition_asks_for() -> None:
    tolls = Number(name="tolls", min=0, max=20, bins=2, cuts=(0, 0.01, 20), decimals=2)
    assert tolls.at(np.array([0, 0, 1]), np.array([0.0, 1.0, 0.0])).to_list() == [0, 0, 0.01]


@pytest.mark.parametrize(
    ("type_", "keys", "says"),
    [
        ("number", "edges = [0, 18, 65]\nbins = 3", "leave out min, bins"),
        ("number", "edges = [0, 18]\nmin = 1\nmax = 65", "leave out min, bins"),
        ("number", "edges = [0, 18, 18]", "each above the one before"),
        ("number", "edges = [0, nan]", "edges must be finite"),
        ("number", "edges = [65, 18, 0]", "edges must be finite, and each above the one before"),
        ("integer", "edges = [65, 0]", "edges must be finite, and each above the one before"),
        ("integer", "edges = [0, 1.5]", "edges"),
        ("number", 'edges = ["0", "1"]', "edges"),
        ("number", "edges = [0]", "two numbers or more"),
        ("number", 'min = 0\nmax = 9\nbins = 3\nscale = "log"', "a min above 0"),
        ("number", 'min = 1\nmax = 9\nbins = 3\nscale = "exp"', "scale"),
        ("number", 'edges = [0, 3, 9]\nscale = "log"', "leave out min, bins, width and scale"),
        ("integer", 'min = 1\nmax = 4\nbins = 4\nscale = "log"', "narrower than one whole number"),
        ("integer", "min = 1\nmax = 4\nbins = 2\nwidth = 2", "no bins"),
        ("integer", 'min = 1\nmax = 4\nfrom = ""', "from"),
    ],
)
def test_what_is_no_bins_is_told(type_: str, keys: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        column(keys, type_=type_)
    assert says in str(caught.value)


def test_edges_that_contradict_are_refused_in_python() -> None:
    with pytest.raises(SchemaError, match="leave out min"):
        Integer(name="x", min=0, max=9, cuts=(0, 5, 9))


PARTS = "".join(
    f'[[columns]]\nname = "{part}"\ntype = "datetime"\nfrom = "File Date"\npart = "{part}"\n'
    for part in ("minute", "hour", "weekday", "week", "month", "quarter")
)


def test_several_columns_come_from_one() -> None:
    schema = StreamConfig.from_toml(stream_toml(PARTS)).schema
    codes = schema.encode(pl.DataFrame({"File Date": ["2026-11-23T14:05:00", None]}))
    assert codes.tolist() == [[5, 14, 0, 47, 10, 3], [60, 24, 7, 53, 12, 4]]
    back = schema.decode(codes, np.random.default_rng(1))
    assert back.rows() == [(5, 14, 1, 48, 11, 4), (None,) * 6]
    with pytest.raises(SchemaError, match="'File Date' is missing"):
        schema.encode(pl.DataFrame({"hour": [3]}))


def test_what_is_told_of_a_column_defines_nothing_and_stands_in_the_descriptions() -> None:
    told = 'label = "Age"\ndescription = "At the visit."\nunit = "years"\n'
    toml = stream_toml('[[columns]]\nname = "x"\ntype = "number"\nedges = [0, 18]\nmax = 110\n', WARD)
    config, plain = StreamConfig.from_toml(toml.replace("edges", f"{told}edges")), StreamConfig.from_toml(toml)
    assert config.public_json() == plain.public_json()
    assert json.loads(config.schema.to_json())[0]["edges"] == [0, 18, 110]
    assert config.schema == plain.schema
    assert (config.schema.columns[0].title, config.schema.columns[1].title) == ("Age (years)", "ward")
    assert config.schema.columns[1].words == Words()
    field = rows_fields(config, {})[0]
    assert (field.title, field.unit, field.bins) == ("Age", "years", 2)
    assert field.description.startswith("At the visit. A number from 0")
    assert "2 bins that begin at 0, 18" in field.description


def test_readers_are_told_which_weekday_is_1() -> None:
    parts = '[[columns]]\nname = "{0}"\ntype = "datetime"\npart = "{0}"\n'
    config = StreamConfig.from_toml(stream_toml(parts.format("weekday") + parts.format("hour")))
    weekday, hour = (field.description for field in rows_fields(config, {}))
    assert "from 1 to 7. Monday is 1." in weekday
    assert "from 0 to 23." in hour
    assert "Monday" not in hour


@pytest.mark.parametrize(
    ("found", "ends"),
    [
        (Number(name="x", min=0, max=3, bins=3), (0, np.nextafter(3, 0))),
        (Integer(name="x", min=0, max=3), (0, 3)),
        (Datetime(name="x", part="hour"), (0, 23)),
    ],
)
def test_the_end_of_the_last_bin_is_no_number_of_its_rows(found: Binned, ends: tuple[float, float]) -> None:
    assert found.ranges == {"x": ends}
