"""librdkafka's own mock cluster: real brokers' protocol over real sockets, within the process that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

PARTITIONS = 4  # of a topic that comes into being by the first message to it


class Cluster:
    """A cluster of one broker; ends with its producer."""

    def __init__(self) -> None:
        self._own = Producer({"test.mock.num.brokers": 1, "log_level": 0, "bootstrap.servers": "mock"})
        broker = next(iter(self._own.list_topics(timeout=10).brokers.values()))
        self.servers = f"{broker.host}:{broker.port}"

    def producer(self) -> Producer:
        """Another producer, for a thread of its own."""
        return Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 5})

    def send(self, topic: str, *values: bytes | None, partition: int | None = None) -> None:
        """Write messages, and wait until they are there."""
        for value in values:
            self._own.produce(topic, value=value, partition=-1 if partition is None else partition)
        if self._own.flush(30):
            raise RuntimeError("the mock cluster does not answer")

    def environment(self) -> dict[str, str]:
        """Variables that a program connects with."""
        return {"KAFKA_BOOTSTRAP_SERVERS": self.servers}


@contextmanager
def served() -> Iterator[Cluster]:
    """A cluster."""
    yield Cluster()
