"""The findings of an audit, for the eye and for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from synthstream.config.config import StreamConfig
from synthstream.evaluate.audit import Audit, audit

if TYPE_CHECKING:
    from rich.console import Console


def report(config: StreamConfig, console: Console, *, runs: int, ticks: int, confidence: float, as_json: bool) -> Audit:
    """Audit a configuration, with a progress bar on the error stream if someone looks, and print what was found."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("simulating neighbours"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    bar.disable = not bar.console.is_terminal
    with bar:
        task = bar.add_task("", total=1.0)

        def progress(share: float) -> None:
            bar.update(task, completed=share)

        found = audit(config, runs=runs, ticks=ticks, confidence=confidence, progress=progress)
    if as_json:
        print(json.dumps(facts(found), indent=2))
    else:
        show(found, console)
    return found


def show(audit: Audit, console: Console) -> None:
    """Print a table of findings and the verdict in words."""
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
    console.print(table)
    for finding in (*audit.counters, *audit.parts):
        if finding.refuted:
            console.print(f"{finding.what}: {finding.words}")
    console.print(verdict(audit), style="bold")
    if audit.caveat:
        console.print(audit.caveat)
    console.print("Simulated neighbours and real noise; no data were read. An audit finds errors; it proves nothing.")


def verdict(audit: Audit) -> str:
    """One sentence on the whole stream, in epsilon."""
    whole = audit.whole
    if whole.measure == "epsilon":
        return f"The whole stream, epsilon: {whole.words}"
    return (
        f"The whole stream: {whole.words}. In zCDP, rho is at least {whole.seen**2 / 2:.3g} of "
        f"{whole.claimed**2 / 2:.3g}; epsilon at least {audit.epsilon:.3g} at delta = {audit.delta:g}"
    )


def facts(audit: Audit) -> dict[str, Any]:
    """All of it as plain numbers and texts, for JSON."""
    keys = ("what", "measure", "claimed", "seen", "events", "runs", "refuted", "words")
    return {
        "refuted": audit.refuted,
        "confidence": audit.confidence,
        "epsilon": audit.epsilon,
        "delta": audit.delta,
        "verdict": verdict(audit),
        "caveat": audit.caveat,
        "findings": [{key: getattr(finding, key) for key in keys} for finding in audit.findings],
    }
