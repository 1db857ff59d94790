"""A log that is written to while ``synthstream run --follow`` reads it, is killed at random, and started again.

    python -m tests.services.live --kind postgres --kills 10

The command is the real one; only its gate adds nothing, and its clock runs faster. Each event that was committed has a
number of its own, and must have been counted exactly once; none that was rolled back may have been counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import deltalake
import polars as pl

from synthstream.environment import Env
from tests.services import kafka, postgres
from tests.services.feeds import START, Feed, Lake, Table, Topic, cells, config_of, message

SECONDS_PER_TICK = 4.0
HORIZON = 400
MOST = 30_000
CARELESS = "SYNTHSTREAM_TEST_CARELESS"  # control: a follower that does not ask who is still writing


class Fast(Env):
    """A clock on which a day lasts some seconds."""

    def __init__(self, began: float) -> None:
        self._began = began

    def now(self) -> datetime:
        """See :class:`Env`."""
        return START + timedelta(days=(time.time() - self._began) / SECONDS_PER_TICK)


def follower(began: float, arguments: list[str]) -> None:
    """``synthstream run`` with a gate that adds nothing and a clock that runs faster."""
    from synthstream.cli import app as cli
    from synthstream.config.config import load
    from synthstream.stream import stream
    from tests.support.gates import ExactGate

    def opened(path: Path, *, simulate: int | None = None, unchecked: bool = False) -> stream.Stream:
        return stream.Stream(load(path), gates=lambda tick: ExactGate(), env=Fast(began), unchecked=unchecked)

    if os.environ.get(CARELESS):
        from synthstream.ingest.postgres import PostgresSource

        PostgresSource._writers = lambda self, table: frozenset()  # type: ignore[method-assign]
    from synthstream.ingest import delta

    def moment(milliseconds: object) -> str:
        seconds = int(str(milliseconds)) / 1000 - began
        return (START + timedelta(days=seconds / SECONDS_PER_TICK)).isoformat()

    delta.moment = moment  # type: ignore[attr-defined]
    stream.open = opened  # type: ignore[assignment]
    sys.argv = ["synthstream", "run", "--yes", *arguments]
    try:
        cli.main()
    finally:
        print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB", flush=True)


class Writers:
    """Threads that append events until they are told to stop. ``events`` holds the numbers that were committed."""

    def __init__(self, feed: Feed, began: float, *, threads: int, seed: int) -> None:
        self.events: Counter[int] = Counter()
        self.rolled_back = 0
        self.errors: list[BaseException] = []
        self._feed, self._env, self._numbers, self._lock = feed, Fast(began), count(1), threading.Lock()
        self._over = threading.Event()
        works = {Table: self._insert, Topic: self._produce, Lake: self._change}
        work: Callable[[random.Random], None] = works[type(feed)]
        threads = 1 if isinstance(feed, Lake) else threads  # changes of one another would be refused
        chances = [random.Random(seed + i) for i in range(threads)]  # noqa: S311 - what comes, nothing more
        self._threads = [threading.Thread(target=self._guard, args=(work, chance)) for chance in chances]
        for thread in self._threads:
            thread.start()

    def reach(self, number: int) -> None:
        """Let them go on until there are more events than this, a minute at most: how fast they come, nobody knows."""
        limit = time.time() + 60
        while sum(list(self.events.values())) <= number and not self._over.is_set() and time.time() < limit:
            time.sleep(0.05)

    def stop(self) -> None:
        """Let all of them finish."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _guard(self, work: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            work(chance)
        except BaseException as error:
            self.errors.append(error)

    def _next(self, chance: random.Random) -> dict[str, Any]:
        with self._lock:
            number = next(self._numbers)
        if number >= MOST:
            self._over.set()
        seen = self._env.now() - timedelta(days=chance.expovariate(1.0))  # out of order, and some late
        return {"n": min(number, MOST), "seen": seen.isoformat()}

    def _insert(self, chance: random.Random) -> None:
        """Transactions of some rows, open for up to a second; every sixth is rolled back."""
        if not isinstance(self._feed, Table):
            raise TypeError
        with self._feed.server.connect() as connection:
            while not self._over.is_set():
                rows = [self._next(chance) for _ in range(chance.randint(1, 20))]
                connection.execute("BEGIN")
                for row in rows:
                    connection.execute(self._feed.insert, cells(row))
                    time.sleep(chance.choice((0, 0, 0, 0.02)))
                time.sleep(chance.choice((0, 0, 0.05, 0.3, 1.0)))
                committed = chance.random() < 5 / 6
                connection.execute("COMMIT" if committed else "ROLLBACK")
                with self._lock:
                    self.events.update([row["n"] for row in rows] if committed else [])
                    self.rolled_back += 0 if committed else len(rows)

    def _produce(self, chance: random.Random) -> None:
        """Messages one by one; some are sent twice, and some are no events."""
        if not isinstance(self._feed, Topic):
            raise TypeError
        producer = self._feed.cluster.producer()
        while not self._over.is_set():
            rows = [self._next(chance) for _ in range(chance.randint(1, 20))]
            for row in rows:
                times = 2 if chance.random() < 0.02 else 1
                for _ in range(times):
                    producer.produce(self._feed.name, value=message(row))
                with self._lock:
                    self.events[row["n"]] += times
                if chance.random() < 0.02:
                    producer.produce(self._feed.name, value=chance.choice((None, b"poison", b"[]")))
                    with self._lock:
                        self.events[-1] += 1  # counts as a row whose number is missing
            if producer.flush(60):
                raise TimeoutError("the mock cluster does not answer")
            time.sleep(chance.choice((0, 0.02, 0.1)))

    def _change(self, chance: random.Random) -> None:
        """Rows come, some get another number, some go; files are laid out anew, and checkpoints made."""
        if not isinstance(self._feed, Lake):
            raise TypeError
        there: list[int] = []
        while not self._over.is_set():
            rows = [self._next(chance) for _ in range(chance.randint(1, 30))]
            self._feed.put(rows)
            there += [row["n"] for row in rows]
            self.events.update(row["n"] for row in rows)
            table = deltalake.DeltaTable(self._feed.place)
            one = there.pop(chance.randrange(len(there)))
            self.events[one] -= 1
            if chance.random() < 0.5:
                table.delete(f"n = {one}")
                self.rolled_back += 1
            else:
                other = self._next(chance)["n"]
                table.update({"n": str(other)}, predicate=f"n = {one}")
                self.events[other] += 1
                there.append(other)
            if chance.random() < 0.1:
                table.optimize.compact()
                table.create_checkpoint()
            time.sleep(chance.choice((0, 0.02, 0.1)))


