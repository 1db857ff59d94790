"""The privacy argument as separate factors, over whole streams: purity, coupling, and control flow through the gate."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from synthstream import Stream, StreamConfig
from synthstream.ingest.counting import PrivateRows
from synthstream.ingest.intake import Intake
from synthstream.kernel.gate import Gate
from synthstream.synthesizers.simulation.seeded import SeededGate
from tests.support.aligned import Aligned, files
from tests.support.gates import ReplayingGate, TraceMismatch, TracingGate
from tests.support.visits import TOML, visits


def configured(folder: Path, text: str = TOML) -> StreamConfig:
    folder.mkdir(exist_ok=True)
    return StreamConfig.from_toml(text, base=folder)


def random_visits(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    start = datetime(2026, 1, 1)
    return pl.DataFrame(
        {
            "when": [start + timedelta(hours=int(h)) for h in rng.integers(0, 120, n)],
            "ward": rng.choice(["A", "B", "C", "Z"], n),
            "age": rng.uniform(-10, 120, n),
        }
    )


def observe(folder: Path, rows: pl.DataFrame, gates: Callable[[int], Gate]) -> tuple[dict[str, bytes], str, str]:
    """Everything that can be seen of a run: published files, standard output and standard error."""
    config = configured(folder)
    rows.write_parquet(folder / "visits-1.parquet")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), Stream(config, gates=gates) as stream:
        list(stream.run())
        print(stream.status())
    return files(folder / "releases"), out.getvalue(), err.getvalue()


ODD_ROWS = {
    "plain": (datetime(2026, 1, 2), "A", 30.0),
    "unseen": (datetime(2026, 1, 3), "Nobody", 1e308),
    "nulls": (None, None, None),
    "not a number": (datetime(2026, 1, 1), "B", float("nan")),
    "before": (datetime(1900, 1, 1), "C", float("-inf")),
    "after": (datetime(2999, 1, 1), "C", 5.0),
    "long": (datetime(2026, 1, 5), "x" * 100_000, 5.0),
}


@pytest.mark.sparing(7)
@pytest.mark.parametrize("row", ODD_ROWS)
@pytest.mark.parametrize("others", [0, 50])
def test_neighbours_with_aligned_noise_cannot_be_told_apart(tmp_path: Path, row: str, others: int) -> None:
    """Coupling: one row more, and noise shifted to hide it in the counts, changes no observable byte."""
    base = random_visits(others, 2).cast({"when": pl.Datetime("us"), "ward": pl.String, "age": pl.Float64})
    extra = pl.DataFrame([ODD_ROWS[row]], schema=base.schema, orient="row")
    aligned = Aligned()
    one = observe(tmp_path / "one", base, aligned.record)
    two = observe(tmp_path / "two", pl.concat([base, extra]), aligned.replay)
    assert one == two
    assert len(one[0]) == 25


def test_the_coupling_test_sees_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plausible bug: telling the operator how many rows came."""
    honest = Intake._add

    def talkative(self: Intake, rows: PrivateRows, open_tick: int) -> None:
        print(f"counted {len(rows.codes)} rows")
        honest(self, rows, open_tick)

    monkeypatch.setattr(Intake, "_add", talkative)
    aligned = Aligned()
    one = observe(tmp_path / "one", visits([1, 2]), aligned.record)
    two = observe(tmp_path / "two", visits([1, 2, 2]), aligned.replay)
    assert one != two


def test_control_flow_that_depends_on_data_is_seen() -> None:
    tracing = TracingGate(SeededGate(0))
    tracing.gaussian(np.zeros(3, dtype=np.int64), sigma=2.0)
    replaying = ReplayingGate(tracing.trace)
    with pytest.raises(TraceMismatch):
        replaying.gaussian(np.zeros(2, dtype=np.int64), sigma=2.0)
