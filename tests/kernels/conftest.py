import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arm_driver import build_driver, missing_tools
from emulator import PROCESSORS, EmulatedLibrary, SharedMemory
from kernel_library import ISAS, has_isa


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    """The name of each instruction set this machine has."""
    name: str = request.param
    if not has_isa(name):
        pytest.skip(f"this machine has no {name}")
    return name


@pytest.fixture(scope="session")
def emulated_processors() -> Iterator[dict[str, EmulatedLibrary]]:
    """The library built for ARM, on each emulated processor."""
    if missing := missing_tools():
        pytest.skip(f"no {' and no '.join(missing)}: install g++-aarch64-linux-gnu and qemu-user")
    driver, memory = build_driver(), SharedMemory()
    started = {name: EmulatedLibrary(driver, name, memory) for name in PROCESSORS}
    yield started
    for library in started.values():
        library.close()


@pytest.fixture(params=PROCESSORS)
def arm(
    request: pytest.FixtureRequest, emulated_processors: dict[str, EmulatedLibrary]
) -> EmulatedLibrary:
    """The library on one emulated processor, with dot products or without."""
    return emulated_processors[request.param]
