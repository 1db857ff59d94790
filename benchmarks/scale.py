"""One and the same stream through the local engine, Spark, and Spark killed twice: rows a second, memory, equal counts.

    python -m benchmarks.scale                  # evictions and ten million simulated rows
    python -m benchmarks.scale --fits           # core-seconds for counting, and for a release, against cells and rows
    python -m benchmarks.scale --wide           # all pairs of 100 columns against those that plan proposes
    python -m benchmarks.scale --persons        # ten million persons in one tick

Every run is a process of its own. "counted" is the time for rows alone, warm; "wall" is everything from the start of
the process, with Java, and for Spark that was killed that of all three. Memory is the largest proportional share (Pss)
that was seen, of the driver, of Java and of Spark's workers; "core_seconds" is the processor time of all of them. The
simulated rows are Census Income again and again, on thirty days; of them counts are compared, for every tick; of the
evictions all that is published, for every tick, with simulated noise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.support.environments import killed

from benchmarks.counting import config as census
from benchmarks.data import adult
from benchmarks.environment import environment
from synthstream import Stream, StreamConfig, Workload
from synthstream.config.config import load
from synthstream.config.synthesis import SynthesizerConfig
from synthstream.counts import Counts
from synthstream.environment import REAL
from synthstream.fit.population import fit
from synthstream.forecast.planning import plan
from synthstream.ingest.counting import CountsByTick
from synthstream.measured import Measured
from synthstream.privacy import Budget
from synthstream.synthesizers.assembly import synthesizer_for, synthesizer_of
from synthstream.synthesizers.simulation.seeded import SeededGate
from synthstream.workload import CodeArray

FILES, FILE_ROWS, DAYS = 10, 1_000_000, 30
ENGINES = ("local", "spark", "spark killed twice")
KILLS = ("commit counts:2", "commit counts:3", "")
_EVICTIONS = Path(__file__).parents[1] / "examples" / "evictions" / "stream.toml"
_TICK = os.sysconf("SC_CLK_TCK")


# -- the streams -----------------------------------------------------------------------------------------------------


def write(folder: Path, stream: str) -> int:
    """Files of a stream; returns their number of rows."""
    if stream == "evictions":
        source = load(_EVICTIONS).source
        whole = pl.read_parquet(source.path if source else "")
        for number, part in enumerate(whole.iter_slices(-(-whole.height // FILES))):
            part.write_parquet(folder / f"rows-{number}.parquet")
        return whole.height
    codes, rng = adult("random")[0], np.random.default_rng(0)
    for number in range(FILES):
        rows = codes[rng.integers(0, len(codes), FILE_ROWS)]
        days = np.datetime64("2026-01-01") + rng.integers(0, DAYS, FILE_ROWS)
        frame = pl.DataFrame(rows, schema=[f"c{i}" for i in range(codes.shape[1])]).with_columns(when=days)
        frame.write_parquet(folder / f"rows-{number}.parquet", row_group_size=250_000)
    return FILES * FILE_ROWS


def config_of(folder: Path, stream: str) -> StreamConfig:
    """Its configuration."""
    found = load(_EVICTIONS) if stream == "evictions" else census()
    if stream != "evictions":
        clock = replace(found.clock, column="when", until=datetime(2026, 1, 1) + timedelta(days=DAYS))
        found = replace(found, clock=clock)
    text = 'name = "x"\nstate = "s"\n[source]\nkind = "parquet"\npath = "{}"\n[sink]\nkind = "parquet"\npath = "{}"\n'
    places = StreamConfig.from_toml(
        text.format(folder.parent / "rows-*.parquet", folder / "releases")
        + '[privacy]\nepsilon = 1.0\ndelta = 0.0\nunit = "event"\n'
        + '[clock]\nstart = 2026-01-01\nevery = "1d"\nhorizon = 9\n'
        + '[[columns]]\nname = "a"\ntype = "boolean"\n'
    )
    return replace(found, state=folder / "state", base=folder, source=places.source, sink=places.sink)


# -- one run ---------------------------------------------------------------------------------------------------------


class Watch:
    """Memory and processor time of this process and of all that it starts."""

    def __init__(self) -> None:
        self.peak: dict[str, float] = defaultdict(float)
        self.cores: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, Any]:
        """What was seen."""
        self._stop.set()
        self._thread.join()
        memory = {f"mb_{name}": round(peak) for name, peak in self.peak.items()}
        return {**memory, "core_seconds": round(sum(self.cores.values()), 1)}

    def _look(self) -> None:
        while not self._stop.wait(0.5):
            now: dict[str, float] = defaultdict(float)
            for process, name in _family():
                try:
                    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
                    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has just ended
                now[name] += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
                self.cores[process] = (int(fields[11]) + int(fields[12])) / _TICK
            for name, megabytes in now.items():
                self.peak[name] = max(self.peak[name], megabytes)


def _family() -> Iterator[tuple[int, str]]:
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "stat").read_text()
        except OSError:
            continue
        parents[int(path.name)] = int(text.rpartition(")")[2].split()[1])
        names[int(path.name)] = text.partition("(")[2].rpartition(")")[0]
    for process, name in names.items():
        above = process
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above:
            yield process, "driver" if process == os.getpid() else "java" if name == "java" else "workers"


def one(folder: Path, stream: str, engine: str, at: str) -> None:
    """Count, release where that is compared, and print what was found."""
    start, watch = time.perf_counter(), Watch()
    config = config_of(folder, stream)
    name, _, number = at.partition(":")
    env = killed(at=name, number=int(number), when="after") if at else REAL
    with Stream(config, gates=lambda tick: SeededGate(f"1/{tick}"), seed=1, env=env) as opened:
        took = _spark(opened, engine) if engine.startswith("spark") else _local(opened)
        due = opened.due()
        if stream == "evictions":
            for _ in range(due):
                opened.release()
        digest = _published(config) if stream == "evictions" else _counts(opened, due)
    found = {"counted": round(took, 2), "wall": round(time.perf_counter() - start, 1), "ticks": due}
    print(json.dumps({**found, **watch.stop(), "digest": digest}))


def _local(stream: Stream) -> float:
    warm = stream.config.source
    with (
        tempfile.TemporaryDirectory() as folder,
        Stream(replace(stream.config, state=Path(folder) / "s", sink=None)) as other,
    ):
        files = sorted(warm.path.parent.glob(warm.path.name)) if warm else []
        other.update(pl.read_parquet(files[0], n_rows=60_000))
    start = time.perf_counter()
    stream.ingest()
    return time.perf_counter() - start


def _aside(config: StreamConfig, folder: Path) -> StreamConfig:
    return replace(config, state=folder / "state", sink=None)


def _spark(stream: Stream, engine: str) -> float:
    from synthstream import spark

    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --conf spark.ui.showConsoleProgress=false pyspark-shell"
    running, source = spark.session(), stream.config.source
    folder = source.path.parent if source else Path()
    frame = running.read.parquet(str(folder / "rows-0.parquet"))
    spark.count(frame.limit(120_000).repartition(2), stream.config)
    start = time.perf_counter()
    if engine == "spark":
        spark.ingest(stream, running)
    else:
        rows = running.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1)
        spark.attach(rows.parquet(str(folder / "rows-*.parquet")), stream).query.awaitTermination()
    return time.perf_counter() - start


def _counts(stream: Stream, ticks: int) -> str:
    digest = hashlib.sha256()
    for tick in range(ticks):
        counts = stream._intake.pending(tick)
        digest.update(counts.cells.tobytes() + b"/" + counts.numbers.tobytes())
    return digest.hexdigest()


def _published(config: StreamConfig) -> str:
    digest = hashlib.sha256()
    for path in sorted(config.sink.path.rglob("*.*") if config.sink else []):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


# -- all -------------------------------------------------------------------------------------------------------------


def lines(stream: str) -> Iterator[dict[str, Any]]:
    """A line for each engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write(folder, stream)
        digests = set()
        for engine in ENGINES:
            place = folder / engine.replace(" ", "-")
            place.mkdir()
            start, load1 = time.perf_counter(), os.getloadavg()[0]
            for at in KILLS if "killed" in engine else ("",):
                command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scale", "--folder", str(place)]
                command += ["--stream", stream, "--engine", engine, "--at", at]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this module
                if done.returncode != (-signal.SIGKILL if at else 0):
                    raise SystemExit(f"{engine} ended with {done.returncode}")
            found = json.loads(done.stdout.splitlines()[-1])
            digests.add(found["digest"])
            facts = {"bench": "scale", "stream": stream, "engine": engine, "rows": rows, **found}
            if "killed" in engine:
                facts |= {"wall": round(time.perf_counter() - start, 1), "counted": None}
            else:
                facts["rows_a_second"] = round(rows / found["counted"])
            yield facts | {"equal": len(digests) == 1, "load": round(load1, 1)}


