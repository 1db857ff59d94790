"""Whether state and releases are what they should be: chain, ledger, claims and every published file."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from synthstream.config.config import StreamConfig
from synthstream.errors import BudgetExceeded, SinkError, StateCorrupt, StateError, SynthstreamError
from synthstream.measured import stamped
from synthstream.publish.building import Builder, from_releases
from synthstream.publish.folder import COPIES, FILES, LATEST, SERIES, ParquetSink
from synthstream.publish.outlets import refuse_other_releases, sink_of
from synthstream.publish.readme import SUMS
from synthstream.state.folder import is_state
from synthstream.state.store import Store
from synthstream.stream.opening import begun, builder_from, encodes_otherwise, refuse_uncut
from synthstream.synthesizers.assembly import claim_of

# Wraps a long loop in a progress bar.
Progress = Callable[[Iterable[int]], Iterable[int]]

_BACK = "`synthstream recover stream.toml --republish` puts them back"


class Fault(NamedTuple):
    """Something that is wrong: where, and what. It holds no private value."""

    where: str
    what: str


class Verified(NamedTuple):
    """What was looked at, and what is wrong.

    Args:
        ticks: number of ticks that the state has measured.
        releases: number of published releases that are there.
        unchecked: ticks that were drawn while a mirror could not be asked what it holds. Not wrong, and to be known.
    """

    ticks: int
    releases: int
    findings: list[Fault]
    unchecked: list[int]


def verify(config: StreamConfig, *, rebuild: bool = False, progress: Progress = iter) -> Verified:
    """Check the state, if it is there, and every published file. Changes nothing, draws nothing.

    Args:
        rebuild: also build every release again from what was measured, and compare all bytes. Takes as long as fitting
            them did, and needs the same versions of this package and its libraries.
    """
    config, findings = begun(config), list[Fault]()
    refuse_uncut(config)
    store, heads = None, dict[int, str]()
    try:
        if is_state(config.state):
            store = Store(config.state, read_only=True)
            for what in _wrong_in_store(config, store, heads):
                findings.append(Fault("state", what))
    except StateError as error:
        findings.append(Fault("state", str(error)))
    with nullcontext() if store is None else closing(store):
        sink = sink_of(config)
        if not isinstance(sink, ParquetSink):
            last = sink.last()
            if last is not None and heads.get(last.tick) != last.head:
                findings.append(Fault("anchor", "stands at a release that this state did not make"))
            return Verified(len(heads), 0, findings, [])
        trusted = None if findings else store  # a state that is wrong says nothing about releases
        found = _releases(config, sink, trusted, heads, progress=progress)
        findings += found.findings
        if rebuild and not findings:
            findings += _rebuilt(config, sink, found.releases, progress)
    return found._replace(findings=findings)


def beside(config: StreamConfig, site: Path) -> list[Fault]:
    """What is wrong with ``latest/`` of a site, which holds the newest release again; nothing where there is none."""
    latest, sink = site / LATEST, sink_of(config)
    if not (latest / SUMS).is_file() or not isinstance(sink, ParquetSink):
        return []
    try:
        if (last := sink.last()) is None:
            return []
        files = dict(sink.manifest(last.tick).get("files", {}))
    except (SynthstreamError, LookupError, ValueError, TypeError):
        return []  # what is wrong with the releases is told with them
    lines = (latest / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    said = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    newest = files | {"manifest.json": sink.fingerprint(last.tick)}
    there = {path.name: path for path in latest.iterdir() if path.is_file()}
    findings = []
    for name in sorted(said.keys() | newest.keys()):
        if name not in there:
            findings.append(f"{name} is missing")
        elif (found := hashlib.sha256(there[name].read_bytes()).hexdigest()) != newest.get(name, found):
            findings.append(f"{name} is not that of the newest release, {sink.place(last.tick).name}")
        elif found != said.get(name):
            findings.append(f"{name} is not what {SUMS} says")
    return [Fault(LATEST, what) for what in findings]


def published(config: StreamConfig, sink: ParquetSink, *, progress: Progress = iter) -> list[Fault]:
    """What is wrong with the published releases, looked at alone."""
    return _releases(config, sink, None, {}, progress=progress).findings


def builder_of(config: StreamConfig, sink: ParquetSink, *, secure: bool = True) -> Builder:
    """Builds releases from what is published, without the state."""
    last = sink.last()
    return from_releases(config, sink, sink.measured, tick=None if last is None else last.tick, secure=secure)


def _wrong_in_store(config: StreamConfig, store: Store, heads: dict[int, str]) -> Iterator[str]:
    """What is wrong with the state. Fills in heads by tick, as they are kept."""
    marked = store.population()  # first: another process may be at it
    if not store.sound():
        yield "the database is damaged"
    if store.meta("config") is None and store.undrawn():
        return
    if changed := config.differences(store.meta("config") or "{}"):
        yield f"belongs to other settings: {'; '.join(changed)}"
        return
    if encodes_otherwise(config, store):
        yield "this version, or its libraries, would encode counts with other coefficients: no run goes on with it"
    builder = builder_from(config, store, secure=True)
    if store.ledger() != builder.ledger:
        yield "the ledger does not match the claim of this configuration"
    try:
        config.privacy.budget.charge(claim_of(config, builder.newest.mechanism))
    except BudgetExceeded:
        yield "the claim exceeds the budget"
    last = store.last()
    for tick in range(0 if last is None else last.tick + 1):
        try:
            kept = store.measurement(tick)
        except StateCorrupt:
            yield f"tick {tick} is not what was committed: it is damaged"
            break
        if kept is None:
            yield f"tick {tick} is missing in the chain"
            break
        if _head(builder, tick) != kept.head:
            yield f"tick {tick} is not what was committed: the chain breaks there"
        heads[tick] = kept.head
    if marked is not None and marked[0] not in heads:
        yield f"tick {marked[0]} is marked as published, but was never measured"


def _head(builder: Builder, tick: int) -> str | None:
    try:
        return builder.head_after(tick)
    except (SynthstreamError, ArithmeticError, LookupError, ValueError):
        return None


def _releases(
    config: StreamConfig, sink: ParquetSink, store: Store | None, heads: dict[int, str], *, progress: Progress
) -> Verified:
    """What is published, and what is wrong with it.

    Args:
        store: a state that is sound, if there is one.
        heads: of the ticks that it has measured.
    """
    findings, unchecked, there = [Fault(name, "is no part of a release") for name in sink.strangers()], list[int](), 0
    nothing = Verified(len(heads), 0, findings, [])
    marked = None if store is None else store.population()  # first: another process may be at it
    try:
        last = sink.last()
        builder = None if last is None else builder_of(config, sink)
        if store is None:
            with suppress(SinkError):  # what cannot be read is told below
                refuse_other_releases(config, sink)  # all that is wrong with each would follow from that
    except (SynthstreamError, LookupError, ValueError, TypeError) as error:
        findings.append(Fault("releases", str(error)))
        return nothing
    if last is None or builder is None:
        if marked is not None:
            findings.append(Fault("releases", f"the state has published releases, but there are none; {_BACK}"))
        return nothing
    if marked is not None and marked[0] > last.tick:
        findings.append(Fault("releases", f"{marked[0] - last.tick} of the newest are missing; {_BACK}"))
    previous: str | None = config.genesis
    keep = None if config.sink is None else config.sink.keep
    for tick in progress(range(last.tick + 1)):
        where = sink.place(tick).name
        try:
            manifest = sink.manifest(tick)
        except SinkError:
            findings.append(Fault(where, "its manifest is missing or cannot be read"))
            previous = None
            continue
        there += 1
        unchecked += [tick] if manifest.get("unchecked") else []
        kept = keep is None or tick > last.tick - keep
        problems = [*_files(config.at(tick), sink, tick, manifest, kept=kept)]
        problems += _facts(config, builder, tick, manifest, previous)
        head = str(manifest["chain"]["head"])
        if store is not None and (heads.get(tick) or store.head(tick)) != head:  # maybe measured since
            problems.append("the state did not make it")
        known = None if store is None else store.published(tick)
        if known is not None and known != sink.fingerprint(tick):
            problems.append("manifest.json is not what was published")
        findings += [Fault(where, problem) for problem in problems]
        previous = head
    return Verified(len(heads), there, findings, unchecked)


def _files(
    config: StreamConfig, sink: ParquetSink, tick: int, manifest: dict[str, Any], *, kept: bool
) -> Iterator[str]:
    place = sink.place(tick)
    there = {path.name for path in place.iterdir()}
    known = dict(manifest.get("files", {}))
    files = (*FILES, *([SERIES] if config.workload is not None else []))
    if set(known) != set(files):
        yield "its manifest does not list the files of a release"
    for name in sorted(there - set(files) - {"manifest.json", *(COPIES if sink.of_site else ())}):
        yield f"{name} is no part of a release"
    for name in files:
        if name not in there:
            if name != "rows.parquet" or kept:
                yield f"{name} is missing"
        elif hashlib.sha256((place / name).read_bytes()).hexdigest() != known.get(name):
            yield f"{name} is not what was published"


def _facts(
    config: StreamConfig, builder: Builder, tick: int, manifest: dict[str, Any], previous: str | None
) -> Iterator[str]:
    config, chain = config.at(tick), dict(manifest.get("chain", {}))
    clock = config.clock
    expected: dict[str, Any] = {
        "name": config.name,
        "tick": tick,
        "schema": config.schema.hash,
        "start": clock.boundary(tick).isoformat(),
        "end": clock.boundary(tick + 1).isoformat(),
        "claim": stamped(builder.claim_at(tick), secure="warning" not in manifest),
    }
    for key, value in expected.items():
        if manifest.get(key) != value:
            yield f"manifest.json: {key} is not that of this stream"
    if previous is None:  # of the release before it is lost what its head follows from
        return
    if chain.get("previous") != previous:
        yield "the chain breaks before it"
    if _head(builder, tick) != chain.get("head"):
        yield "its head is not that of what was measured"


def _rebuilt(config: StreamConfig, sink: ParquetSink, releases: int, progress: Progress) -> list[Fault]:
    """Releases whose bytes are not what the measurements give."""
    findings: list[Fault] = []
    rows = "total" if config.sink is None else config.sink.rows
    secure = releases == 0 or "warning" not in sink.manifest(0)
    again = builder_of(config, sink, secure=secure).once().again(releases)
    with tempfile.TemporaryDirectory() as folder:
        copy = ParquetSink(Path(folder), rows=rows, keep=1)
        for tick, (_, release, _) in zip(progress(range(releases)), again, strict=True):
            copy.publish(release)
            if copy.fingerprint(tick) != sink.fingerprint(tick):
                where = sink.place(tick).name
                findings.append(Fault(where, "is not what its measurements give, with these versions"))
    return findings
