"""What a site has in ``latest`` beside what was published: the series of all ticks in one file, a list of all releases,
hashes, and tables as CSV. Each is a function of published releases alone.
"""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import suppress
from pathlib import Path

import polars as pl

from synthstream.publish.folder import SERIES, write_parquet
from synthstream.publish.history import History
from synthstream.publish.readme import HISTORY, has_history
from synthstream.report.places import in_series
from synthstream.schema.clock import Clock

_COLUMNS = ["tick", "start", "end", "column", "value", "measured", "stderr", "span", "whole"]
# So many lines a spreadsheet opens, with the headings; a longer table has no CSV file.
_LONGEST = 1_048_575


def history(found: History, before: Path) -> dict[str, bytes]:
    """``history.parquet``, if its stream has one: what was counted in every tick, month, quarter and year.

    Args:
        before: ``latest`` of the site as it was: lines of its steps are not computed again.
    """
    if not has_history(found.config):
        return {}
    columns = found.config.schema.columns
    told = [column.name for c, column in enumerate(columns) if in_series(columns, [c])]
    frame = found.releases.history(_known(found, before))
    frame = frame.filter(pl.col("column").is_null() | pl.col("column").is_in(told))
    file = io.BytesIO()
    write_parquet(file, frame, found.warning or None)
    return {HISTORY: file.getvalue()}


def _known(found: History, before: Path) -> pl.DataFrame | None:
    """The lines that an earlier site of the same releases has; nothing if it cannot be read."""
    with suppress(OSError, ValueError, LookupError, pl.exceptions.PolarsError):
        manifest = (before / "manifest.json").read_bytes()
        if hashlib.sha256(manifest).hexdigest() == found.sink.fingerprint(json.loads(manifest)["tick"]):
            known = pl.read_parquet((before / HISTORY).read_bytes())
            return known if known.columns == _COLUMNS else None
    return None


def listed(found: History) -> bytes:
    """``releases.json``: all releases, oldest first, and where they lie; one a line."""
    ticks = [
        {
            "tick": tick.tick,
            "start": tick.manifest["start"],
            "end": tick.manifest["end"],
            "folder": f"../releases/{tick.tick:06d}/",
            "head": tick.manifest["chain"]["head"],
            "files": {n: h for n, h in tick.manifest["files"].items() if tick.has_rows or n != "rows.parquet"}
            | {"manifest.json": found.sink.fingerprint(tick.tick)},
        }
        for tick in found.ticks
    ]
    lines = ",\n".join(json.dumps(tick) for tick in ticks)
    warning = f'"warning": {json.dumps(found.warning)}, ' if found.warning else ""
    return f'{{{warning}"name": {json.dumps(found.config.name)}, "releases": [\n{lines}\n]}}\n'.encode()


def sums(content: dict[str, bytes]) -> bytes:
    """``SHA256SUMS`` of some files, for ``sha256sum -c``."""
    return "".join(f"{hashlib.sha256(content[name]).hexdigest()}  {name}\n" for name in sorted(content)).encode()


def texts_of(content: dict[str, bytes], clock: Clock, tick: int) -> dict[str, bytes]:
    """Tables of a release as CSV, by name."""
    names = [name for name in ("rows.parquet", SERIES, HISTORY, "tables.parquet") if name in content]
    frames = {name: pl.read_parquet(content[name]) for name in names}
    frames["tables.parquet"] = _dated(frames["tables.parquet"], clock, tick)
    return {
        f"{name.removesuffix('parquet')}csv": frame.write_csv().encode()
        for name, frame in frames.items()
        if name != HISTORY or frame.height < _LONGEST
    }


def _dated(frame: pl.DataFrame, clock: Clock, tick: int) -> pl.DataFrame:
    """With dates from which on and before which ``measured`` counts, or else ``count``: ``start`` and ``end`` are those
    of one tick, and who takes a running total for what came in it is wrong.
    """
    spans = (("counted_from", "since", 0, 0), ("counted_before", "measured_at", tick, 1))
    for name, told, other, more in spans:
        known = told in frame.columns
        ticks = frame[told].fill_null(other) if known else pl.Series([other]).new_from_index(0, frame.height)
        moments = {t: clock.begins(t + more) for t in ticks.unique()}
        frame = frame.with_columns(ticks.replace_strict(moments, return_dtype=pl.String).alias(name))
    return frame
