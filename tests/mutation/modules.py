"""What is mutated, and which tests must tell every mutant of it: the quickest first."""

from __future__ import annotations

_COUNTERS = ("tests/unit/test_counters.py", "tests/unit/test_marginals.py", "tests/unit/test_participation.py")
_PERSONS = ("tests/unit/test_contributions.py", "tests/unit/test_persons.py")

MODULES: dict[str, tuple[str, ...]] = {
    "kernel/gate.py": ("tests/unit/test_gate.py", "tests/unit/test_choosing.py"),
    "privacy.py": ("tests/unit/test_privacy_edges.py", "tests/unit/test_privacy.py"),
    "kernel/marginals.py": ("tests/unit/test_marginals.py",),
    **{
        f"kernel/counters/{name}.py": _COUNTERS
        for name in (
            "__init__", "base", "fixed", "simple", "kary", "toeplitz", "blt", "restarted", "block", "binary", "hybrid",
            "nodes",
        )
    },
    "contributions.py": _PERSONS,
    "io/contributions.py": _PERSONS,
    "kernel/participation.py": ("tests/unit/test_participation.py",),
    "kernel/counters/sparse.py": ("tests/unit/test_hypercube.py",),
}  # fmt: skip
