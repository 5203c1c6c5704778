"""HardwareReport: the facts about a machine that `sharpi doctor` finds and measures."""

import mmap
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec import Struct

from sharpi.errors import SharpiError, UsageError
from sharpi.hardware.info import GpuDriver, has_gpu, probe_gpus, usable_cores
from sharpi.hardware.memory import MemoryInfo, cpu_quota, probe_memory
from sharpi.hardware.rates import measure_disk, measure_ram_read
from sharpi.hardware.topology import read_topology
from sharpi.ops.cpu.library import INSTRUCTION_SETS, better_instruction_sets, instruction_set

# Packages imported for one purpose only, under the names that pip installs them by.
_OPTIONAL_PACKAGES = {
    "torch": ("torch",),
    "cupy": ("cupy", "cupy-cuda12x", "cupy-cuda13x"),
    "starlette": ("starlette",),
    "uvicorn": ("uvicorn",),
    "prometheus-client": ("prometheus-client",),
    "huggingface_hub": ("huggingface_hub",),
    "llguidance": ("llguidance",),
    "matplotlib": ("matplotlib",),
}
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


class DiskReport(Struct, frozen=True):
    """The free space and the read rate of the disk of a folder or file."""

    path: str
    free_bytes: int
    bytes_per_second: float | None
    is_direct: bool | None  # whether the reads bypassed the page cache
    fault: str | None  # the reason if the rate could not be measured


class HardwareReport(Struct, frozen=True):
    """The facts about a machine; rates are in bytes per second, None if they are unknown."""

    physical_cores: int
    logical_cores: int
    instruction_sets: tuple[str, ...]  # those that this machine runs, the one in use first
    # faster ones, each with the CPU features that this machine lacks
    better_instruction_sets: dict[str, list[str]]
    kernels_fault: str | None  # the reason if the native library does not work
    memory: MemoryInfo
    page_size: int
    transparent_huge_pages: str | None  # always, madvise, never; None if the kernel has none
    ram_read_bytes_per_second: float | None
    disk: DiskReport
    has_gpu: bool  # an NVIDIA device is plugged in, with or without a driver
    gpu_driver: GpuDriver | None
    packages: dict[str, str | None]  # versions of optional packages
    performance_cores: int = 0  # physical ones; all cores if they are alike
    numa_nodes: int = 1
    cpu_quota: int | None = None  # cores, which bound the default number of threads


def examine(path: Path) -> HardwareReport:
    """Returns the report on the machine and the disk of `path`; raises UsageError without it."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder; name one whose disk is to be measured")
    topology = read_topology(usable_cores())
    num_cores = topology.num_physical
    fault = _kernels_fault()
    return HardwareReport(
        physical_cores=num_cores,
        logical_cores=len(topology.cores),
        performance_cores=topology.num_performance,
        numa_nodes=len(topology.nodes),
        cpu_quota=cpu_quota(),
        instruction_sets=() if fault else tuple(filter(_runs, INSTRUCTION_SETS)),
        better_instruction_sets={} if fault else better_instruction_sets(),
        kernels_fault=fault,
        memory=probe_memory(),
        page_size=mmap.PAGESIZE,
        transparent_huge_pages=_transparent_huge_pages(),
        ram_read_bytes_per_second=None if fault else measure_ram_read(num_cores),
        disk=_disk(path),
        has_gpu=has_gpu(),
        gpu_driver=probe_gpus(),
        packages={name: _version(names) for name, names in _OPTIONAL_PACKAGES.items()},
    )


def _kernels_fault() -> str | None:
    try:
        instruction_set()
    except SharpiError as error:
        return str(error)
    return None


def _runs(name: str) -> bool:
    try:
        return bool(instruction_set(name))
    except UsageError:
        return False


def _disk(path: Path) -> DiskReport:
    free = shutil.disk_usage(path).free
    try:
        rate = measure_disk(path)
    except UsageError as error:
        return DiskReport(str(path), free, None, None, str(error))
    return DiskReport(str(path), free, rate.bytes_per_second, rate.is_direct, None)


def _transparent_huge_pages() -> str | None:
    """Returns the kernel's active setting, such as `madvise`; None if the file cannot be read."""
    try:
        text = _HUGE_PAGES.read_text()
    except OSError:
        return None
    return text.partition("[")[2].partition("]")[0] or None


def _version(names: tuple[str, ...]) -> str | None:
    """Returns the version of the first installed package, without an import; None without any."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
