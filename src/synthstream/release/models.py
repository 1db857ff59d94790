"""What rows are made of."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from synthstream.workload import IntArray, Workload


class Model(Protocol):
    """What was fitted to measurements."""

    @property
    def number(self) -> int:
        """Number of published rows."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that makes it, for the store."""

    def moved_from(self, before: Any) -> float:
        """Share of the rows of the model before, of the same kind, that are no longer there; 0 if there were none."""


class RowModel(Model, Protocol):
    """A model that is integer rows over the schema's columns."""

    @property
    def codes(self) -> NDArray[Any]:
        """Codes of the rows, shape ``(rows, columns)``."""

    @property
    def weights(self) -> IntArray | None:
        """For how many events each row stands, shape ``(rows,)``; ``None``: each for one."""

    def counts(self, workload: Workload) -> IntArray:
        """Events over all cells of a workload, shape ``(cells,)``."""
