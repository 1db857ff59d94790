"""The contract of a synthesizer: a mechanism joined with its fit, and what it knows of itself.

Adding one is a class here or elsewhere, and :func:`synthstream.synthesizers.assembly.register`. No other
room asks which kind it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, Self

from numpy.typing import NDArray
from typing_extensions import TypeVar

from synthstream.counts import Counts
from synthstream.errors import NotReleased
from synthstream.kernel.counters import Counter, State
from synthstream.kernel.gate import Gate
from synthstream.measured import Reading
from synthstream.privacy import Claim
from synthstream.release.release import Release
from synthstream.release.rows import Model, RowModel
from synthstream.schema.schema import Schema
from synthstream.workload import CodeArray, FloatArray, IntArray, Workload

# What a kind measures at a tick, and the model that it fits. Who does not know the kind says ``Synthesizer`` alone.
R = TypeVar("R", bound=Reading, default=Any)
M = TypeVar("M", bound=Model, default=Any)

# Looks up what was measured at a tick.
History = Callable[[int], R]

# What was fitted while a tick was drawn, as it is stored; empty for those who draw first and fit then. Public.
Models = Mapping[str, NDArray[Any]]


class Mechanism(Protocol):
    """What synthesizers' mechanisms have in common; everything here follows from the configuration alone."""

    def claim(self) -> Claim:
        """What it promises for its whole life."""

    def fingerprint(self) -> str:
        """Hash of every number that decides what is drawn and with how much noise."""

    def init(self) -> State:
        """The private state before the first tick."""


class TableMechanism(Mechanism, Protocol):
    """A mechanism that measures tables."""

    @property
    def workload(self) -> Workload:
        """The tables that it may measure."""


class WindowAsked(NamedTuple):
    """A window that is asked for, and what was measured before. Ticks are those of the stream.

    Args:
        first, last: its ticks.
        newest: the newest tick that is published of the segment.
        seed: public, of the fit of its rows.
        start: first tick of the segment that holds the last tick.
        cut: first tick of the last tick's columns; 0 if they never changed.
        tables: the marginals that ``variance`` is about.
        own: what passed the gate at a tick, of its own segment alone.
        whole: what is published as measured at a tick: over all segments, and over the window's last columns.
        variance: of what was measured of the window, for each of ``tables``.
        seed_at: the public seed of the fit of a tick.
        begins: when a tick begins, as it is written.
    """

    first: int
    last: int
    newest: int
    seed: int
    start: int
    cut: int
    tables: tuple[tuple[int, ...], ...]
    own: Callable[[int], Any]
    whole: Callable[[int], Any]
    variance: Callable[[], FloatArray]
    seed_at: Callable[[int], int]
    begins: Callable[[int], str]


class Windowed(NamedTuple, Generic[R, M]):
    """What is known of the events of some ticks alone.

    Args:
        measured: the difference of two measurements, and its error.
        model: what was fitted to it.
    """

    measured: R
    model: M


Measure = Literal["epsilon", "mu"]

# An audit adds so many events that the claim for all of them together is about this large: there a change is seen best.
POWER = 1.25


@dataclass(frozen=True, kw_only=True)
class CounterTarget:
    """A counter over those cells that one event changes.

    Args:
        multipliers: noise of each cell per unit of sensitivity, shape ``(cells,)``.
        moved: by how much one event changes each cell, shape ``(cells,)``.
        claimed: for all cells together; left out: what the multipliers say.
    """

    name: str
    counter: Counter
    multipliers: FloatArray
    moved: FloatArray
    claimed: float | None = None


