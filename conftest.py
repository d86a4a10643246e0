"""How all tests run: Hypothesis' profile, and the plugins of this repository importable without an installation.

Continuous integration draws the same examples each time, so that it fails for a change and never for its luck; runs by
hand explore.
"""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

settings.register_profile("multus", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("multus-ci", settings.get_profile("multus"), derandomize=True)
settings.load_profile("multus-ci" if os.environ.get("CI") else "multus")

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugins", "passthru"))
