"""An entry for the registry of deployments of differential privacy that OpenDP keeps: ``deployment.yaml``.

Its keys and words are those of the entries in ``opendp/deployments-registry-data``. What only the publisher knows, and
what the registry's editors decide, is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from synthstream.config.config import StreamConfig

_STATUS = "# status is that of this entry, until the registry's editors take it. What it describes is published."


def deployment(config: StreamConfig, manifest: Mapping[str, Any]) -> str:
    """The entry of a stream, as YAML: a pure function of its configuration and the manifest of its newest release."""
    return "\n".join([_STATUS, *_lines(_entry(config, manifest), "")]) + "\n"


def _lines(facts: Mapping[str, Any], indent: str) -> list[str]:
    """YAML in blocks; a scalar is JSON, which is YAML too. What is empty is left out."""
    found: list[str] = []
    for key, value in facts.items():
        if isinstance(value, Mapping):
            inside = _lines(value, f"{indent}  ")
            found += [f"{indent}{key}:", *inside] if inside else []
        elif isinstance(value, list | tuple):
            found += [f"{indent}{key}:", *(f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in value)]
        elif value not in (None, ""):
            found.append(f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}")
    return found


def _entry(config: StreamConfig, manifest: Mapping[str, Any]) -> dict[str, Any]:
    claim, about = manifest["claim"], config.publication
    pure, persons, cuts = claim["pure_epsilon"] is not None, claim["unit"] == "person", config.cuts
    title = about.title or config.name
    parts = "".join(f" From tick {cut['tick']} on it has other settings." for cut in cuts)
    parameters = {"epsilon": claim["pure_epsilon"]} if pure else {"rho": claim["rho"]}
    parameters |= {"epsilon": claim["epsilon"], "delta": claim["delta"]} if not pure else {}
    together = ", also of several tables together" if "joint-laplace" in claim["theorems"] else ""
    exact = "The number of events per tick. " if config.privacy.neighbours == "replace-one" else ""
    every = "for ever" if claim["horizon"] is None else f"for {claim['horizon']} ticks"
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "stream",
        "status": "Draft",
        "deployment": {
            "product": {
                "name": f"{manifest['warning']}: {title}" if "warning" in manifest else title,
                "data_curators": [about.publisher] if about.publisher else None,
                "data_product_type": "Synthetic data",
                "description": about.description,
            },
            "dp_flavor": {
                "name": "Pure DP" if pure else "Zero-concentrated DP",
                "data_domain": f"Rows with a time, and the columns {', '.join(config.schema.names)}.",
                "unprotected_quantities": f"{exact}The dates of releases, and all settings of the stream.",
            },
            "privacy_loss": {
                "privacy_unit": "Person-level" if persons else "Event-level",
                "privacy_unit_description": f"{claim['words']} Neighbours: {claim['neighbours']}.",
                "privacy_parameters": parameters,
                "privacy_parameters_description": f"Charged once, {every}, for all releases together.{parts}",
            },
            "model": {
                "model_name": "Central",
                "release_type": "Many releases",
                "release_type_description": f"A release at the end of every tick of {config.clock.every}.",
                "data_source_type": "Dynamic",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Rows are fitted to noisy counts, and to nothing else.",
                "composition": f"Theorems: {', '.join(claim['theorems'])}. They rest on: {'; '.join(claim['trusts'])}.",
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": "Columns, values, bounds and bins are public settings.",
                "mechanisms": f"Synthstream, synthesizer {config.synthesizer.kind}; integer noise of the discrete "
                f"{'Laplace' if pure else 'Gaussian'} law{together}, sampled exactly from the system's randomness.",
            },
            "resources": {"sources": about.homepage},
        },
    }