@dataclass(frozen=True, kw_only=True)
class DrawTarget:
    """Readings of runs that are simulated one by one.

    Args:
        measure: ``epsilon`` of pure DP, or ``mu`` of Gaussian DP with rho = mu^2 / 2.
        claimed: for all readings together.
        draw: readings of a run without events beside the fixed ones (0) or with ``events`` more (1), shape
            ``(readings,)``, moved by ``shift`` if there are more; NaN for one that was not taken.
        shift: shape ``(readings,)``.
        events: how many are added.
        grid: for noise in whole numbers: its smallest scale, and the change of a reading; ``None`` if not needed.
    """

    name: str
    measure: Measure
    claimed: float
    draw: Callable[[int, Gate], FloatArray]
    shift: FloatArray
    events: int
    grid: tuple[float, float] | None = None


class AuditTargets(NamedTuple):
    """Single counters, parts of the whole, and what was left out, in words."""

    counters: list[CounterTarget]
    parts: list[CounterTarget | DrawTarget]
    caveat: str


@dataclass(frozen=True, kw_only=True)
class RowErrors:
    """Expected errors of published rows.

    Args:
        table_error: order of a table -> expected sum of absolute errors over its cells, in events; empty for points.
        box: error of the number of events in a box, in events: root mean square over boxes.
        distance: of points, Wasserstein distance W1 to the true events, in widths of the box; ``None`` where it is not
            known.
    """

    table_error: dict[int, float]
    box: float
    distance: float | None = None

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "table_error": {str(k): value for k, value in self.table_error.items()}}


class Expected(NamedTuple):
    """What a forecast is simulated for. Public.

    Args:
        ticks: numbers of ticks, increasing.
        events_per_tick: a guess.
        careful: whether to average over several draws.
    """

    schema: Schema
    ticks: Sequence[int]
    events_per_tick: float
    careful: bool = True


# Errors by number of ticks.
Piece = Callable[[], dict[int, RowErrors]]


