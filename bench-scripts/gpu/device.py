"""Chooses the device of a GPU script: the GPU, or for dry runs the tests' emulation on the CPU."""

import sys
from collections.abc import Callable
from pathlib import Path

from sharpi.device.device import Device
from sharpi.device.gpu import open_gpu
from sharpi.ops.cuda import gpu_limits as gpu_limits

TESTS = Path(__file__).resolve().parents[2] / "tests"


def device_opener(is_dry: bool) -> Callable[[int], Device]:
    """Returns a function that opens the GPU, or the emulation on the CPU if `is_dry`.

    The emulation also reduces the bytes and tries with which rates are measured.
    """
    return _open_cpu if is_dry else open_gpu


def _open_cpu(index: int = 0) -> Device:
    add_tests("cuda")
    from cpu_device import CpuDevice

    gpu_limits.BYTES_A_TRY, gpu_limits.BUS_BYTES_A_TRY = 1 << 18, 1 << 16
    gpu_limits.READS_OF_A_TRY = gpu_limits.TRIES = 1
    device: Device = CpuDevice(check=False)
    return device


def add_tests(folder: str) -> None:
    """Adds a folder of the tests, and the tests' root folder, to the import path."""
    for path in (str(TESTS / folder), str(TESTS)):
        if path not in sys.path:
            sys.path.append(path)
