"""HardwareInfo: the machine's cores, memory, instruction set and GPUs, probed at the start.

NVIDIA's management library (NVML) lists the GPUs without initialising CUDA.
"""

import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any

from msgspec import Struct

from sharpi.hardware.memory import cpu_quota, probe_memory
from sharpi.hardware.topology import SYSTEM, Topology, read_topology
from sharpi.ops.cpu.library import instruction_set

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
    """Returns the driver and its GPUs; None if NVML, which `load` opens, does not work."""
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


class Rates(Struct, frozen=True):
    """The measured rates of memory, disk and bus, in bytes per second; None if not measured."""

    ram_read: float | None = None  # by the CPU's matrix kernels
    disk_read: float | None = None  # with several reads in flight
    lone_read: float | None = None  # of a disk, with one read in flight
    vram_read: float | None = None
    bus: float | None = None


class HardwareInfo(Struct, frozen=True):
    """The machine's resources; sizes in bytes."""

    physical_cores: int  # cores that this process may use, within its CPU quota
    logical_cores: int  # also within the quota
    total_ram: int
    free_ram: int  # bytes that can be allocated, within the memory cgroup's limit
    instruction_set: str
    ram_limit: int | None = None  # the memory cgroup's limit
    limits_ram: bool = False  # a model is to run now: no more than the free RAM can be asked for
    free_vram: int = 0  # of the first GPU; 0 without one, or if not probed
    free_vrams: tuple[int, ...] = ()  # of each GPU, if there are several
    vram_rates: tuple[float, ...] = ()  # bytes per second that each GPU reads, if measured
    rates: Rates = Rates()
    topology: Topology = Topology(())

    @property
    def fast_cores(self) -> int:
        """The number of physical performance cores; all physical cores if they are alike."""
        return min(self.topology.num_performance or self.physical_cores, self.physical_cores)


def probe_hardware(
    wanted_instruction_set: str | None = None, *, with_gpu: bool = False, system: Path = SYSTEM
) -> HardwareInfo:
    """Returns the machine's resources; raises UsageError if it lacks the wanted instruction set.

    Without `with_gpu`, the GPUs are not probed, because that takes a while. `system` is the mount
    point of sysfs.
    """
    memory, vrams = probe_memory(), _free_vrams() if with_gpu else ()
    topology = read_topology(usable_cores(), system)
    most = cpu_quota() or len(topology.cores)
    return HardwareInfo(
        physical_cores=min(topology.num_physical, most),
        logical_cores=min(len(topology.cores), most),
        total_ram=memory.total,
        free_ram=memory.free,
        instruction_set=instruction_set(wanted_instruction_set),
        ram_limit=memory.limit,
        free_vram=vrams[0] if vrams else 0,
        free_vrams=vrams,
        topology=topology,
    )


def _free_vrams() -> tuple[int, ...]:
    driver = probe_gpus()
    return () if driver is None else tuple(gpu.free_vram for gpu in driver.gpus)


def usable_cores() -> set[int]:
    """Returns the numbers of the logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))
