"""Nothing here is a test: the tester of tests is run by hand, with an extra of its own (``make mutation``)."""

from __future__ import annotations

collect_ignore_glob = ["*.py"]
