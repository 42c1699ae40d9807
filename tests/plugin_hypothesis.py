"""Hypothesis profiles, loaded by `-p` in pyproject.toml before any test module is imported.

No deadline (a slow machine is not a fault) and, by default, no chance: the same examples on every run.
`ORACLE_HYPOTHESIS_PROFILE=search` looks for new counterexamples. Fixtures and strategies do not belong here.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("ORACLE_HYPOTHESIS_PROFILE", "repeatable"))
