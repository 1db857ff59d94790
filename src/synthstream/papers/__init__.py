"""The two papers, literally: their mechanisms, counters, models and consistency step.

It sees exact counts on their way through the gate, as ``kernel`` does. Only ``synthesizers`` and the registry of
counters import it.
"""
