"""A Spark job that counts a folder's files, one by one, into its stream, and is killed at a side effect.

python -m tests.spark.job FOLDER "commit counts:2"
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from synthstream import Stream
from synthstream.environment import REAL, Env
from synthstream.spark import attach, session
from tests.support.environments import killed
from tests.support.gates import ExactGate
from tests.support.streams import configured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# On two cores. What runs for a minute is not compiled as what runs for days, and its folders lie with all others.
SUBMIT = (
    "--master local[2] --conf spark.sql.shuffle.partitions=2"
    f" --conf spark.local.dir={tempfile.gettempdir()}"
    " --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
)
SCHEMA = "when timestamp_ntz, ward string, x double, y double, who bigint"


def main(folder: Path, at: str) -> None:
    """Count, release, and be killed after the side effect ``at``."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = SUBMIT
    name, _, number = at.partition(":")
    count(session(), folder, killed(at=name, number=int(number), when="after"))


def count(spark: SparkSession, folder: Path, env: Env = REAL) -> None:
    """Count, and release."""
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "rows-*.parquet"))
    with Stream(configured(folder, "always"), gates=lambda tick: ExactGate(), env=env) as stream:
        for _ in attach(frame, stream).releases():
            pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
