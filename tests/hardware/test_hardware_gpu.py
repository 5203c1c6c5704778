"""GPUs through a fake management library, whose calls write into their arguments."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

from sharpi.hardware.info import Gpu, GpuDriver, has_gpu, probe_gpus

GIB = 1 << 30


class FakeNvml:
    """A fake NVML with two GPUs, with the calls that sharpi makes."""

    def __init__(self, fault: int = 0) -> None:
        self.fault, self.is_open = fault, False

    def nvmlInit_v2(self) -> int:
        self.is_open = not self.fault
        return self.fault

    def nvmlShutdown(self) -> int:
        self.is_open = False
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlSystemGetCudaDriverVersion(self, version: Any) -> int:
        version._obj.value = 12040
        return 0

    def nvmlSystemGetDriverVersion(self, buffer: Any, length: Any) -> int:
        return write(b"550.54.15", buffer, length)

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        device._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetMemoryInfo(self, device: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.free = 24 * GIB, (24 - device.value) * GIB
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, device: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 8, device.value
        return 0

    def nvmlDeviceGetName(self, device: Any, buffer: Any, length: Any) -> int:
        return write(b"GPU %d" % device.value, buffer, length)


def write(text: bytes, buffer: Any, length: Any) -> int:
    assert len(text) < length.value
    ctypes.memmove(buffer, text + b"\0", len(text) + 1)
    return 0


def test_gpus() -> None:
    library = FakeNvml()
    assert probe_gpus(lambda name: library) == GpuDriver(
        version="550.54.15",
        cuda_version="12.4",
        gpus=(
            Gpu("GPU 1", 24 * GIB, 23 * GIB, "8.1"),
            Gpu("GPU 2", 24 * GIB, 22 * GIB, "8.2"),
        ),
    )
    assert not library.is_open


def test_no_driver() -> None:
    def fail(name: str) -> None:
        raise OSError(name)

    assert probe_gpus(fail) is None


def test_a_driver_that_does_not_answer() -> None:
    assert probe_gpus(lambda name: FakeNvml(fault=9)) is None


@pytest.mark.parametrize(("vendor", "expected"), [("0x10de", True), ("0x1002", False)])
def test_a_gpu_is_found_by_its_vendor(tmp_path: Path, vendor: str, expected: bool) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "vendor").write_text(vendor + "\n")
    assert has_gpu(tmp_path) is expected
    assert not has_gpu(tmp_path / "none")
