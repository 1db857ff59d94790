"""Counting, a step, a commit, publication: the stream, how it is opened, followed, verified and recovered.

It holds private counts between ``ingest`` and ``kernel``. It imports all rooms above.
"""
