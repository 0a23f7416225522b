"""Nobody is ever told that the database is locked."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_readers_and_commanders_never_meet_an_error_of_the_driver() -> None:
    """In a process of its own, which has one thread and may fork."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.store.locks", "--seconds", "3", "--processes", "8"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "chain intact, integrity ok" in told.stdout
