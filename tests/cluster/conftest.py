"""Machines of one test, whose processes end with it."""

from collections.abc import Iterator

import pytest
from machines import Machines


@pytest.fixture
def machines() -> Iterator[Machines]:
    own = Machines()
    yield own
    own.close()
