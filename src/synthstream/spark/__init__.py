"""Counting on Spark: executors encode and count, the driver alone adds noise, commits and publishes.

It takes ``pip install 'synthstream[spark]'`` and Java 17, and this package in the same version on every executor.

Only exact counts leave the executors, merged on the way: never a row. They are private all the same, and so is what
Spark keeps: its checkpoint, its shuffle files, its event log, its user interface. See docs/limits.md.
"""

from synthstream.spark.attaching import Attached, attach
from synthstream.spark.counting import count, ingest
from synthstream.spark.drawing import rows
from synthstream.spark.sessions import session

__all__ = ["Attached", "attach", "count", "ingest", "rows", "session"]
