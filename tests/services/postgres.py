"""A real PostgreSQL server in a folder of its own, for tests: Debian's package postgresql, no root, no network."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

WANTED = os.environ.get("SYNTHSTREAM_SERVICES") == "required"


def unavailable(why: str) -> None:
    """Skip a test; fail where services are required."""
    if WANTED:
        pytest.fail(f"SYNTHSTREAM_SERVICES=required, but {why}")
    pytest.skip(why)


def programs() -> Path | None:
    """The folder of initdb and postgres."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return places[-1].parent if places else None


class Server:
    """A running server. Its superuser is ``owner``; ``reader`` may read what it is granted. Both have the password."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder, self._bin = folder, bin_folder
        self.password = secrets.token_hex(8)
        self._kept: dict[str, psycopg.Connection[Any]] = {}
        self._as = _unprivileged()
        if self._as:
            shutil.chown(folder, self._as["user"], self._as["group"])
        self._process: subprocess.Popen[bytes] | None = None
        secret = folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)  # the folder itself is closed to others
        self._do("initdb", "-D", str(folder / "data"), "-U", "owner", "--auth=scram-sha-256", f"--pwfile={secret}",
                 "-E", "UTF8", "--locale=C", "--no-sync")  # fmt: skip
        self.start()
        self.execute("CREATE ROLE reader LOGIN PASSWORD '" + self.password + "'")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        settings = ["listen_addresses=", "fsync=off", "max_prepared_transactions=5", "shared_buffers=32MB"]
        settings += ["jit=off"]  # to compile what asks the catalogue takes a hundred times as long as to answer it
        for setting in settings:
            command += ["-c", setting]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._as)  # noqa: S603
        log.close()
        for _ in range(300):
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                time.sleep(0.1)
        raise RuntimeError((self.folder / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it, and wait until it has stopped."""
        while self._kept:
            self._kept.popitem()[1].close()
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None

    def environment(
        self, user: str = "reader", database: str = "postgres", password: str | None = None
    ) -> dict[str, str]:
        """Variables that a program connects with."""
        return {
            "PGHOST": str(self.folder),
            "PGUSER": user,
            "PGDATABASE": database,
            "PGPASSWORD": self.password if password is None else password,
        }

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """A connection of the owner, each statement of which is a transaction."""
        place = {"host": str(self.folder), "dbname": database, "client_encoding": "utf8"}
        settings = make_conninfo(user="owner", password=self.password, **place)
        return psycopg.connect(settings, autocommit=True)

    def execute(self, text: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Rows of the last statement, if it has any."""
        if database not in self._kept:
            self._kept[database] = self.connect(database)
        cursor = self._kept[database].execute(text)
        return cursor.fetchall() if cursor.description else []

    def _do(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **self._as)  # noqa: S603


def _unprivileged() -> dict[str, Any]:
    """PostgreSQL refuses to be run by root: whom to run it as."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    return {}


@contextmanager
def served() -> Iterator[Server]:
    """A server that is stopped and removed at the end."""
    bin_folder = programs()
    if bin_folder is None:
        unavailable("there is no PostgreSQL: apt-get install postgresql")
        raise RuntimeError
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: it holds a socket
    server = None
    try:
        server = Server(folder, bin_folder)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
