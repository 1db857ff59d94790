"""The published folder described: ``README.md`` for people, ``datapackage.json`` (Data Package 2) and
``croissant.json`` for open-data portals, ``deployment.yaml`` for the registry of deployments.

For readers with this program ``settings.toml`` lies beside them. The others describe the newest release, from public
facts alone: its files with sizes and hashes, every column, and what the releases promise. They are no part of a
release: they lie beside them, and are written again when there is a newer one.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from synthstream.config.config import StreamConfig, load
from synthstream.config.settings import SETTINGS
from synthstream.config.texts import filled
from synthstream.environment import sync, words, write_new
from synthstream.errors import SinkError
from synthstream.measured import NOT_PRIVATE
from synthstream.publish.describing import FieldFacts, measured_fields, rows_fields, series_fields, tables_fields
from synthstream.publish.folder import DESCRIPTIONS, SERIES
from synthstream.publish.outlets import as_begun, parquet_sink, refuse_no_sink, refuse_other_releases
from synthstream.publish.readme import MARK, cited, left_out, readme, title_of

_WHAT = {
    "rows": "Synthetic rows. No row stands for a real event; all together have about the counts of the real ones.",
    "tables": "Counts with the error of their noise: what the rows are made of.",
    "measured": "What passed the gate at the newest tick, for machines.",
    "series": "Counts of the newest tick, and of all so far, with the error of their noise.",
}

# What the specification asks every Croissant 1.1 file to begin with, and what tools know from 1.0.
_TERMS = """
annotation arrayShape citeAs column containedIn equivalentProperty excludes extract field fileProperty fileObject
fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path readLines recordSet references regex
repeated replace samplingRate sdVersion separator source subField transform unArchive value
"""
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{key: f"cr:{key}" for key in _TERMS.split()},
    **{key: {"@id": f"cr:{key}", "@type": "@json"} for key in ("data", "examples")},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
}
_TYPES = {
    "string": "sc:Text",
    "integer": "sc:Integer",
    "number": "sc:Float",
    "boolean": "sc:Boolean",
    "datetime": "sc:DateTime",
}


class _Newest(NamedTuple):
    """The newest release: its manifest, and the size of each of its files in bytes.

    Args:
        where: what stands before the name of each of its files, such as ``000007/``; empty if they lie beside.
    """

    where: str
    manifest: dict[str, Any]
    sizes: dict[str, int]

    @property
    def version(self) -> str:
        """Major: the format of the manifest; minor: the tick."""
        return f"{self.manifest['format']}.{self.manifest['tick']}.0"


def describe(config: StreamConfig | str | Path) -> bool:
    """Write descriptions and settings beside the releases, if they are not as they should be; tells whether it did.

    ``settings.toml`` is for readers with this program: :func:`synthstream.releases` asks for it where they have the
    folder alone. ``README.md`` describes the newest release for people, ``datapackage.json``, ``croissant.json`` and
    ``deployment.yaml`` for portals and registries. The command ``run`` writes them after each run; a :class:`Stream`
    does not. A ``README.md`` that somebody else wrote stays.

    Args:
        config: of the stream, or the path of its ``stream.toml``; of a simulated one, ``stream.config``.

    Raises:
        SinkError: there is no release, or the folder cannot be written. Releases are never touched.

    Example:
        >>> with synthstream.open("stream.toml") as stream:
        ...     _ = list(stream.run())
        >>> synthstream.describe("stream.toml"), synthstream.describe("stream.toml")
        (True, False)
    """
    config = load(config)
    texts, folder, written = descriptions(config), refuse_no_sink(config).path, False
    # They tell sizes, hashes and the chain: whoever knows the seed of simulated noise tries counts against these.
    mode = 0o600 if texts[SETTINGS].startswith(f"# {NOT_PRIVATE}") else 0o666
    for name, text in texts.items():
        place, aside = folder / name, folder / f".{name}-{os.getpid()}"
        try:
            with suppress(FileNotFoundError):
                there = place.read_bytes()
                if there == text.encode() or (name == "README.md" and not there.startswith(MARK.encode())):
                    continue
            write_new(aside, text.encode(), mode=mode)
            sync(aside)
            aside.replace(place)
            sync(folder)
            written = True
        except OSError as error:
            raise SinkError(f"{place}: {words(error)}.") from None
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
    return written


def descriptions(config: StreamConfig, *, beside: bool = False) -> dict[str, str]:
    """Texts of these files by name: a pure function of the configuration and the newest release.

    Args:
        beside: whether they will lie in the newest release's own folder, or in a copy of it, and not above it.

    Raises:
        ConfigError: the releases were made with other settings.
        SinkError: there is no release, or it cannot be read.
    """
    if config.sink is None:
        raise SinkError("This configuration has no [sink], so there is no folder of releases to describe.")
    sink = parquet_sink(config.sink)
    last = sink.last()
    if last is None:
        raise SinkError(f"{sink.folder} holds no release yet; there is nothing to describe.")
    config = as_begun(config)
    refuse_other_releases(config, sink)
    config = config.at(last.tick)  # a successor that has released nothing describes what was there before it
    place, manifest = sink.place(last.tick), sink.manifest(last.tick)
    try:
        sizes = {name: (place / name).stat().st_size for name in (*manifest["files"], "manifest.json")}
    except OSError as error:
        raise SinkError(f"{place}: {words(error)}. `synthstream verify stream.toml` says what is missing.") from None
    newest = _Newest("" if beside else f"{place.name}/", manifest, sizes)
    texts = (_text(data_package(config, newest)), _text(croissant(config, newest)), deployment(config, manifest))
    stamp = f"# {manifest['warning']}\n" if "warning" in manifest else ""
    told = (*texts, stamp + config.settings, readme(config, manifest, newest.where))
    return dict(zip(DESCRIPTIONS, told, strict=True))


def wanted(config: StreamConfig) -> list[str]:
    """Keys of [publication] that portals ask for, and that are not given."""
    return [key for key in ("title", "publisher", "homepage", "licence") if getattr(config.publication, key) is None]


def _text(facts: dict[str, Any]) -> str:
    # As HTML pages may hold it: no text can end the element that it stands in.
    return json.dumps(facts, indent=2, ensure_ascii=False).replace("<", "\\u003c") + "\n"


def _given(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value not in (None, [], "")}


def _description(config: StreamConfig, newest: _Newest) -> str:
    """What it is, what it promises, and how far it goes, in sentences."""
    manifest, claim = newest.manifest, newest.manifest["claim"]
    allowed = config.constraints.words(config.schema)
    parts = [
        manifest.get("warning", "") and f"{manifest['warning']}.",
        config.publication.description or "",
        f"Synthetic rows and noisy tables for all events from {config.clock.begins(0)} to before "
        f"{manifest['end']}, the release of tick {manifest['tick']} of a stream that is kept up to date.",
        claim["words"],
        left_out(config.privacy.unit),
        f"The rows satisfy public constraints: {allowed}" if allowed else "",
        "Errors in the tables are those of the noise. Made with Synthstream.",
    ]
    return " ".join(part.strip() for part in parts if part)


# -- Data Package ----------------------------------------------------------------------------------------------------


def data_package(config: StreamConfig, newest: _Newest) -> dict[str, Any]:
    """The newest release as a Data Package 2."""
    about, manifest = config.publication, newest.manifest
    fields = {"rows": rows_fields(config, manifest), "tables": tables_fields(config), "measured": measured_fields()}
    fields |= {"series": series_fields(config)} if SERIES in manifest["files"] else {}
    known = {key: manifest.get(key) for key in ("name", "tick", "start", "end", "rows", "warning", "claim", "chain")}
    return _given(
        {
            "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
            "name": re.sub(r"[^a-z0-9._-]+", "-", config.name.lower()).strip("-") or "stream",
            "title": title_of(config, manifest),
            "description": _description(config, newest),
            "version": newest.version,
            "homepage": about.homepage,
            "keywords": [*about.keywords],
            "licenses": [_licence(about.licence)] if about.licence else [],
            "contributors": [_publisher(config)] if about.publisher or about.contact else [],
            "resources": [
                *(_resource(newest, name, listed) for name, listed in fields.items()),
                {
                    "name": "manifest",
                    "path": f"{newest.where}manifest.json",
                    "title": "Claim, chain and hashes of the release",
                    "format": "json",
                    "mediatype": "application/json",
                    "bytes": newest.sizes["manifest.json"],
                },
            ],
            "synthstream": {**_given(known), "manifest": f"{newest.where}manifest.json"},
        }
    )


def _licence(licence: str) -> dict[str, str]:
    if licence.startswith("http"):
        return {"path": licence}
    return {"name": licence, "path": f"https://spdx.org/licenses/{licence}"}


def _publisher(config: StreamConfig) -> dict[str, Any]:
    contact = config.publication.contact or ""
    key = "path" if contact.startswith("http") else "email" if "@" in contact else None
    known = {} if key is None else {key: contact}
    return {"title": config.publication.publisher or contact, **known, "roles": ["publisher"]}


def _resource(newest: _Newest, name: str, fields: list[FieldFacts]) -> dict[str, Any]:
    file = f"{name}.parquet"
    return {
        "name": name,
        "type": "table",
        "path": f"{newest.where}{file}",
        "description": _WHAT[name],
        "format": "parquet",
        "mediatype": "application/vnd.apache.parquet",
        "bytes": newest.sizes[file],
        "hash": f"sha256:{newest.manifest['files'][file]}",
        "schema": {"fields": [_field(field) for field in fields]},
    }


def _field(field: FieldFacts) -> dict[str, Any]:
    constraints: dict[str, Any] = {"required": not field.empty or None, "enum": list(field.values)}
    constraints |= {"minimum": field.minimum, "maximum": field.maximum}
    facts = {"name": field.name, "title": field.title, "type": field.kind, "description": field.description}
    return _given({**facts, "bins": field.bins, "unit": field.unit, "constraints": _given(constraints) or None})


# -- Croissant -------------------------------------------------------------------------------------------------------


def croissant(config: StreamConfig, newest: _Newest) -> dict[str, Any]:
    """The newest release as a Croissant 1.1 dataset."""
    about, manifest = config.publication, newest.manifest
    name = about.publisher or about.contact
    organization = name and _given({"@type": "Organization", "name": name, "url": about.homepage})
    spdx = about.licence and _licence(about.licence)["path"]
    return _given(
        {
            "@context": _CONTEXT,
            "@type": "sc:Dataset",
            "conformsTo": "http://mlcommons.org/croissant/1.1",
            "name": title_of(config, manifest),
            "description": _description(config, newest),
            "version": newest.version,
            "datePublished": manifest["end"],  # asked for; nobody noted when it was, but that it was not before
            "temporalCoverage": f"{config.clock.boundary(0).isoformat()}/{manifest['end']}",
            "isLiveDataset": True,
            "license": spdx,
            "url": about.homepage,
            "creator": organization,
            "publisher": organization,
            "keywords": [*about.keywords],
            "citeAs": cited(config, manifest),
            "rai:personalSensitiveInformation": manifest["claim"]["words"],
            "distribution": [
                {
                    "@type": "cr:FileObject",
                    "@id": file,
                    "name": file,
                    "description": _WHAT[file.removesuffix(".parquet")],
                    "contentUrl": f"{newest.where}{file}",
                    "contentSize": f"{newest.sizes[file]} B",
                    "encodingFormat": "application/x-parquet",
                    "sha256": digest,
                }
                for file, digest in manifest["files"].items()
            ],
            "recordSet": [
                _record_set("rows", rows_fields(config, manifest)),
                _record_set("tables", tables_fields(config)),
                *([_record_set("series", series_fields(config))] if SERIES in manifest["files"] else []),
            ],
        }
    )


def _record_set(name: str, fields: list[FieldFacts]) -> dict[str, Any]:
    plain: dict[str, str] = {}  # a distinct identifier for each name: what a URL holds as it is, and nothing else
    for place, field in enumerate(fields):
        own = re.sub(r"[^A-Za-z0-9_.-]+", "_", field.name).strip("_") or "column"
        plain[field.name] = own if own not in plain.values() else f"{own}-{place}"
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": _WHAT[name],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{plain[field.name]}",
                "name": field.name,
                "description": field.description + (f" Values: {', '.join(field.values)}." if field.values else ""),
                "dataType": _TYPES[field.kind],
                "source": {"fileObject": {"@id": f"{name}.parquet"}, "extract": {"column": field.name}},
            }
            for field in fields
        ],
    }


# -- the registry of deployments -------------------------------------------------------------------------------------


def deployment(config: StreamConfig, manifest: dict[str, Any]) -> str:
    """An entry for the registry of deployments of differential privacy that OpenDP keeps, as YAML.

    Its keys and words are those of the entries in ``opendp/deployments-registry-data``. What only the publisher knows,
    and what the registry's editors decide, is left out. What a stream says stands there as JSON, which is YAML too.
    """
    title = config.publication.title or config.name
    return filled(
        "publish",
        "deployment.yaml.jinja",
        config=config,
        about=config.publication,
        manifest=manifest,
        claim=manifest["claim"],
        pure=manifest["claim"]["pure_epsilon"] is not None,
        title=title,
        slug=re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "stream",
    )
