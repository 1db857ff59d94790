"""``synthstream audit``: measured lower bounds, on simulated neighbours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from synthstream.cli.common import AsJson, ConfigPath, console
from synthstream.cli.runtime import Now
from synthstream.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from synthstream.evaluate.audit import Audit


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
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from synthstream.config.config import load
    from synthstream.evaluate.audit import audit
    from synthstream.stream.opening import begun

    if not 0 < confidence < 1:
        raise ConfigError(f"--confidence {confidence:g}: must lie between 0 and 1. Example: --confidence 0.999")
    loaded, shown = begun(load(config)), Console(stderr=True)
    columns = (TextColumn("simulating neighbours"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    hidden = not shown.is_terminal or Now.quiet
    with Progress(*columns, TimeRemainingColumn(), console=shown, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=1.0)

        def progress(share: float) -> None:
            bar.update(task, completed=share)

        found = audit(loaded, runs=runs, ticks=ticks, confidence=confidence, progress=progress)
    if as_json:
        print(json.dumps(found.facts(), indent=2))
    else:
        _show(found, console())
    if found.refuted:
        raise SystemExit(1)


def _show(audit: Audit, shown: Console) -> None:
    from rich.table import Table

    runs, sure = audit.whole.runs, f"{audit.confidence:.5g}"
    table = Table(
        title=f"Lower bounds on what one event reveals: {runs:,} runs on each side; confidence {sure} for all together"
    )
    for number, title in enumerate(("what was audited", "in", "claimed", "seen", "share", "events")):
        table.add_column(title, justify="right" if number > 1 else "left", no_wrap=number > 0)
    for finding in audit.findings:
        fewest, most = finding.events
        table.add_row(
            finding.what,
            finding.measure,
            f"{finding.claimed:.3g}",
            f"{finding.seen:.3g}",
            f"{finding.seen / finding.claimed:.0%}",
            f"{fewest}" if fewest == most else f"{fewest}-{most}",
        )
    shown.print(table)
    for finding in (*audit.counters, *audit.parts):
        if finding.refuted:
            shown.print(f"{finding.what}: {finding.words}")
    shown.print(audit.words, style="bold")
    if audit.caveat:
        shown.print(audit.caveat)
    shown.print("Simulated neighbours and real noise; no data were read. An audit finds errors; it proves nothing.")
