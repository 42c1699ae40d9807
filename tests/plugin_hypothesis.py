"""Hypothesis profiles, loaded by `-p` in pyproject.toml before any test module is imported.

No deadline (a slow machine is not a fault) and, by default, no chance: the same examples on every run.
`ORACLE_HYPOTHESIS_PROFILE=search` looks for new counterexamples,
`mutants` is for `make mutants`. Fixtures and strategies do not belong here.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# A mutant is dead at the first failing example; shrinking it would only cost time.
settings.register_profile(
    "mutants", settings.get_profile("repeatable"), phases=[Phase.explicit, Phase.generate]
)
settings.register_profile(
    "search", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("ORACLE_HYPOTHESIS_PROFILE", "repeatable"))
