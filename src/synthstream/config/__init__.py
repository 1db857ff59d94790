"""``stream.toml`` becomes one frozen, checked configuration; what is wrong is told with line, key and fix.

It sees no data. It imports the vocabulary and ``schema``.
"""