def drive(feed: Feed, folder: Path, *, kills: int, threads: int = 4, seed: int = 0, beyond: int = 0) -> dict[str, Any]:
    """Write and follow, kill and start again, and write on to more events than ``beyond``; what came of it."""
    chance, began = random.Random(seed), time.time()  # noqa: S311 - when to kill, nothing more
    config_of(feed, folder, most=MOST, horizon=HORIZON)
    line = [sys.executable, "-m", "tests.services.live", "--follower", str(began), str(folder / "stream.toml")]
    line += ["--follow", "--poll", "200ms"]
    environment = os.environ | feed.environment() | {"PYTHONPATH": f"{Path(__file__).parents[2]}/src"}

    def start(*more: str) -> subprocess.Popen[str]:
        log = (folder / "log").open("a")
        with log:
            return subprocess.Popen(  # noqa: S603
                [*line, *more], cwd=Path(__file__).parents[2], env=environment, stdout=log, stderr=log, text=True
            )

    writers = Writers(feed, began, threads=threads, seed=seed)
    done = 0
    try:
        for _ in range(kills):
            process, said = start(), (folder / "log").read_text().count("Following")
            limit = time.time() + 60
            while (folder / "log").read_text().count("Following") == said and time.time() < limit:
                time.sleep(0.05)
            try:
                process.wait(chance.uniform(0.0, 3.0))
            except subprocess.TimeoutExpired:
                process.kill()
                done += 1
            process.wait()
        writers.reach(beyond)
    finally:
        writers.stop()
    until = Fast(began).now() + timedelta(days=0.5)
    end = until.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    last = start("--until", end.isoformat())
    code = last.wait(300)
    log = (folder / "log").read_text()
    return {"kills": done, "exit": code, "log": log, "seconds": time.time() - began, "writers": writers}


def verdict(feed: Feed, folder: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Compares the exact counts of the last release with what was written."""
    writers: Writers = found["writers"]
    newest = max((folder / "releases").glob("[0-9]*"))
    tables = pl.read_parquet(newest / "tables.parquet").filter(pl.col("column_1") == "n")  # without the total
    counts = {str(n): int(m) for n, m in zip(tables["value_1"], tables["measured"], strict=True) if m}
    if isinstance(feed, Topic):
        counts["0"] = counts.get("0", 0) - feed.before
    wanted = {("missing" if n < 0 else str(n)): m for n, m in writers.events.items()}
    keys = counts.keys() | wanted.keys()
    return {
        "kind": type(feed).__name__,
        "kills": found["kills"],
        "exit": found["exit"],
        "seconds": round(found["seconds"], 1),
        "events": sum(wanted.values()),
        "rolled_back": writers.rolled_back,
        "ticks": int(newest.name) + 1,
        "lost": sum(max(wanted.get(key, 0) - counts.get(key, 0), 0) for key in keys),
        "doubled": sum(max(counts.get(key, 0) - wanted.get(key, 0), 0) for key in keys),
        "peak": found["log"].rpartition("peak ")[2].strip(),
    }


def main() -> None:
    """Run, and print the result as JSON."""
    if sys.argv[1:2] == ["--follower"]:
        follower(float(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("postgres", "kafka", "delta"), required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if chosen.kind == "postgres":
            with postgres.served() as server:
                found = run(Table(server), place, chosen.kills, chosen.seed)
        elif chosen.kind == "kafka":
            with kafka.served() as cluster:
                found = run(Topic(cluster), place, chosen.kills, chosen.seed)
        else:
            found = run(Lake(place / "lake"), place, chosen.kills, chosen.seed)
    print(json.dumps(found))


def run(feed: Feed, folder: Path, kills: int, seed: int, *, beyond: int = 0) -> dict[str, Any]:
    """Drive, and judge."""
    found = drive(feed, folder, kills=kills, seed=seed, beyond=beyond)
    if found["exit"] != 0:
        raise RuntimeError(found["log"][-3000:])
    return verdict(feed, folder, found)


if __name__ == "__main__":
    main()
