"""Lists NVIDIA GPUs by the driver's management library (NVML), without initialising CUDA."""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any

from msgspec import Struct

_LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"  # PCI vendor id


class Gpu(Struct, frozen=True):
    """One GPU; sizes in bytes."""

    name: str
    total_vram: int
    free_vram: int
    compute_capability: str  # for instance "9.0"


class GpuDriver(Struct, frozen=True):
    """The version of the NVIDIA driver, and the GPUs that it reports."""

    version: str
    cuda_version: str  # the newest CUDA version that it runs
    gpus: tuple[Gpu, ...]


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


def has_gpu(devices: Path = _PCI_DEVICES) -> bool:
    """Returns True if an NVIDIA device is on the PCI bus, with or without a driver."""
    return any(path.read_text().strip() == _NVIDIA for path in devices.glob("*/vendor"))


def probe_gpus(load: Callable[[str], Any] = ctypes.CDLL) -> GpuDriver | None:
    """Returns the driver and its GPUs; None if NVML is missing or cannot be initialised.

    `load` opens the library by its name.
    """
    try:
        library = load(_LIBRARY)
    except OSError:
        return None
    if library.nvmlInit_v2():
        return None
    try:
        return _driver(library)
    finally:
        library.nvmlShutdown()


def _driver(library: Any) -> GpuDriver:
    count, cuda = c_uint(), c_int()
    library.nvmlDeviceGetCount_v2(byref(count))
    library.nvmlSystemGetCudaDriverVersion(byref(cuda))
    return GpuDriver(
        version=_text(library.nvmlSystemGetDriverVersion),
        cuda_version=f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
        gpus=tuple(_gpu(library, index) for index in range(count.value)),
    )


def _gpu(library: Any, index: int) -> Gpu:
    device, memory, major, minor = c_void_p(), _Memory(), c_int(), c_int()
    library.nvmlDeviceGetHandleByIndex_v2(c_uint(index), byref(device))
    library.nvmlDeviceGetMemoryInfo(device, byref(memory))
    library.nvmlDeviceGetCudaComputeCapability(device, byref(major), byref(minor))
    return Gpu(
        name=_text(lambda *room: library.nvmlDeviceGetName(device, *room)),
        total_vram=memory.total,
        free_vram=memory.free,
        compute_capability=f"{major.value}.{minor.value}",
    )


def _text(call: Callable[[Any, c_uint], int]) -> str:
    """Returns the text that an NVML function writes into a buffer; `call` takes buffer and size."""
    buffer = create_string_buffer(_TEXT_BYTES)
    call(ctypes.cast(buffer, c_char_p), c_uint(_TEXT_BYTES))
    return buffer.value.decode(errors="replace")
