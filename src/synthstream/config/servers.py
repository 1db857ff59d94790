"""Servers of PostgreSQL: how they are connected to, and why that fails, without a word of the connection's settings."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

_OLDEST = 130000  # version that knows WITH TIES
# So that a server that has vanished is noticed within a minute or so, not after hours.
_ALIVE: dict[str, Any] = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}


class Unreachable(Exception):
    """There is no connection. Its text tells why, and holds nothing that libpq or the server said."""


def connected(service: str | None) -> psycopg.Connection[Any]:
    """A connection each statement of which is a transaction, unless it begins one.

    Args:
        service: in the operator's ``pg_service.conf``; left out: the environment (``PGHOST``, ``PGPASSWORD``, ...).

    Raises:
        Unreachable: there is none to be had.
    """
    settings = make_conninfo(service=service, client_encoding="utf8", **_ALIVE)
    try:
        connection: psycopg.Connection[Any] = psycopg.connect(
            settings, autocommit=True, application_name="synthstream", connect_timeout=10
        )
    except psycopg.Error as error:
        place = "from the environment" if service is None else f'of service "{service}"'
        raise Unreachable(f"cannot connect with the settings {place}: {_why(str(error), service)}") from None
    if connection.info.server_version < _OLDEST:
        connection.close()
        raise Unreachable("the server is older than PostgreSQL 13. Upgrade it")
    return connection


def oid_of(connection: psycopg.Connection[Any], table: str) -> int | None:
    """The number of a table in the catalogue, by its name as SQL writes it; ``None`` if there is none.

    From then on the connection calls only what PostgreSQL itself brings. On the user's own path of schemas others may
    have made functions and operators that fit better, and they would run with the user's rights.
    """
    connection.execute("RESET search_path")
    (found,) = connection.execute("SELECT to_regclass(%s)::oid", [table]).fetchall()
    connection.execute("SET search_path = pg_catalog, pg_temp")
    return None if found[0] is None else int(found[0])


def _why(text: str, service: str | None) -> str:
    """The kind of an error of libpq, in our words. Names stand in quotes in its text, and may hold any word."""
    text = re.sub('"[^"]*"', "", text)
    named = "no such service" if service is None else f'no service "{service}"'
    kinds = {
        "too many|connection slots": "all connections of the server are taken. Try again in a moment",
        "password": "the server refused this user or password, or there is none. Set PGUSER and PGPASSWORD, or "
        "use a password file",
        "definition of service": f"there is {named}. Check pg_service.conf and PGSERVICEFILE",
        "conversion between": "the encoding of the database cannot be read as UTF-8",
        "database  does not exist": "there is no such database. Set PGDATABASE",
        "role": "there is no such user. Set PGUSER",
        "pg_hba": "the server refuses connections from this machine. Ask its administrator for a line in pg_hba.conf",
        "permission denied for database": "this user may not use this database. GRANT CONNECT ON it TO this user",
        "certificate|SSL": "no secure connection comes about. Check PGSSLMODE and PGSSLROOTCERT, and whether the "
        "server offers TLS",
        "invalid": "a setting has a value that cannot be, such as a PGPORT that is no number. Mend it",
        "resolve|translate host name": "the host has no address. Check PGHOST",
        "starting up": "the server is just starting. Try again in a moment",
        "shutting down": "the server is shutting down. Start it",
    }
    default = "no server answers there. Start it, or check PGHOST and PGPORT"
    return next((why for words, why in kinds.items() if re.search(words, text)), default)
