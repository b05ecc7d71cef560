"""For all tests: property tests draw anew on a developer's machine and always the same on CI, and no test is timed."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("explore"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "explore")
