"""One Spark for all tests, on two cores. Without Java or pyspark tests are skipped, or fail if they must run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.job import SUBMIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def missing() -> str | None:
    """What is not installed here."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: pip install 'synthstream[spark]'"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "there is no Java: apt-get install openjdk-17-jre-headless"
    return None


@pytest.fixture(scope="session")
def java() -> None:
    """Skip where Spark cannot run."""
    if found := missing():
        if os.environ.get("SYNTHSTREAM_SERVICES") == "required":
            pytest.fail(found)
        pytest.skip(found)


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """Spark on two cores."""
    from synthstream.spark import session

    os.environ["PYSPARK_SUBMIT_ARGS"] = SUBMIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark knows no newer pandas yet; it is not used here
        made = session("tests")
        yield made
        made.stop()
    del os.environ["PYSPARK_SUBMIT_ARGS"]
