"""PRIVATE. Files, tables and topics are read, rows are counted, persons bounded, and what waits for its tick is kept.

It sees every row. It imports ``schema``, ``config`` and ``state``; how cells are counted it is handed.
"""
