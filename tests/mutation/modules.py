"""What is mutated, and which tests must tell every mutant of it: the quickest first."""

from __future__ import annotations

_COUNTERS = ("tests/kernel/test_counters.py", "tests/kernel/test_marginals.py", "tests/kernel/test_participation.py")
_PERSONS = ("tests/ingest/test_contributions.py", "tests/stream/test_persons.py")

MODULES: dict[str, tuple[str, ...]] = {
    "kernel/gate.py": ("tests/kernel/test_gate.py", "tests/kernel/test_choosing.py"),
    "privacy.py": ("tests/vocabulary/test_privacy_edges.py", "tests/vocabulary/test_privacy.py"),
    "kernel/marginals.py": ("tests/kernel/test_marginals.py",),
    **{
        f"kernel/counters/{name}.py": _COUNTERS
        for name in (
            "__init__", "base", "fixed", "simple", "kary", "toeplitz", "blt", "restarted",
        )
    },
    **{f"papers/counters/{name}.py": _COUNTERS for name in ("block", "binary", "hybrid", "nodes")},
    "ingest/bounding.py": _PERSONS,
    "ingest/persons.py": _PERSONS,
    "kernel/participation.py": ("tests/kernel/test_participation.py",),
    "papers/counters/sparse.py": ("tests/papers/test_hypercube.py",),
}  # fmt: skip
