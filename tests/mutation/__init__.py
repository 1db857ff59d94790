"""Mutants: the code that bounds what is spent, with one small fault each. The tests must tell every one of them.

Not part of ``make test``: ``make mutation``, or ``python -m tests.mutation``. What is mutated, and which tests must
see it, stands in ``modules.py``; mutants that no test can see stand in ``survivors.toml``, each with its reason.
"""
