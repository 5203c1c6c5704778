"""Programmatic launches: what the driver is given, and what happens where it refuses."""

import ctypes
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stand_ins import Function, Gpu, install

from sharpi.device import driver as gpu_driver
from sharpi.device.cuda import CudaDevice
from sharpi.device.driver import DependentLaunchError, LaunchConfig
from sharpi.device.gpu import open_gpu
from sharpi.device.launch import Kernel, Launch

LAUNCH = Launch(
    Kernel("rms_norm", "rms_norm"), (7, 2, 1), 96, (None, np.int32(-3), np.float32(0.5)),
    frozenset(), 1000, is_dependent=True,
)  # fmt: skip


class Driver:
    """Keeps what it is given; `results` are those of the launches, then 0."""

    def __init__(self, *results: int) -> None:
        self.given: list[Any] = []
        self._results = list(results)

    def launch(self, config: Any, function: int, arguments: Any, extra: None) -> int:
        each = ctypes.cast(config, ctypes.POINTER(LaunchConfig)).contents
        attribute = each.attributes[0]
        values = (
            ctypes.c_uint64.from_address(arguments[0]).value,
            ctypes.c_int32.from_address(arguments[1]).value,
            ctypes.c_float.from_address(arguments[2]).value,
        )
        grid = tuple(each.grid), tuple(each.block), each.shared_bytes, each.stream
        self.given.append((function, grid, (attribute.id, attribute.value), values))
        return self._results.pop(0) if self._results else 0


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


def opened(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, driver: Driver) -> CudaDevice:
    install(monkeypatch, gpu)
    monkeypatch.setattr(gpu_driver, "_launch", lambda: driver.launch)
    monkeypatch.setattr(Function, "kernel", SimpleNamespace(ptr=0x99), raising=False)
    return open_gpu()


def test_sizes_are_those_of_the_driver() -> None:
    """The sizes are those in cuda.h on 64-bit systems."""
    assert ctypes.sizeof(gpu_driver.LaunchAttribute) == 72
    assert ctypes.sizeof(LaunchConfig) == 56


def test_what_the_driver_is_given(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    opened(monkeypatch, gpu, driver).launch(LAUNCH)
    grid = (7, 2, 1), (96, 1, 1), 1000, gpu.stream.ptr
    assert driver.given == [(0x99, grid, (6, 1), (0, -3, 0.5))]
    assert gpu.calls("launch") == []


def test_older_gpus_launch_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, driver = Gpu(capability="89"), Driver()
    opened(monkeypatch, gpu, driver).launch(LAUNCH)
    assert driver.given == []
    assert len(gpu.calls("launch")) == 1


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_refusal_is_passed_on(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, is_captured: bool
) -> None:
    """The caller launches again without it; a capture has ended by then."""
    device = opened(monkeypatch, gpu, Driver(801))
    launch = partial(device.launch, LAUNCH)
    with pytest.raises(DependentLaunchError, match="error 801"):
        device.record([launch]) if is_captured else launch()
    assert len(gpu.calls("begin_capture")) == len(gpu.calls("end_capture")) == is_captured
