"""Servers that are started once for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services import kafka, objects, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    with postgres.served() as found:
        yield found


@pytest.fixture(scope="session")
def cluster() -> Iterator[kafka.Cluster]:
    with kafka.served() as found:
        yield found


@pytest.fixture(scope="session")
def store() -> Iterator[objects.Store]:
    with objects.served() as found:
        yield found
