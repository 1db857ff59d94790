"""A few steps of mirror descent from a graphical model: for rounds, each of which begins where the last one ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from synthstream.papers.fit.belief_propagation import Calibrated
from synthstream.papers.fit.graphical import Graphical
from synthstream.papers.fit.junction import Clique, Junction, junction, model_megabytes
from synthstream.workload import FloatArray

# A step is as long as promises this share of what the gradient says (Armijo).
_SHARE, _HALVINGS = 0.25, 25

# Proportional fitting over single columns: sweeps, a difference of shares at which to stop, the least share of a value.
_SWEEPS, _ENOUGH, _LEAST = 2, 1e-6, 1e-12


def towards(
    start: Graphical,
    cliques: Sequence[Clique],
    values: Sequence[FloatArray],
    total: float,
    *,
    steps: int,
    cap_mb: float,
) -> Graphical:
    """The model after some steps towards measured tables, all of one weight. Deterministic.

    Each step multiplies the distribution by exp(-length (table - measured)) of every measured table, which lessens the
    squared distance. All else about ``start`` stays: the potentials of tables that are not measured now are kept as far
    as ``cap_mb`` allows, the first ones first.

    Args:
        cliques: columns of each measured table, strictly increasing, none twice.
        values: noisy counts of each, in the shape of its columns' sizes; NaN for cells that were not measured.
        total: number of rows; 0 or less gives a model of zeros.
        steps: how many, 0 or more.
        cap_mb: largest size of the junction tree's tables in MB of float64.

    Raises:
        ValueError: the measured cliques alone need larger tables than ``cap_mb``.

    Source: McKenna, Sheldon, Miklau 2019, "Graphical-model based estimation and inference for differential privacy",
    algorithm 1; the kept part is ours.
    """
    total = max(float(total), 0.0)
    # Small tables first: of a large one a cell's noise hides most, and it takes the room of many.
    old = dict(sorted(zip(start.cliques, start.potentials, strict=True), key=lambda pair: pair[1].size))
    potentials, kept = _carried(start.sizes, cliques, old, cap_mb)
    if any(c not in kept and not any(set(c) <= set(new) for new in cliques) for c in old):
        kept = _with_margins(start, dict(zip(cliques, potentials, strict=True)), kept)
    if total > 0 and cliques:
        tree = junction(start.sizes, (*cliques, *kept))
        calibrated = Calibrated(tree, tree.attach(cliques), _held_fast(tree, kept))
        potentials = _descended(calibrated, potentials, [_shares(table, total) for table in values], steps)
    return Graphical(
        sizes=start.sizes, total=total, cliques=(*cliques, *kept), potentials=(*potentials, *kept.values())
    )


def _carried(
    sizes: tuple[int, ...], cliques: Sequence[Clique], old: Mapping[Clique, FloatArray], cap_mb: float
) -> tuple[list[FloatArray], dict[Clique, FloatArray]]:
    """Old potentials: summed over each measured clique that holds theirs, and those that are kept as they are."""
    megabytes = model_megabytes(sizes, cliques)
    if megabytes > cap_mb:
        raise ValueError(
            f"a model of cliques {list(cliques)} takes {megabytes:.1f} MB, more than the cap of {cap_mb:g} MB"
        )
    held = [np.zeros([sizes[c] for c in clique]) for clique in cliques]
    kept: dict[Clique, FloatArray] = {}
    for clique, potential in old.items():
        host = next((q for q, c in enumerate(cliques) if set(clique) <= set(c)), None)
        if host is not None:
            held[host] += potential.reshape([sizes[c] if c in clique else 1 for c in cliques[host]])
        elif model_megabytes(sizes, [*cliques, *kept, clique]) <= cap_mb:
            kept[clique] = potential
    return held, kept


def _with_margins(
    start: Graphical, measured: Mapping[Clique, FloatArray], kept: Mapping[Clique, FloatArray]
) -> dict[Clique, FloatArray]:
    """Potentials to keep, and those of single columns that give each of them the margin that ``start`` has.

    By iterative proportional fitting (Deming and Stephan 1940): forgetting how two columns go together need not mean
    forgetting the columns.
    """
    singles = [(column,) for column in range(len(start.sizes))]
    tree = junction(start.sizes, (*measured, *kept))
    calibrated = Calibrated(tree, tree.attach(singles), _held_fast(tree, {**measured, **kept}))
    one = start.scaled(1.0)
    targets = np.concatenate([np.maximum(one.table(single), _LEAST) for single in singles])
    fitted, logs, cells = np.zeros_like(targets), np.log(targets), calibrated.attached.cells
    for _ in range(_SWEEPS):
        if float(np.abs(calibrated.evaluate(fitted) - targets).max()) <= _ENOUGH:
            break
        for q in range(len(singles)):
            part = slice(int(cells[q]), int(cells[q + 1]))
            now = calibrated.evaluate(fitted)[part]
            fitted[part] += logs[part] - np.log(np.maximum(now, np.finfo(np.float64).tiny))
    parts = np.split(fitted, cells[1:-1])
    margins = {single: kept.get(single, 0.0) + part for single, part in zip(singles, parts, strict=True)}
    return {**kept, **{single: part for single, part in margins.items() if single not in measured}}


def _held_fast(tree: Junction, kept: Mapping[Clique, FloatArray]) -> FloatArray | None:
    """Log-potentials that stay, over all cells of the tree."""
    if not kept:
        return None
    return Calibrated(tree, tree.attach(list(kept))).spread(np.concatenate([p.reshape(-1) for p in kept.values()]))


def _shares(table: FloatArray, total: float) -> FloatArray:
    """Measured counts as probabilities, moved to sum to 1 where all cells of a table are measured: what they add up to
    beside the total tells nothing.
    """
    shares = table / total
    return shares if np.any(np.isnan(table)) else np.asarray(shares + (1.0 - shares.sum()) / shares.size)


def _descended(
    tree: Calibrated, potentials: list[FloatArray], wanted: list[FloatArray], steps: int
) -> list[FloatArray]:
    """Potentials after some steps towards the cells of the wanted tables that are known."""
    flat = np.concatenate([table.reshape(-1) for table in wanted])
    weights = np.isfinite(flat).astype(np.float64)
    # No probability is further out than this; what is would only overflow.
    values = np.clip(np.where(weights > 0, flat, 0.0), -1e6, 1e6)
    now = np.concatenate([potential.reshape(-1) for potential in potentials])
    tables = tree.evaluate(now)
    length = 2.0
    for _ in range(steps):
        gradient = weights * (tables - values)
        loss = 0.5 * float((tables - values) @ gradient)
        for _ in range(_HALVINGS):
            after = now - length * gradient
            moved = tree.evaluate(after)
            if loss - 0.5 * float(weights @ (moved - values) ** 2) >= _SHARE * float(gradient @ (tables - moved)):
                break
            length *= 0.5
        else:
            break  # no step is short enough to gain anything that floats can show
        now, tables, length = after, moved, 2 * length
    parts = np.split(now, np.cumsum([potential.size for potential in potentials])[:-1])
    return [part.reshape(potential.shape) for part, potential in zip(parts, potentials, strict=True)]
