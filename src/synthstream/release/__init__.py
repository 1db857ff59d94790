"""What is published for a tick or a window: rows, tables, comparison, conditions, notebooks.

It sees what passed the gate. It imports the vocabulary and ``schema``.
"""
