import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cpu_device import CpuDevice

from sharpi.device.card import open_card
from sharpi.device.device import Device
from sharpi.errors import DeviceError


@pytest.fixture(scope="session", params=["cpu", pytest.param("card", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Every test runs on the CPU with all checks, and on a card where there is one."""
    return CpuDevice(check=True) if request.param == "cpu" else request.getfixturevalue("card")


@pytest.fixture(scope="session")
def card() -> Iterator[Device]:
    """The first card; without one, or what it needs, the test is skipped and counted."""
    try:
        yield open_card()
    except DeviceError as error:
        pytest.skip(str(error))