class Synthesizer(ABC, Generic[R, M]):
    """Counts rows, measures ticks, makes rows, and answers for its own accuracy."""

    if TYPE_CHECKING:  # most kinds have a field of this name

        @property
        def mechanism(self) -> Mechanism:
            """What is measured, and what it costs."""

    # -- a tick -------------------------------------------------------------------------------------------------

    @abstractmethod
    def count(self, codes: CodeArray, weights: IntArray | None) -> Counts:
        """Exact counts of rows. Linear: counts of parts add up."""

    @abstractmethod
    def step(self, state: State, counts: Counts, gate: Gate, last: M | None, models: Models) -> tuple[State, R, Models]:
        """Close one tick: see ``step`` of the mechanisms.

        Args:
            last: the model of the newest release, ``None`` before the first.
            models: what was fitted while the tick before was drawn.

        Returns:
            The next state, what was measured, and what was fitted meanwhile.
        """

    def replay(self, measured: R, models: Models) -> Models:
        """What ``step`` fitted meanwhile: a pure function of what was measured, and of what the tick before fitted."""
        return {}

    @abstractmethod
    def fit(self, tick: int, history: History[R], last: M | None, models: Models, *, seed: int) -> M:
        """The model for a tick: a pure function of measurements, models, the model before, and the seed."""

    @abstractmethod
    def pack(self, measured: R) -> IntArray:
        """What passed the gate at one tick as integers, for the store."""

    @abstractmethod
    def unpack(self, tick: int, released: IntArray) -> R:
        """The measurement that ``pack`` was given."""

    @abstractmethod
    def model(self, arrays: Models) -> M:
        """The model whose ``arrays()`` these are."""

    @abstractmethod
    def release(self, **facts: Any) -> Release:
        """A release with these facts: those of :class:`synthstream.release.release.Release`."""

    # -- what it knows of itself --------------------------------------------------------------------------------

    @abstractmethod
    def describe(self) -> str:
        """How it measures, in a few plain words."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """Cells that are counted, at most."""

    @property
    def tables(self) -> TableMechanism | None:
        """The mechanism, if it measures tables."""
        return None

    @property
    def caveat(self) -> str:
        """Which numbers ``expected_variance`` is about, in a sentence; of tables alone."""
        return ""

    def expected_variance(self, tick: int, events_per_tick: float | None = None) -> FloatArray:
        """Variance of the best estimate of a cell of each running table after a tick, shape ``(marginals,)``.

        NaN for tables that are never measured; of tables alone.

        Args:
            events_per_tick: what is expected, where what is measured depends on it; left out: what is usual.
        """
        raise TypeError(f"a {type(self).__name__} measures no tables")

    def refreshed(self, tick: int) -> int:
        """The last tick up to this one with which all tables that go on were measured, if none came early."""
        return tick

    def covariance(self, s: int, t: int, history: History[R]) -> FloatArray:
        """Covariance of the noise in sums of all that was measured up to two ticks of its segment, ``(marginals,)``.

        What was measured over the ticks after s, up to t, therefore has variance C(t, t) - 2 C(s, t) + C(s, s). NaN
        where it is not known.

        Raises:
            TypeError: it measures no tables.
        """
        raise TypeError("streams of points have no covariance of tables")

    # Whether what is foreseen of measured counts is exact: when each is measured is known beforehand.
    exact_forecast = False

    def state_bytes(self, horizon: int | None) -> int:
        """Bytes of the counters' state at the horizon, or in a stream's first segment."""
        first = self.mechanism.init()
        state = sum(array.nbytes for array in first.values())
        # Toeplitz remembers every tick.
        return int(state) + (16 * self.cells * (horizon or 0) if "counts" in first else 0)

    def error_bound(self, tick: int, *, beta: float) -> float | None:
        """What no cell of any table measured at a tick is off by, with probability 1 - ``beta``, in events.

        ``None`` if no bound is known. See :mod:`synthstream.synthesizers.bounds`.
        """
        return None

    @property
    def bound_covers(self) -> str:
        """What :meth:`error_bound` covers, as the end of a sentence; empty if no bound is known."""
        return ""

    # Why there are no windows; empty if there are.
    no_window = ""

    def window(self, asked: WindowAsked) -> Windowed:
        """What was measured of the events of some ticks alone, and rows for it.

        Raises:
            NotReleased: there is no such window.
        """
        raise NotReleased(f"between: {self.no_window}")

    def replicates(self, known: Reading, model: Any, *, number: int, seed: int) -> list[RowModel]:
        """Rows fitted again to what would have been measured if those of a model were the events: how noise moves rows.

        Args:
            known: what is published as measured, for its variances.
            number: of replicates; each takes as long as a fit without a predecessor.

        Returns:
            As many models; none where that is not known.
        """
        return []

    def audit_targets(self) -> AuditTargets:
        """What of it can be audited. Raises ``TypeError`` if nothing is known."""
        raise TypeError(f"no way is known to audit a {type(self).__name__}")

    # -- segments -----------------------------------------------------------------------------------------------

    def from_tick(self, tick: int) -> Self:
        """The same for a segment that begins with a tick of the stream."""
        return self

    @property
    def start(self) -> int:
        """First tick of the segment that it measures."""
        return 0

    @property
    def first(self) -> Synthesizer:
        """The synthesizer of the stream's first segment."""
        return self

    def own(self, measured: R) -> Reading:
        """What passed the gate at a tick, of its own segment alone."""
        return measured

    def whole(self, tick: int, history: History[R]) -> Reading:
        """What is published as measured at a tick: over all segments, with what is still known from before."""
        return history(tick)

    # -- forecast -----------------------------------------------------------------------------------------------

    @property
    def unforeseen(self) -> str:
        """What cannot be forecast of published rows, and why; empty if all can be."""
        return ""

    def simulations(self, expected: Expected) -> list[Piece]:
        """Simulations of the stream, each of which answers for some of the ticks; none where it cannot be simulated."""
        return []

    def seconds(self, expected: Expected) -> float | None:
        """Seconds to compute the release after the last of the ticks, here; ``None`` if that is not simulated."""
        return None
