"""Columns of places: which grids and tables they come to, by public rules, and what a mistake is told."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest

from synthstream.config.config import StreamConfig
from synthstream.config.places import weights_in_epochs, weights_of, words_of
from synthstream.errors import ConfigError
from synthstream.schema.places import View
from synthstream.strategies.shares import at_refreshes, by_size
from synthstream.synthesizers.assembly import claim_of, synthesizer_of
from tests.support.configs import category, number, stream_toml

_TO = 'coordinates = ["to_lat", "to_lon"]\nbounds = [[32, 37], [-122, -114]]\n'
BOX = 'coordinates = ["lat", "lon"]\nbounds = [[32, 37], [-122, -114]]\n'
OF_6 = '[synthesizer]\nnear = 1\nmarginals = [["kind", "at_6"]]\n'
KIND = category("kind", "a", "b", "c", "d", "e", "f")
FLAGS = [f'[[columns]]\nname = "f{i}"\ntype = "boolean"\nmissing = false\n' for i in range(20)]


def place(rest: str = "", box: str = BOX, name: str = "at") -> str:
    return f'[[columns]]\nname = "{name}"\ntype = "place"\n{box}{rest}\n'


def read(*sections: str, **settings: Any) -> StreamConfig:
    return StreamConfig.from_toml(stream_toml(*sections, **settings), origin="stream.toml")


def tables(config: StreamConfig) -> set[tuple[str, ...]]:
    assert config.workload is not None
    return {tuple(config.schema.names[c] for c in marginal) for marginal in config.workload.marginals}


def test_what_is_said_is_done() -> None:
    config = read(KIND, place('views = [1, 2]\ndepth = 4\nwith = ["kind"]'), number("age", "bins = 4"))
    assert config.schema.names == ("kind", "age", "at_1", "at_2", "at_4")
    alone = {(), *((name,) for name in config.schema.names)}
    crossed = {("kind", "age"), ("kind", "at_1"), ("kind", "at_2"), ("kind", "at_4")}
    assert tables(config) == alone | crossed
    assert words_of(config.schema) == (
        "at: lat and lon are counted on grids of 4, 16 and 256 cells (at_1 to at_4). "
        "Crossed are at_1, at_2 and at_4 with kind."
    )


def test_more_events_and_more_budget_mean_finer_grids() -> None:
    def finest(events: int, **settings: Any) -> int:
        return depth_of(read(KIND, place(f"events = {events}"), **settings))

    assert [finest(events) for events in (100, 10_000, 60_000, 1_000_000, 10**9)] == [1, 4, 5, 7, 7]
    assert [finest(events) for events in (15_000, 17_000)] == [4, 5]
    assert finest(60_000, epsilon=8.0) > finest(60_000)
    assert finest(60_000, unit='{ person = "who", max_events = 50 }') < finest(60_000)


def depth_of(config: StreamConfig) -> int:
    return max(column.depth for column in config.schema.columns if isinstance(column, View))


def test_with_delta_0_a_cell_takes_34_events_over_the_cube_root_of_epsilon() -> None:
    """Of 1,024 cells 34,816 at epsilon = 1."""

    def pure(events: int, epsilon: float = 1.0, **settings: Any) -> int:
        return depth_of(read(KIND, place(f"events = {events}"), delta=0, epsilon=epsilon, **settings))

    assert [pure(events) for events in (34_800, 34_900)] == [4, 5]
    assert [pure(34_900, 0.98), pure(17_450, 8.0), pure(17_400, 8.0)] == [4, 5, 4]
    persons = '{ person = "who", max_events = 8 }'
    assert [pure(events, 8.0, unit=persons) for events in (34_800, 34_900)] == [4, 5]
    few = read(KIND, place("events = 1000000"), delta=0, epsilon=0.001)
    assert depth_of(few) == 3
    assert depth_of(read(KIND, place("depth = 7"), delta=0)) == 7


def test_crossing_is_left_out_where_noise_would_drown_it() -> None:
    def crossed(events: int, *sections: str) -> list[int]:
        config = read(*sections, place(f"events = {events}"))
        return [len(column.crossed) for column in config.schema.columns if isinstance(column, View)]

    assert crossed(60_000, KIND) == [1, 1, 1, 1, 0]
    assert crossed(8_000, *FLAGS) == [20, 20, 0, 0]
    assert crossed(2_000, *FLAGS) == [20, 0, 0]
    assert crossed(50, *FLAGS) == [0]
    assert crossed(60_000) == [0, 0, 0, 0, 0]  # a place without columns to cross is a place


def test_one_coordinate_is_a_fine_amount() -> None:
    config = read(KIND, place("events = 60_000", 'coordinates = ["fare"]\nbounds = [[0, 100]]\n', "amount"))
    assert config.schema.names == ("kind", "amount_2", "amount_4", "amount_6", "amount_8", "amount_11")
    assert config.schema.published[-1] == "fare"
    assert words_of(config.schema).startswith("amount: fare is counted on grids of 4, 16, 64, 256 and 2,048 cells")


def test_grids_of_two_places_are_not_crossed() -> None:
    config = read(KIND, place(), place(box=BOX.replace('"lat", "lon"', '"lat2", "lon2"'), name="to"))
    grids = {name for name in config.schema.names if name != "kind"}
    assert not [pair for pair in combinations(sorted(grids), 2) if pair in tables(config)]
    assert len(config.constraints.groups) == 2


def test_two_places_are_crossed_on_coarse_grids_where_one_names_the_other() -> None:
    ends = place(box=BOX.replace('"lat", "lon"', '"lat2", "lon2"'), rest='with = ["kind", "at"]', name="to")
    config = read(KIND, place("with = []"), ends)
    found = {table for table in tables(config) if len(table) == 2}
    assert {table for table in found if "kind" not in table} == {("at_1", "to_1"), ("at_2", "to_2")}
    assert ("kind", "to_4") in found
    assert claim_of(config, synthesizer_of(config).mechanism).fits(config.privacy.budget)
    with pytest.raises(ConfigError, match="A place is crossed with those before it"):
        read(KIND, place(), ends.replace('"at"', '"later"'))


def test_grids_contain_each_other_also_with_a_constraint() -> None:
    config = read(KIND, place("views = [1]\ndepth = 2"))
    (group,) = config.constraints.groups
    assert group.number == 16 + 2
    places = [row for row in group.combinations.tolist() if row[1] < 16]
    assert all(coarse == fine // 4 for coarse, fine in places)
    known = '[[constraints]]\ncolumns = ["kind", "at_1"]\nallowed = [["a", "0"], ["b", "0"], ["c", "1"], ["d", "2"], '
    joined = read(KIND, place("views = [1]\ndepth = 2"), known + '["e", "3"], ["f", "3"]]\n')
    (group,) = joined.constraints.groups
    assert group.columns == (0, 1, 2)
    assert {(k, c) for k, c, _ in group.combinations.tolist() if k < 6 and c < 4} == {
        (0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (5, 3),
    }  # fmt: skip


@pytest.mark.parametrize("measure", ["refresh", "always"])
def test_grids_get_a_part_of_the_budget_and_no_more_is_spent(measure: str) -> None:
    config = read(KIND, number("age", "bins = 4"), place(), f'[synthesizer]\nmeasure = "{measure}"\n')
    assert config.workload is not None
    engine = synthesizer_of(config)
    assert claim_of(config, engine.mechanism).fits(config.privacy.budget)
    weights, pairs = weights_of(config.schema, config.workload), config.workload.order == 2
    assert weights is not None
    held = np.array([any(c > 1 for c in marginal) for marginal in config.workload.marginals])
    rho = 1 / engine.mechanism.variance(7)  # type: ignore[attr-defined]
    assert rho[pairs & held].sum() / rho[pairs].sum() == pytest.approx(0.25, rel=0.01)
    if measure == "always":
        alone = config.workload.order == 1
        assert rho[alone & held].sum() / rho[alone].sum() == pytest.approx(0.6, rel=0.01)
    often, anew = at_refreshes(config.workload, weights=weights)
    singles = config.workload.order == 1
    assert anew[singles & held].sum() / anew[singles].sum() == pytest.approx(0.6)
    assert often.sum() + anew.sum() == pytest.approx(1.0)
    without = read(KIND, number("age", "bins = 4"))
    assert without.workload is not None
    assert weights_of(without.schema, without.workload) is None


def test_in_epochs_fine_grids_leave_a_quarter_of_their_part_to_other_columns() -> None:
    config = read(KIND, place("views = [1]\ndepth = 5"), delta=0)
    assert config.workload is not None
    assert claim_of(config, synthesizer_of(config).mechanism).fits(config.privacy.budget)
    parts = np.array(weights_in_epochs(config.schema, config.workload)) * np.sqrt(config.workload.lengths)
    kind, *grids = parts[config.workload.order == 1]
    assert sum(grids) / (kind + sum(grids)) == pytest.approx(0.75)
    flags = read(*FLAGS, place("views = [1]\ndepth = 2"), delta=0)
    assert flags.workload is not None
    weights = np.array(weights_in_epochs(flags.schema, flags.workload))
    grids = [flags.workload.place[(c,)] for c, column in enumerate(flags.schema.columns) if isinstance(column, View)]
    roots = np.sqrt(flags.workload.lengths)
    assert (weights * roots)[grids].sum() == pytest.approx(roots[grids].sum())  # less than three quarters: as it is
    assert np.all(np.delete(weights, grids) == 1)


@pytest.mark.parametrize(("box", "power"), [('coordinates = ["x"]\nbounds = [[0, 1]]\n', 0), (BOX, 1 / 4)])
def test_in_epochs_grids_share_their_part_by_the_way_from_cell_to_cell(box: str, power: float) -> None:
    config = read(KIND, place("views = [2, 4]\ndepth = 6\n", box), delta=0)
    assert config.workload is not None
    parts = np.array(weights_in_epochs(config.schema, config.workload)) * np.sqrt(config.workload.lengths)
    single = config.workload.order == 1
    grids = single & (config.workload.lengths != config.schema.sizes[0])
    assert grids.sum() == single.sum() - 1 == 3
    known = np.round(config.workload.lengths[grids] ** power, 6)  # its last digits are those of a library
    assert np.ptp(parts[grids] / known) == pytest.approx(0, abs=1e-12)
    assert np.ptp(known) > 1 or power == 0


def test_tables_of_grids_do_without_what_large_tables_get_for_their_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their part is divided as it was, also where there are no other larger tables."""
    alone, beside = read(KIND, place()), read(KIND, number("age", "bins = 40"), number("size", "bins = 4"), place())
    for config in (alone, beside):
        workload = config.workload
        assert workload is not None
        held = np.array([any(config.schema.columns[c].name.startswith("at") for c in m) for m in workload.marginals])
        held &= workload.order == 2
        sizes = by_size(workload)
        assert sizes[held].max() > 1
        now = synthesizer_of(config).mechanism
        with monkeypatch.context() as patch:
            patch.setattr("synthstream.synthesizers.assembly.by_size", lambda known: np.ones(known.order.size))
            then = synthesizer_of(config).mechanism
            assert then._shares[1].sum() > 0  # type: ignore[attr-defined]
        assert now._shares[1][held] == pytest.approx(then._shares[1][held], rel=1e-6)  # type: ignore[attr-defined]


