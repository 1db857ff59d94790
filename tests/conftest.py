"""Hypothesis tries the same examples in every run of the tests.

So a run fails by what was changed, never by chance: not by an example that nobody met before, nor by a slow machine.
To look for new ones: ``pytest --hypothesis-profile explore``.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow]
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("explore", deadline=None, suppress_health_check=_SLOW)
settings.load_profile("same")
