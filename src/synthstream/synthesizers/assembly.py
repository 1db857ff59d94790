"""From a configuration to the parts of a stream. Touches no data. Methods of the papers are loaded when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from synthstream.config.config import StreamConfig
from synthstream.config.places import weights_in_epochs, weights_of
from synthstream.config.synthesis import MOST_ROWS, SynthesizerConfig
from synthstream.constraints import Group
from synthstream.errors import ConfigError
from synthstream.kernel.counters import counter
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.points import Points
from synthstream.kernel.spending import participation_factor
from synthstream.kernel.tables import Marginals, Refreshed
from synthstream.kernel.turnstile import Turnstile
from synthstream.kinds import SYNTHESIZERS, SynthesizerKind
from synthstream.partition import Partition
from synthstream.privacy import EVENT, EXACT, Budget, Claim, Neighbours, Unit, above, below
from synthstream.schema.coordinates import Coordinate
from synthstream.schema.dates import Dates
from synthstream.strategies.levels import Schedule, first_levels, joint_levels
from synthstream.strategies.shares import by_size
from synthstream.synthesizers.bounds import LONG
from synthstream.synthesizers.contract import Mechanism, Synthesizer
from synthstream.synthesizers.epochs import InEpochs
from synthstream.synthesizers.fitting import RowFitting
from synthstream.synthesizers.points import FromBothSides, FromNodes
from synthstream.synthesizers.segments import in_segments
from synthstream.synthesizers.tables import AtRefreshes, Continual
from synthstream.workload import Workload

Make = Callable[[StreamConfig, Budget], Synthesizer]
_MAKERS: dict[str, Make] = {}

# Refreshes that bursts may bring before their time.
_EARLY = 2
# Events times epsilon from which points are told better by Gaussian noise, of one column, and of several (decisions 47
# and 76).
_MANY = {1: 3e5, 2: 1e6}

# What a claim takes for granted where a row of a CSV file may have many lines.
_CLOSED = "every quotation mark of a CSV file is closed within its row"


def synthesizer_of(config: StreamConfig) -> Synthesizer:
    """The mechanism and the fit that a configuration describes. Touches no data.

    Raises:
        ConfigError: they do not fit together.
    """
    try:
        whole = config.privacy.budget
        whole = replace(whole, delta=0.0) if _by_laplace(config) else whole
        budget = whole.per_event(group_factor(config), by_pure=config.measures == "epochs")
        return _MAKERS[config.synthesizer.kind](config, budget)
    except ValueError as error:
        each = ". That epsilon is what is left for one event of a person" if config.privacy.unit.of_persons else ""
        raise ConfigError(f"{config.name}: {str(error).rstrip('.')}{each}") from error


def claim_of(config: StreamConfig, mechanism: Mechanism, *, resumed: bool = False) -> Claim:
    """What a stream promises: what its mechanism promises for one event, carried over to the unit of the stream.

    It names the theorem by which Gaussian noise is smaller than zCDP allows, if it is.

    Args:
        resumed: whether a lost state was resumed, so that the theorem of segments is part of it.
    """
    unit = replace(config.privacy.unit, signed=config.op is not None)
    claim = in_segments(mechanism.claim()) if resumed else mechanism.claim()
    if unit.of_persons:
        factor = group_factor(config)
        each = factor == unit.events_in(claim.horizon)
        claim = claim.of_group(unit, factor, theorem="group" if each else "participation")
    claim = claim.charged_to(config.privacy.budget)
    many = config.source is not None and config.source.dialect.multiline
    return replace(claim, provided=(_CLOSED,)) if many else claim


def group_factor(config: StreamConfig) -> Fraction:
    """How much further the events of one unit move what passes the gate than one event does."""
    unit, budget, horizon = config.privacy.unit, config.privacy.budget, config.own_clock.horizon
    how = None
    if unit.max_per_tick is not None and not budget.pure and config.measures == "always":
        how = counter(config.synthesizer.counter, horizon=horizon, noise="gaussian")
    return _factor(how, unit, horizon)


# Of a counter without end it takes a tenth of a second, and a plan asks a dozen times.
_factor = cache(participation_factor)


def _by_laplace(config: StreamConfig) -> bool:
    """Whether points have Laplace noise although delta is above 0: unless so many events are expected that the normal
    law's many levels win. A stream that goes on from another keeps its noise: costs of both kinds together cannot be
    told in one number.
    """
    if config.after is not None and config.synthesizer.kind == "points":
        return config.after.config.privacy.budget.pure or _by_laplace(config.after.config)
    settings, horizon = config.synthesizer, config.clock.horizon or LONG
    return settings.kind == "points" and (settings.events_per_tick or 0.0) * horizon < very_many(config)


def very_many(config: StreamConfig) -> float:
    """Number of points from which Gaussian noise tells more than Laplace noise, at the budget of a stream."""
    return _MANY[min(len(config.schema.columns), 2)] / config.privacy.budget.epsilon


def register(kind: str, make: Make, *, keys: tuple[str, ...] = (), points: bool = False) -> None:
    """Let configurations use a kind of synthesizer.

    Args:
        kind: its name in ``[synthesizer]``.
        make: the synthesizer of a configuration, for the budget of one event; raises ``ValueError`` if they do not fit.
        keys, points: see :class:`synthstream.kinds.SynthesizerKind`.

    Raises:
        ValueError: the name is taken.
    """
    if kind in _MAKERS:
        raise ValueError(f"there is a synthesizer {kind!r} already")
    _MAKERS[kind] = make
    SYNTHESIZERS.setdefault(kind, SynthesizerKind(keys, points=points))


def _of_tables(config: StreamConfig, budget: Budget) -> Synthesizer:
    if config.workload is None:
        raise ValueError("there are no tables to count")
    table, focus, shares = config.synthesizer.kind == "table", config.synthesizer.focus or (), config.synthesizer.shares
    sizes = by_size(config.workload) if table and config.measures == "refresh" else 1.0
    alike = config.measures == "always" and (shares == "equal" or (shares == "auto" and not budget.pure))
    return synthesizer_for(
        config.synthesizer.model_copy(update={"measure": config.measures}) if table else config.synthesizer,
        workload=config.workload,
        budget=budget,
        horizon=config.own_clock.horizon,
        unit=Unit(signed=config.op is not None),
        neighbours=config.privacy.neighbours,
        groups=config.constraints.groups,
        dates=config.dates,
        weights=weights_in_epochs(config.schema, config.workload)
        if config.measures == "epochs"
        else weights_of(config.schema, config.workload, focus, sizes, alike=alike),
    )


def _of_points(config: StreamConfig, budget: Budget) -> Synthesizer:
    coordinates = [column for column in config.schema.columns if isinstance(column, Coordinate)]
    region = None if config.schema.region is None else config.schema.region.nodes
    depth = sum(column.bits for column in coordinates)
    partition = Partition(dimension=len(coordinates), depth=depth, region=region)
    if config.synthesizer.kind == "hypercube":
        from synthstream.synthesizers.papers import of_hypercube

        return of_hypercube(config, partition)
    if config.synthesizer.schedule == "fixed" and not budget.pure:
        raise ValueError('schedule = "fixed" is for delta = 0; leave it out, or say delta = 0')
    public = config.op is None and config.privacy.neighbours == "replace-one"
    points = Points(
        partition=partition,
        budget=replace(budget, exact=True),
        horizon=config.own_clock.horizon,
        unit=Unit(signed=config.op is not None),
        neighbours=config.privacy.neighbours,
        schedule=Schedule(
            dimension=len(coordinates),
            kind=config.synthesizer.schedule,
            joint=joint_levels(pure=budget.pure, bounded=region is not None),
            first=first_levels(public=public, bounded=region is not None),
        ),
    )
    return FromNodes(mechanism=points) if config.op is None else FromBothSides(mechanism=Turnstile(side=points))


def synthesizer_for(
    settings: SynthesizerConfig,
    *,
    workload: Workload,
    budget: Budget,
    horizon: int | None,
    unit: Unit = EVENT,
    neighbours: Neighbours = "add-remove",
    groups: tuple[Group, ...] = (),
    dates: Dates | None = None,
    weights: tuple[float, ...] | None = None,
) -> Synthesizer:
    """The mechanism and the fit for a workload. Raises ``ValueError`` if they do not fit together.

    Args:
        weights: of the tables of kind ``table``: see :class:`Refreshed` and :class:`Epochs`.
    """
    if groups and settings.kind != "table":
        raise ValueError('[[constraints]] need kind = "table"')
    budget = replace(budget, exact=True)
    common: dict[str, Any] = {"workload": workload, "budget": budget, "horizon": horizon}
    common |= {"unit": unit, "neighbours": neighbours}
    if settings.kind == "table":
        how = settings.measures(budget, workload, horizon=horizon)
        rows = RowFitting(groups, settings.population or MOST_ROWS, dates)
        if how == "always":
            tables = Marginals(**common, weights=weights, split=settings.shares, kind=settings.counter)
            return Continual(mechanism=tables, how=rows)
        if how == "refresh":
            growth = settings.refresh_growth(workload, horizon)
            refreshed = Refreshed(**common, weights=weights, growth=growth, early=_EARLY)
            return AtRefreshes(mechanism=refreshed, how=rows)
        epochs = Epochs(**common, picks=settings.picks, growth=settings.growth, weights=weights)
        return InEpochs(mechanism=epochs, how=rows)
    from synthstream.synthesizers.papers import of_rounds

    return of_rounds(settings, common)


def claim_facts(claim: Claim, budget: Budget) -> dict[str, Any]:
    """A claim as it stands in the ledger, in the chain and in every manifest.

    Args:
        claim: what is promised.
        budget: what it was charged to.
    """
    return {
        "words": claim.words(budget),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "unit": claim.unit.kind,
        **claim.unit.limits,
        **({"signed": True} if claim.unit.signed else {}),
        "neighbours": claim.neighbours,
        "horizon": claim.horizon,
        "rho": above(claim.rho),
        "pure_epsilon": None if claim.pure is None else above(claim.pure),
        **({"least_variance": below(claim.least)} if claim.least is not None and EXACT in claim.theorems else {}),
        "theorems": list(claim.theorems),
        "trusts": [*claim.trusts, *claim.provided],
    }


for _kind in ("table", "selective", "stream-mwem"):
    register(_kind, _of_tables)
for _kind in ("points", "hypercube"):
    register(_kind, _of_points)