def test_a_focus_comes_on_top_of_what_large_tables_get_for_their_cells() -> None:
    columns = KIND, number("age", "bins = 40"), number("size", "bins = 4")
    plain, config = read(*columns), read(*columns, "[synthesizer]\nfocus = ['kind']\n")
    workload = plain.workload
    assert workload is not None
    before, after = (synthesizer_of(c).mechanism._shares[1] for c in (plain, config))  # type: ignore[attr-defined]
    gained = {table: after[q] / before[q] for table, q in workload.place.items() if len(table) == 2}
    assert by_size(workload).max() > 1
    assert gained[0, 1] == pytest.approx(gained[0, 2])
    assert gained[0, 1] / gained[1, 2] == pytest.approx(4)


@pytest.mark.parametrize("focus", ["kind", "at"])
def test_a_focus_has_four_times_the_share_within_what_grids_and_other_columns_get(focus: str) -> None:
    columns = KIND, number("age", "bins = 4"), number("size", "bins = 4"), place("with = ['kind', 'age']")
    plain, config = read(*columns), read(*columns, f"[synthesizer]\nfocus = ['{focus}']\n")
    workload = config.workload
    assert workload is not None
    assert workload == plain.workload
    assert claim_of(config, synthesizer_of(config).mechanism).fits(config.privacy.budget)
    exact, before = (1 / synthesizer_of(c).mechanism.variance(0) for c in (config, plain))  # type: ignore[attr-defined]
    pairs, grids = workload.order == 2, np.array([any(c > 2 for c in table) for table in workload.marginals])
    for part in (pairs, pairs & grids):
        assert exact[part].sum() == pytest.approx(before[part].sum(), rel=0.01)
    if focus == "at":  # all tables of grids are in it, and get what they got
        assert exact[pairs] == pytest.approx(before[pairs], rel=0.01)
        return
    gained = {table: (exact / before)[q] for table, q in workload.place.items() if len(table) == 2}
    assert gained[0, 1] / gained[1, 2] == pytest.approx(4, rel=0.01)
    assert gained[0, 2] / gained[0, 1] == pytest.approx(1, rel=0.01)
    assert gained[0, 3] / gained[1, 3] == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("focus = ['kint']", r"synthesizer.focus: 'kint' is not a column. Did you mean 'kind'\?"),
        ("focus = ['kind']\norder = 1", "synthesizer.focus: no table of two columns or more holds 'kind'"),
        ("focus = ['kind']\nmeasure = 'epochs'", "focus: has no effect when tables are measured once an epoch"),
        ("focus = ['kind']\nkind = 'selective'\npicks = 2", 'focus: has no effect with kind = "selective"'),
    ],
)
def test_a_focus_that_cannot_be_is_refused(settings: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(KIND, number("age", "bins = 4"), f"[synthesizer]\n{settings}\n")


def test_a_focus_with_delta_0_is_not_sent_to_refreshes_which_need_delta() -> None:
    with pytest.raises(ConfigError, match=r'belongs to measure = "always", or to delta above 0\. Leave it out'):
        read(KIND, number("age", "bins = 4"), "[synthesizer]\nfocus = ['kind']\n", delta=0)


def test_a_row_whatever_it_holds_lies_in_one_cell_of_each_table() -> None:
    """So theorem marginals holds for grids as for all tables: they are public partitions of all rows."""
    config = read(KIND, place("views = [1, 2]\ndepth = 3\nwith = ['kind']"))
    lat = [33.0, 90.0, None, float("nan"), float("inf"), 32.0, 37.0, -1e300]
    rows = pl.DataFrame({"lat": lat, "lon": [-117.0] * 8, "kind": ["a", "z", None, "b", "c", "d", "e", "f"]})
    assert config.workload is not None
    for row in rows.iter_slices(1):
        counts = config.workload.count(config.schema.encode(row))
        assert np.add.reduceat(counts, config.workload.offsets[:-1]).tolist() == [1] * len(config.workload.marginals)


def test_settings_for_readers_are_the_same_stream() -> None:
    config = read(KIND, place("views = [1]\ndepth = 3\nwith = []\nevents = 1000"))
    assert StreamConfig.from_toml(config.settings).own_hash == config.own_hash


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (place(box='coordinates = ["lat", "lon"]\nbounds = [[32, 37]]\n'), "bounds: 1 for 2 coordinates"),
        (place(box='coordinates = ["lat"]\nbounds = [[32, 37], [1, 2]]\n'), "coordinates: bounds has two, so name two"),
        (place(box='coordinates = ["lat", "lon"]\nbounds = [[32, 32], [-122, -114]]\n'), "and both finite"),
        (place(box='coordinates = ["lat", "lon"]\nbounds = [32, 37, -122, -114]\n'), "'at': bounds: give each"),
        (
            place(box='coordinates = ["fare"]\nbounds = [0, 80]\n'),
            "as in [[32, 37], [-122, -114]], or [[0, 80]] of one",
        ),
        (place(box='coordinates = ["lat", "lon"]\n'), "'at': bounds: this key is required; of each coordinate"),
        (place("depth = 9"), "line 22: column 'at': depth = 9: must be"),
        (place(box='coordinates = ["lat"]\nbounds = [["32", 37]]\n'), "bounds"),
        (place('with = ["kin"]'), "'kin' is not another column. Did you mean 'kind'?"),
        (place('with = ["to"]') + place(name="to", box=_TO), "with: 'to' stands below. A place is crossed with those"),
        (place('views = [5]\ndepth = 6\nwith = ["kind"]'), "with: 'kind' is counted together with no grid"),
        (place("views = [1]\ndepth = 6") + place('views = [3]\nwith = ["kind", "at"]', _TO, "to"), "'at' is counted"),
        (place("views = [2, 1]"), "views: must be depths in order"),
        (place("views = [1, 9]\ndepth = 4"), "from 1 to 4, the finest; found [1, 9]"),
        (place("depth = 9"), "depth = 9: must be from 1 to 7"),
        (place('from = "lat"'), "a place is read from its coordinates"),
        (
            place(box='coordinates = ["lat", "lat"]\nbounds = [[32, 37], [32, 37]]\n'),
            "coordinates: 'lat' is listed twice",
        ),
        (place('with = ["kind", "kind"]'), "with: 'kind' is listed twice"),
        (place() + place(), "line 23: column 'at': 'at' belongs to a place above, too"),
        (place() + place(name="to"), "column 'to': 'lat' belongs to a place above, too"),
        (place("depth = 9") + place('with = ["at", "lon"]', _TO, "to"), "with: 'lon' is not another column"),
        (place("cells = 12"), "cells"),
        (place() + number("lat", "bins = 4"), "'lat' is listed twice"),
        (place() + '[synthesizer]\nkind = "selective"\npicks = 2\n', 'belongs to kind = "table"'),
        (place() + '[synthesizer]\nkind = "points"\n', "a stream of points takes numbers only"),
    ],
)
def test_mistakes_are_told(rest: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(KIND, rest)
    assert said in str(error.value), str(error.value)


def test_a_place_with_a_mistake_of_its_own_is_no_unknown_column_to_others() -> None:
    with pytest.raises(ConfigError) as error:
        read(KIND, place("depth = 9") + place('with = ["at", "kind"]', _TO, "to"))
    assert "depth = 9" in str(error.value)
    assert "with:" not in str(error.value)
