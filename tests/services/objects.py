"""A stand-in for S3: moto's server, real HTTP on this machine, within the process of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from synthstream.config.objects import ObjectPath

KEY, SECRET = "AKIACANARY", "CANARY-secret"


class Store:
    """A server, and a bucket on it."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"http://{host}:{port}"
        self._buckets = 0

    def environment(self) -> dict[str, str]:
        """Variables that a program connects with."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def bucket(self) -> ObjectPath:
        """A new one."""
        import pyarrow.fs

        self._buckets += 1
        name = f"bucket-{self._buckets}"
        place = self.address.removeprefix("http://")
        made = pyarrow.fs.S3FileSystem(
            endpoint_override=place, scheme="http", access_key=KEY, secret_key=SECRET, allow_bucket_creation=True
        )
        made.create_dir(name)
        return ObjectPath(f"s3://{name}")


@contextmanager
def served() -> Iterator[Store]:
    """A server."""
    from moto.server import ThreadedMotoServer  # takes a second, which other tests need not wait for

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield Store(*server.get_host_and_port())
    finally:
        server.stop()
