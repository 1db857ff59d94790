"""PRIVATE at rest. One SQLite file with its journal, seals and sums: all of a step is written, or nothing.

It sees exact counts. It imports the vocabulary and the gate's contract.
"""
