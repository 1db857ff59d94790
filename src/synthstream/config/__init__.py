"""``stream.toml`` becomes one frozen, checked configuration; its messages name line, key and fix.

It sees no data. It imports the vocabulary and ``schema``.
"""