def fits() -> Iterator[dict[str, Any]]:
    """Core-seconds for a release, and seconds for its fit, against columns of eight values, cells and rows.

    Rows are skewed, columns depend on each other. The second release has a tenth more rows than the first, and starts
    from its rows.
    """
    for columns, rows in (*product((10, 40), (10_000, 100_000, 1_000_000)), (100, 10_000), (100, 100_000)):
        sizes = (8,) * columns
        workload = Workload.all_up_to(2, sizes=sizes)
        made = synthesizer_for(
            SynthesizerConfig(), workload=workload, budget=Budget(epsilon=1, delta=1e-9), horizon=365
        )
        rng, facts = np.random.default_rng(0), dict[str, float]()
        state, history, last = made.mechanism.init(), list[Measured](), None
        for tick, (number, when) in enumerate(((rows, "first"), (rows // 10, "next"))):
            kind = rng.beta(2, 5, (number, 1))
            counts = Counts.of(workload.count(rng.binomial(7, 0.1 + 0.8 * kind, (number, columns)).astype(np.int32)))
            start = time.process_time()
            state, measured, models = made.step(state, counts, SeededGate(tick), last, {})
            drawn, clock = time.process_time(), time.perf_counter()
            history.append(measured)
            last = made.fit(tick, history.__getitem__, last, models, seed=tick)
            facts |= {f"{when}_noise": round(drawn - start, 3), f"{when}_fit": round(time.process_time() - drawn, 2)}
            facts[f"{when}_wall"] = round(time.perf_counter() - clock, 2)
        shape = {"columns": columns, "cells": workload.cells, "rows": rows}
        size = sum(array.nbytes for array in dict(state).values() if isinstance(array, np.ndarray))
        yield {"bench": "scale", "what": "release", **shape, **facts, "state_mb": round(size / 1e6, 1)}


def counting() -> Iterator[dict[str, Any]]:
    """Rows that one core counts in a second, from their codes, and what counts cost on their way, against columns."""
    for columns in (10, 14, 40, 100):
        sizes, rng = (8,) * columns, np.random.default_rng(0)
        workload = Workload.all_up_to(2, sizes=sizes)
        codes = rng.integers(0, sizes, (250_000, columns)).astype(np.int32)
        workload.count(codes)
        start = time.process_time()
        found = [workload.count(codes) for _ in range(4)]
        rate = 4 * len(codes) / (time.process_time() - start)
        part = CountsByTick(stream="", cells=workload.cells, ticks={0: Counts.of(found[0])})
        start = time.process_time()
        for _ in range(20):
            part = part.merge(CountsByTick.from_bytes(part.to_bytes()))
        facts = {"merge_core_seconds": round((time.process_time() - start) / 20, 4), "bytes": len(part.to_bytes())}
        shape = {"columns": columns, "cells": workload.cells}
        yield {"bench": "scale", "what": "count", **shape, "rows_a_core_second": round(rate), **facts}


def wide() -> Iterator[dict[str, Any]]:
    """Error of all pairs of 100 columns of eight values after 100,000 events: counted all, as ``plan`` proposes, none.

    Columns are related to the one before; ten and ten by a hidden variable each, side by side or scattered; or all by
    one. One release with normal noise of the variance on day 30 of 365, rows fitted to it; mean over tables of the sum
    of absolute errors, in parts of all events.
    """
    number, columns = 100_000, 100
    names = json.dumps([f"v{k}" for k in range(6)])  # and "missing" and "other"
    head = 'name = "wide"\nstate = "s"\nprivacy = { epsilon = 1.0, delta = 1e-9, unit = "event" }\n'
    head += 'clock = { start = 2026-01-01, every = "1d", horizon = 365 }\n'
    tail = "".join(f'[[columns]]\nname = "c{i}"\ntype = "category"\nvalues = {names}\n' for i in range(columns))
    found = plan(StreamConfig.from_toml(head + tail), expect=f"{number // 30}/day", rows=False).proposal
    every = Workload.all_up_to(2, sizes=(8,) * columns)
    pairs = np.repeat(every.order == 2, every.lengths)
    for shape in ("neighbours", "groups", "scattered groups", "one hidden variable"):
        codes, rng = _related(shape, number, columns), np.random.default_rng(1)
        true = every.count(codes)
        for section in ("order = 2", found.toml.splitlines()[1] if found else "order = 2", "order = 1"):
            made = synthesizer_of(StreamConfig.from_toml(f"{head}synthesizer = {{ {section} }}\n{tail}"))
            workload = made.tables.workload if made.tables else every
            variance = made.expected_variance(29)
            noise = rng.normal(size=workload.cells) * np.repeat(variance**0.5, workload.lengths)
            values = workload.count(codes) + noise
            start = time.process_time()
            rows = fit(Measured(tick=29, workload=workload, values=values, variance=variance), seed=1)
            facts: dict[str, Any] = {"tables": len(workload.marginals), "fit": round(time.process_time() - start, 1)}
            error = np.abs(rows.counts(every) - true)[pairs].sum() / np.sum(every.order == 2) / number
            facts |= {"shape": shape, "synthesizer": section, "pair_error": round(error, 4)}
            yield {"bench": "scale", "what": "wide", **facts}


def _related(shape: str, number: int, columns: int) -> CodeArray:
    """Codes below 8 of columns that are related as ``shape`` says."""
    rng = np.random.default_rng(0)
    if shape == "neighbours":
        codes = rng.binomial(7, 0.3, (number, columns))
        for c in range(1, columns):
            codes[:, c] = np.where(rng.random(number) < 0.5, codes[:, c - 1], codes[:, c])
        return np.asarray(codes, dtype=np.int32)
    kinds = rng.beta(2, 5, (number, 1)) if shape.startswith("one") else rng.beta(1, 1, (number, columns // 10))
    codes = rng.binomial(7, np.repeat(0.1 + 0.8 * kinds, columns // kinds.shape[1], axis=1)).astype(np.int32)
    return np.asarray(codes[:, rng.permutation(columns)] if shape.startswith("scattered") else codes)


_PERSONS = """
name = "x"
state = "state"
privacy = { epsilon = 1.0, delta = 1e-9, unit = { person = "who", max_events = 20 } }
clock = { column = "seen", start = 2026-01-01, every = "1d", until = 2026-01-02, horizon = 30 }
source = { kind = "parquet", path = "rows-*.parquet" }
sink = { kind = "parquet", path = "releases" }
columns = [
  { name = "a", type = "integer", min = 0, max = 7 },
  { name = "b", type = "integer", min = 0, max = 7 },
]
"""


def persons(number: int = 10_000_000, part: int = 500_000) -> Iterator[dict[str, Any]]:
    """Core-seconds to count one event of each person and to close the tick, and the most memory meanwhile."""
    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name), np.random.default_rng(0)
        for first in range(0, number, part):
            who = pl.Series("who", np.arange(first, first + part)).cast(pl.String) + "@example"
            rows = pl.DataFrame({"a": rng.integers(0, 8, part), "b": rng.integers(0, 8, part), "who": who})
            rows = rows.with_columns(seen=pl.lit(datetime(2026, 1, 1, 12)))
            rows.write_parquet(folder / f"rows-{first:09}.parquet", row_group_size=100_000)
        Path("/proc/self/clear_refs").write_text("5")  # what writing took does not count
        start = time.process_time()
        with Stream(StreamConfig.from_toml(_PERSONS, base=folder), gates=SeededGate, seed=1) as stream:
            stream.ingest()
            counted = time.process_time()
            stream.release()
        found = {"counted": round(counted - start), "closed": round(time.process_time() - counted)}
        status = Path("/proc/self/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
        disk = sum(path.stat().st_size for path in (folder / "state").iterdir()) // 1_000_000
        yield {"bench": "scale", "what": "persons", "persons": number, **found, "mb_driver": peak, "disk_mb": disk}


def main() -> None:
    """All lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", action="store_true", help="only what counting and a release cost")
    parser.add_argument("--wide", action="store_true", help="only what fewer pairs are worth")
    parser.add_argument("--persons", action="store_true", help="only what ten million persons cost")
    for name in ("--folder", "--stream", "--engine", "--at"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        one(Path(args.folder), args.stream, args.engine, args.at)
        return
    streams = [args.stream] if args.stream else ["evictions", "simulated"]
    if args.fits or args.wide or args.persons:
        found = chain(counting(), fits()) if args.fits else wide() if args.wide else persons()
    else:
        found = chain.from_iterable(lines(stream) for stream in streams)
    for line in found:
        print(json.dumps({**line, **environment()}), flush=True)


if __name__ == "__main__":
    main()
