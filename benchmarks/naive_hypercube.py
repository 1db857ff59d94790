"""Algorithms 1 to 3 of He, Vershynin and Zhu, line by line: one point, one node, one comparison at a time.

NOT PRIVATE: ordinary random numbers. It is what ``synthstream.papers.hypercube`` is compared with: in law by the tests,
in time by ``benchmarks.hypercube``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

# Random numbers are drawn in vectors of this length, and handed out one by one.
_DRAWS = 1024


class Noise:
    """Discrete Laplace noise: the difference of two geometric variables."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._streams: dict[float, Iterator[int]] = {}

    def laplace(self, scale: float) -> int:
        """One draw."""
        if scale not in self._streams:
            self._streams[scale] = self._stream(scale)
        return next(self._streams[scale])

    def _stream(self, scale: float) -> Iterator[int]:
        stops = -math.expm1(-1 / scale)
        while True:
            yield from (self._random.geometric(stops, _DRAWS) - self._random.geometric(stops, _DRAWS)).tolist()


class BinaryMechanism:
    """Chan, Shi, Song 2011, Algorithm 2: running sums over at most ``horizon`` ticks."""

    def __init__(self, epsilon: float, horizon: int, noise: Noise) -> None:
        self._rows = horizon.bit_length()
        self._scale, self._noise, self._tick = self._rows / epsilon, noise, 0
        self._exact, self._noisy = [0] * self._rows, [0] * self._rows

    def add(self, count: int) -> int:
        """The noisy running sum after one more tick."""
        self._tick += 1
        row = (self._tick & -self._tick).bit_length() - 1
        self._exact[row] = sum(self._exact[:row]) + count
        for shorter in range(row):
            self._exact[shorter] = self._noisy[shorter] = 0
        self._noisy[row] = self._exact[row] + self._noise.laplace(self._scale)
        return sum(self._noisy[i] for i in range(self._rows) if self._tick >> i & 1)


@dataclass
class SparseCounting:
    """Algorithm 2. At most ``horizon`` segments are ended, for so many does the binary mechanism serve."""

    horizon: int
    epsilon: float
    noise: Noise
    factor: float = 9.0
    output: int = 0
    step: int = 0
    fired: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counting = BinaryMechanism(self.epsilon / 2, self.horizon, self.noise)
        self._start_segment()

    def _start_segment(self) -> None:
        self.count = 0
        self.threshold = self.factor * math.log(self.horizon) / self.epsilon + self.noise.laplace(2 / self.epsilon)

    def add(self, arrivals: int) -> int:
        """One time step: comparisons until one passes, then what arrives."""
        while len(self.fired) < self.horizon:
            if self.count + self.noise.laplace(2 / self.epsilon) <= self.threshold:
                break
            self.fired.append(self.step)
            self.output = self.counting.add(self.count)
            self._start_segment()
        self.step += 1
        self.count += arrivals
        return self.output


@dataclass
class NaiveHypercube:
    """Algorithm 1 with Algorithm 3 in every node, for points that arrive one by one."""

    dimension: int
    depth: int
    epsilon: float
    noise: Noise
    factor: float = 9.0
    time: int = 0
    level: int = -1
    settled: dict[tuple[int, int], int] = field(default_factory=dict)
    counters: dict[tuple[int, int], SparseCounting] = field(default_factory=dict)
    came: dict[tuple[int, int], int] = field(default_factory=dict)
    past: list[tuple[int, list[int]]] = field(default_factory=list)

    def share(self, node_level: int, level: int) -> float:
        """Equations (4.1) and (5.1)."""
        if self.dimension == 1:
            return 3 / math.pi**2 * self.epsilon / (node_level + 1) ** 2
        exponent = (1 - 1 / self.dimension) / 2
        return (1 - 2**-exponent) / 2 * self.epsilon * 2 ** ((node_level - level) * exponent)

    def start(self, level: int) -> int:
        """First time of a level."""
        return math.ceil(2.0**level / self.epsilon)

    def enter(self, level: int) -> None:
        """Close the level of time before, and begin another with its new nodes."""
        for node in self.settled:
            self.settled[node] += self.came[node] + self.noise.laplace(2 / self.share(node[0], self.level))
        for j in range(1, min(level, self.depth) + 1):
            for theta in range(2**j):
                if (j, theta) not in self.settled:
                    self.settled[j, theta] = self._first(j, theta)
        self.level = level
        steps = self.start(level + 1) - self.start(level)
        for node in self.settled:
            epsilon = self.share(node[0], level) / 2
            self.counters[node] = SparseCounting(steps, epsilon, self.noise, self.factor)
            self.came[node] = 0
        if self.dimension == 1:
            self.past.append((level, []))

    def _first(self, j: int, theta: int) -> int:
        """What a new node starts from: in one dimension, all levels of time before, each with its closing noise."""
        total = 0
        for level, cells in self.past:
            total += sum(cell >> (self.depth - j) == theta for cell in cells)
            total += self.noise.laplace(2 / self.share(j, level))
        return total

    def add(self, cell: int) -> list[list[int]]:
        """One point; the noisy counts of all nodes that exist, level by level from 1 on."""
        self.time += 1
        level = self.level
        while self.start(level + 1) <= self.time:
            level += 1
        if level < 0:
            return []
        if level > self.level:
            self.enter(level)
        for (j, theta), counter in self.counters.items():
            arrives = int(cell >> (self.depth - j) == theta)
            counter.add(arrives)
            self.came[j, theta] += arrives
        if self.past:
            self.past[-1][1].append(cell)
        deepest = max((j for j, _ in self.settled), default=0)
        return [
            [self.settled[j, theta] + self.counters[j, theta].output for theta in range(2**j)]
            for j in range(1, deepest + 1)
        ]
