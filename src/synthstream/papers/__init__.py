"""The two papers, literally: their mechanisms, counters, models and consistency step.

It sees exact counts on their way through the gate, as ``kernel`` does. It imports ``kernel``, ``strategies`` and the
vocabulary. Only ``synthesizers``, the registry of counters and audits import it.
"""
