"""``synthstream audit``: measured lower bounds, on simulated neighbours."""

from __future__ import annotations

from typing import Annotated

import typer

from synthstream.cli.common import AsJson, ConfigPath, console
from synthstream.cli.runtime import fail


def audit_command(
    config: ConfigPath,
    runs: Annotated[
        int, typer.Option(min=10, help="Simulated runs on each side. More see more: 100000 for 97 %.")
    ] = 10_000,
    ticks: Annotated[int, typer.Option(min=1, help="Ticks of a simulated stream, at most.")] = 64,
    confidence: Annotated[float, typer.Option(help="That no bound exceeds the truth, all together.")] = 0.999,
    as_json: AsJson = False,
) -> None:
    """Measure how much one event tells at least, on simulated neighbours with real noise. Reads no data.

    Ends with status 1 if more can be seen than is claimed.

    Examples:
    synthstream audit stream.toml
    synthstream audit stream.toml --runs 100000 --json
    """
    from synthstream.config.config import load
    from synthstream.evaluate.verdict import report
    from synthstream.stream.opening import begun

    if not 0 < confidence < 1:
        raise SystemExit(fail(f"--confidence {confidence:g}: must lie between 0 and 1. Example: --confidence 0.999"))
    found = report(begun(load(config)), console(), runs=runs, ticks=ticks, confidence=confidence, as_json=as_json)
    if found.refuted:
        raise SystemExit(1)
