import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cpu_device import CpuDevice
from gpu_twins import devices

from sharpi.config import RunConfig
from sharpi.device.device import Device
from sharpi.device.gpu import open_gpu
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.errors import DeviceError

Load = Callable[..., Engine]


@pytest.fixture(scope="session", params=devices())
def device(request: pytest.FixtureRequest) -> Device:
    """Runs every test on the CPU with all checks, and on a GPU if there is one."""
    return CpuDevice(check=True) if request.param == "cpu" else request.getfixturevalue("gpu")


@pytest.fixture(scope="session")
def gpu() -> Iterator[Device]:
    """Returns the first GPU; without one, or its packages, the test is skipped and counted."""
    try:
        yield open_gpu()
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture
def load(device: Device) -> Iterator[Load]:
    """Loads engines that compute on the device; RunConfig's fields are keywords."""
    engines: list[Engine] = []

    def load_one(model: Path, **options: Any) -> Engine:
        config = RunConfig(model=model, **({"device": "cuda"} | options))
        engines.append(load_engine(config, open_device=lambda _: device))
        return engines[-1]

    yield load_one
    for engine in engines:
        engine.close()
