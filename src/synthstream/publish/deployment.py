"""An entry for the registry of deployments of differential privacy that OpenDP keeps: ``deployment.yaml``.

Its keys and words are those of the entries in ``opendp/deployments-registry-data``. What only the publisher knows, and
what the registry's editors decide, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from synthstream.config.config import StreamConfig
from synthstream.config.texts import filled


def deployment(config: StreamConfig, manifest: Mapping[str, Any]) -> str:
    """The entry of a stream, as YAML: a pure function of its configuration and the manifest of its newest release.

    What a stream says stands there as JSON, which is YAML too.
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
