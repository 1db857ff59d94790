"""A schema registry over HTTP, as far as readers ask one: schemas by number, and the newest one of a subject."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fastavro import parse_schema, schemaless_writer


class Registry:
    """Its schemas, what it was asked, and what it answers in place of these: to all, or to what begins like that."""

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.newest: dict[str, int] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.status: int | None = None
        self.of: dict[str, int] = {}
        self.url = ""

    def add(self, schema: Any, subject: str | None = None) -> int:
        """Give a schema a number."""
        number = len(self.schemas) + 1
        self.schemas[number] = schema if isinstance(schema, str) else json.dumps(schema)
        if subject is not None:
            self.newest[subject] = number
        return number

    def message(self, number: int, value: Any) -> bytes:
        """A value as a producer writes it."""
        file = io.BytesIO()
        schemaless_writer(file, parse_schema(json.loads(self.schemas[number])), value)
        return head(number) + file.getvalue()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and content."""
        parts = path.partition("?")[0].strip("/").split("/")
        number = int(parts[2]) if parts[0] == "schemas" else self.newest.get(parts[1], 0)
        status = self.status or next((s for start, s in self.of.items() if path.startswith(start)), None)
        if status is not None:
            return status, {"error_code": status}
        if number not in self.schemas:
            return 404, {"error_code": 40403}
        return 200, {"schema": self.schemas[number]}


def head(number: int) -> bytes:
    """What stands in front of a message."""
    return b"\0" + number.to_bytes(4, "big")


@contextmanager
def served() -> Iterator[Registry]:
    """A registry that listens."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, self.headers.get("Authorization")))
            status, content = registry.answer(self.path)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: Any) -> None:
            """Nothing to standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
