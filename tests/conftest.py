"""Profiles of Hypothesis: quick in every run of the suite, thorough with HYPOTHESIS_PROFILE=nightly."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    max_examples=150,
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    settings.get_profile("default"),
    max_examples=5_000,
    stateful_step_count=100,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
