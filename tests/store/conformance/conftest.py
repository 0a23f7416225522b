"""Each test of the suite runs once for each driver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conformance.drivers import DRIVERS, Driver


@pytest.fixture(params=sorted(DRIVERS))
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    made = DRIVERS[request.param](tmp_path)
    yield made
    made.close()
