import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cpu_device import CpuDevice

from sharpi.device.device import Device


@pytest.fixture(scope="session", params=["cpu", pytest.param("card", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Every test runs on the CPU with all checks, and on a card where there is one."""
    if request.param == "cpu":
        return CpuDevice(check=True)
    pytest.skip("no CUDA device")
