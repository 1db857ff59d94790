"""A draft from PostgreSQL's catalogue: types, the labels of ENUM, and the lists and bounds of CHECK. No row is read."""

from __future__ import annotations

import pytest

from synthstream.errors import SourceError
from synthstream.ingest.codebooks import Known, of_catalogue
from synthstream.ingest.draft import draft
from tests.services.postgres import Server

_MADE = """
CREATE TYPE drafted_mood AS ENUM ('well', 'it''s bad');
CREATE DOMAIN drafted_age AS smallint CHECK (VALUE >= 0 AND VALUE < 120);
CREATE TABLE drafted (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, day date, mood drafted_mood, age drafted_age, patient_id text,
    ward varchar CHECK (ward IN ('A', 'B')), fee numeric CHECK (fee BETWEEN -1.5 AND 1e3), ok boolean,
    odd integer CHECK (odd < 3 OR odd > 7), note text CHECK (note <> 'SECRET'), at timestamptz
);
COMMENT ON COLUMN drafted.ward IS 'Where they lay';
INSERT INTO drafted (ward, note) VALUES ('A', 'ROW');
"""


@pytest.fixture
def drafted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table, and the environment of a reader who may not read its rows."""
    for key, value in server.environment().items():
        monkeypatch.setenv(key, value)
    server.execute(_MADE)


@pytest.mark.usefixtures("drafted")
def test_the_catalogue_says_what_values_there_are() -> None:
    book = of_catalogue("public.drafted", service=None)
    assert book.source == {"table": "public.drafted", "sequence": "id"}
    assert list(book.columns) == [
        Known(name="day", type="datetime"),
        Known(name="mood", type="category", values=("well", "it's bad")),
        Known(name="age", type="integer", low=0, high=119),
        Known(name="patient_id", type="category"),
        Known(name="ward", type="category", values=("A", "B"), description="Where they lay"),
        Known(name="fee", type="number", low=-1.5, high=1000.0),
        Known(name="ok", type="boolean"),
        Known(name="odd", type="integer"),
        Known(name="note", type="category"),
        Known(name="at", type="datetime"),
    ]
    text = draft("postgres:public.drafted")
    assert 'kind = "postgres"\ntable = "public.drafted"\nsequence = "id"\n' in text
    assert 'values = ["well", "it\'s bad"]' in text
    assert 'somebody: "patient_id"' in text
    assert "ROW" not in text
    with pytest.raises(SourceError, match="no such table"):
        draft("postgres:nowhere")
