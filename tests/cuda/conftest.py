import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "compiled"))
sys.path.insert(0, str(Path(__file__).parent / "ptx"))

from check_samples import PERIOD, SAMPLES
from cpu_device import CpuDevice
from gpu_twins import devices
from ptx_device import ptx_device
from ptx_turns import devices_of, left_out

from sharpi.device.device import Device
from sharpi.device.gpu import open_gpu
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.errors import DeviceError
from sharpi.ops.cuda.replay.step_inputs import StepInputs
from sharpi.settings import RunConfig

Load = Callable[..., Engine]
# Where tests launch the same kernels again and again.
MANY_LAUNCHES = "engine/", "expert_slots/", "launchers/experts/test_slot_policy.py"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests on a GPU where there is one, and some as PTX."""
    if "device" in metafunc.fixturenames:
        twins = devices()
        chosen = devices_of(metafunc.definition.path, metafunc.function.__name__)
        names = [*twins, *(chosen if "cpu" in twins else [])]
        metafunc.parametrize("device", names, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests as PTX whose turn it is not, as if they were not there."""
    out = set(left_out(items)) if "cpu" in devices() else set()
    items[:] = [item for item in items if item not in out]


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """Runs every test on the CPU with all checks, and on a GPU if there is one.

    For the name of an architecture, "sm_90", kernels run as the PTX that NVRTC makes of them.
    """
    if request.param.startswith("sm_"):
        return ptx_device(int(request.param.removeprefix("sm_")))
    return CpuDevice(check=True) if request.param == "cpu" else request.getfixturevalue("gpu")


@pytest.fixture(autouse=True)
def begin_samples(request: pytest.FixtureRequest) -> None:
    """Checks some launches where there are many, and all of them in the other tests."""
    launches_much = str(request.path.relative_to(Path(__file__).parent)).startswith(MANY_LAUNCHES)
    SAMPLES.begin(request.node.name, PERIOD if launches_much else 1)


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


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the number of tokens in each step whose inputs the host writes."""
    counts: list[int] = []
    write = StepInputs.write

    def counting(self: StepInputs, sequences: Any) -> None:
        counts.append(sum(len(each.ids) for each in sequences))
        write(self, sequences)

    monkeypatch.setattr(StepInputs, "write", counting)
    return counts
