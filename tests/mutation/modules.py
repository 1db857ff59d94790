"""What is mutated, and which tests must tell every mutant of it: the quickest first."""

from __future__ import annotations

_COUNTERS = (
    "tests/kernel/test_counter_numbers.py",
    "tests/kernel/test_counters.py",
    "tests/kernel/test_marginals.py",
    "tests/kernel/test_participation.py",
)
_STRATEGIES = "tests/kernel/test_strategies.py"
_TABLES = (_STRATEGIES, "tests/kernel/test_marginals.py", "tests/kernel/test_refreshed.py")
# Tests that plant bugs of their own tell no others.
_EPOCHS = (_STRATEGIES, "tests/kernel/test_epochs.py", "tests/kernel/test_parts.py", "-k", "not bug")
_POINTS = ("tests/kernel/test_points.py", "tests/kernel/test_turnstile.py", "-k", "not bug")
_PRIVACY = ("tests/vocabulary/test_privacy_edges.py", "tests/vocabulary/test_privacy.py")
_PERSONS = ("tests/ingest/test_contributions.py", "tests/stream/test_persons.py")


def _of(counter: str) -> tuple[str, ...]:
    """The tests of counters: those that bear their names."""
    return (*_COUNTERS, "-k", f"{counter} or src")


# Paths below src/synthstream, and what pytest is asked for. All of the kernel that bounds what is spent.
MODULES: dict[str, tuple[str, ...]] = {
    "kernel/gate.py": ("tests/kernel/test_gate.py", "tests/kernel/test_choosing.py"),
    "kernel/choosing.py": ("tests/kernel/test_choosing.py",),
    "kernel/spending.py": ("tests/kernel/test_participation.py", *_TABLES, "tests/kernel/test_ledger.py"),
    "kernel/tables.py": _TABLES,
    "kernel/epochs.py": _EPOCHS,
    "kernel/points.py": _POINTS,
    "kernel/turnstile.py": ("tests/kernel/test_turnstile.py", "-k", "not bug"),
    **{
        f"kernel/counters/{name}.py": _COUNTERS
        for name in ("__init__", "base", "matrix", "simple", "toeplitz", "dense")
    },
    "kernel/leaky.py": _of("blt"),
    "kernel/counters/kary.py": (_STRATEGIES, *_of("kary or arity")),
    **{f"kernel/counters/{name}.py": _of(name) for name in ("blt", "restarted")},
    "papers/counters/spans.py": _of("block or binary or hybrid"),
    "papers/counters/nodes.py": _COUNTERS,
    "papers/counters/sparse.py": ("tests/papers/test_hypercube.py",),
    "privacy.py": _PRIVACY,
    "accounting/zcdp.py": _PRIVACY,
    "accounting/gaussian.py": ("tests/accounting/test_gaussian.py", "tests/kernel/test_exact_noise.py"),
    "accounting/powers.py": ("tests/accounting/test_powers.py",),
    "ingest/bounding.py": _PERSONS,
    "ingest/persons.py": _PERSONS,
}
