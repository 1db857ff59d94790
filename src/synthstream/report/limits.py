"""What is not protected and what is not exact, for one stream, as ``templates/limits.html`` says it."""

from __future__ import annotations

from markupsafe import Markup

from synthstream.config.config import StreamConfig
from synthstream.forecast.several import in_periods, of_several
from synthstream.publish.readme import left_out
from synthstream.report.page import render


def limits_of(config: StreamConfig, *, impossible: int | None = None) -> Markup:
    """Short headings, and a sentence or two for each: the inside of a list of HTML.

    Args:
        impossible: number of published rows that violate public constraints; ``None`` if that is not known.
    """
    unit, workload = config.privacy.unit, config.workload
    text = render(
        "limits.html",
        config=config,
        unit=unit,
        left_out=left_out(unit),
        several=in_periods(config) if unit.of_persons else of_several(config, "rows"),
        order=0 if workload is None else max((len(m) for m in workload.marginals), default=0),
        allowed=config.constraints.words(config.schema),
        impossible=impossible,
    )
    return Markup(text)  # noqa: S704 - escaped by the template
