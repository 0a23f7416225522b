"""Nothing that was acknowledged is lost to SIGKILL, at whatever moment it comes."""

import os
import subprocess
import sys

import pytest

KILLS = int(os.environ.get("KILLS", "12"))


@pytest.mark.slow
def test_what_was_acknowledged_survives_every_kill_exactly_once() -> None:
    """In a process of its own, which has one thread and may fork. `KILLS=200` makes it thorough."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.store.kill", "--kills", str(KILLS)],
        capture_output=True,
        text=True,
        timeout=120 + 10 * KILLS,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "lost 0, twice 0, torn 0, chain intact" in told.stdout
