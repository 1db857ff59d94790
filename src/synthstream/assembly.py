"""From a configuration to the parts of a stream. Touches no data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from synthstream.bounds import picks_rule
from synthstream.config import StreamConfig
from synthstream.coordinates import Coordinate
from synthstream.environment import REAL, Env
from synthstream.errors import ConfigError
from synthstream.fit.weights import domain
from synthstream.io.sinks import Anchor, ParquetSink, Sink
from synthstream.kernel.batchwise import Batchwise
from synthstream.kernel.epochs import Epochs
from synthstream.kernel.hypercube import Hypercube
from synthstream.kernel.marginals import Marginals
from synthstream.kernel.points import Points
from synthstream.kernel.selective import Selective
from synthstream.partition import Partition
from synthstream.point_synthesizers import FromNodes, FromSparseCounts
from synthstream.privacy import EVENT, Budget, Claim, Neighbours, Unit, above
from synthstream.synthesis import SynthesizerConfig
from synthstream.synthesizer import (
    Continual,
    FromBatches,
    FromSelection,
    InEpochs,
    Synthesizer,
)
from synthstream.workload import Workload

# Stands for the number of ticks of a stream without end in a rule that it enters by its logarithm.
_LONG = 1000


def synthesizer_of(config: StreamConfig) -> Synthesizer:
    """The mechanism and the fit that a configuration describes. Touches no data.

    Raises:
        ConfigError: they do not fit together.
    """
    try:
        if config.workload is None:
            return _of_points(config)
        return synthesizer_for(
            config.synthesizer,
            workload=config.workload,
            budget=config.privacy.budget,
            horizon=config.clock.horizon,
            unit=replace(config.privacy.unit, signed=config.op is not None),
            neighbours=config.privacy.neighbours,
        )
    except ValueError as error:
        raise ConfigError(f"{config.name}: {error}") from error


def _of_points(config: StreamConfig) -> Synthesizer:
    """The mechanism and the fit of a points stream."""
    coordinates = [column for column in config.schema.columns if isinstance(column, Coordinate)]
    partition = Partition(dimension=len(coordinates), depth=sum(column.bits for column in coordinates))
    if config.synthesizer.kind == "hypercube":
        return FromSparseCounts(mechanism=_literal(config, partition))
    mechanism = Points(
        partition=partition,
        budget=config.privacy.budget,
        horizon=config.clock.horizon,
        unit=replace(config.privacy.unit, signed=config.op is not None),
        neighbours=config.privacy.neighbours,
        schedule=config.synthesizer.schedule,
    )
    return FromNodes(mechanism=mechanism)


def _literal(config: StreamConfig, partition: Partition) -> Hypercube:
    """The mechanism of paper 1."""
    privacy = config.privacy
    if privacy.neighbours != "replace-one" or config.op is not None:
        raise ValueError(
            'kind = "hypercube" tells how many events there are. Say neighbours = "replace-one" in [privacy], '
            'without op; or use kind = "points", which keeps that number private'
        )
    if not privacy.budget.pure:
        raise ValueError('kind = "hypercube" has no use for delta; say delta = 0, or use kind = "points"')
    return Hypercube(
        dimension=partition.dimension, depth=partition.depth, budget=privacy.budget, horizon=config.clock.horizon
    )


def synthesizer_for(
    settings: SynthesizerConfig,
    *,
    workload: Workload,
    budget: Budget,
    horizon: int | None,
    unit: Unit = EVENT,
    neighbours: Neighbours = "add-remove",
) -> Synthesizer:
    """The mechanism and the fit for a workload. Raises ``ValueError`` if they do not fit together."""
    common: dict[str, Any] = {
        "workload": workload,
        "budget": budget,
        "horizon": horizon,
        "unit": unit,
        "neighbours": neighbours,
    }
    if settings.kind == "table":
        if settings.measures(budget) == "always":
            return Continual(mechanism=Marginals(**common, split=settings.budget, kind=settings.counter))
        picks = settings.picks or len(workload.sizes)
        return InEpochs(mechanism=Epochs(**common, picks=picks, growth=settings.growth))
    if settings.fit == "mw":
        domain(workload.sizes)  # refuses what is too large
    common |= {"queries": settings.queries, "score": settings.score}
    picks = settings.picks or picks_rule(
        workload.sizes,
        queries=len(Selective(**common, picks=1).candidates),
        events=settings.events_per_tick or 1.0,
        ticks=horizon or _LONG,
        epsilon=budget.epsilon,
    )
    if settings.kind == "selective":
        return FromSelection(mechanism=Selective(**common, picks=picks, kind=settings.counter), kind=settings.fit)
    return FromBatches(mechanism=Batchwise(**common, picks=picks), kind=settings.fit)


def genesis(config: StreamConfig) -> str:
    """The chain head before the first tick: a hash of the stream's name and its public settings."""
    return hashlib.sha256(json.dumps([config.name, config.public_json()]).encode()).hexdigest()


def sink_of(config: StreamConfig, env: Env = REAL) -> Sink:
    """Where releases go; without a sink, an anchor file beside the state."""
    if config.sink is None:
        return Anchor(config.state.with_name(config.state.name + ".anchor.json"), env=env)
    return ParquetSink(config.sink.path, rows=config.sink.rows, keep=config.sink.keep, env=env)


def simulated(config: StreamConfig) -> StreamConfig:
    """The same configuration with folders of its own for a run with simulated noise."""
    aside = config.state.with_name(config.state.name + "-simulated")
    sink = config.sink and replace(config.sink, path=config.sink.path.with_name(config.sink.path.name + "-simulated"))
    return replace(config, state=aside, sink=sink)


def claim_facts(claim: Claim, budget: Budget) -> dict[str, Any]:
    """A claim as it stands in the ledger, in the chain and in every manifest."""
    return {
        "words": claim.words(budget),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "unit": claim.unit.kind,
        **({"signed": True} if claim.unit.signed else {}),
        "neighbours": claim.neighbours,
        "horizon": claim.horizon,
        "rho": above(claim.rho),
        "pure_epsilon": None if claim.pure is None else above(claim.pure),
        "theorems": list(claim.theorems),
        "trusts": list(claim.trusts),
    }
