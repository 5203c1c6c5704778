"""HardwareInfo: the machine's cores, memory and instruction set, probed at the start."""

import os
from pathlib import Path

from msgspec import Struct

from sharpi.hardware.gpu import probe_gpus
from sharpi.hardware.memory import probe_memory
from sharpi.hardware.topology import SYSTEM, Topology, read_topology
from sharpi.ops.cpu.library import instruction_set


class Rates(Struct, frozen=True):
    """The measured rates of memory, disk and bus, in bytes per second; None if not measured."""

    ram_read: float | None = None
    disk_read: float | None = None
    vram_read: float | None = None
    bus: float | None = None


class HardwareInfo(Struct, frozen=True):
    """The machine's resources; sizes in bytes."""

    physical_cores: int  # cores that this process may use
    logical_cores: int
    total_ram: int
    free_ram: int  # bytes that can be allocated, within the memory cgroup's limit
    instruction_set: str
    ram_limit: int | None = None  # the memory cgroup's limit
    free_vram: int = 0  # of the first GPU; 0 without one, or if not probed
    free_vrams: tuple[int, ...] = ()  # of each GPU, if there are several
    vram_rates: tuple[float, ...] = ()  # bytes per second that each GPU reads, if measured
    rates: Rates = Rates()
    topology: Topology = Topology(())

    @property
    def fast_cores(self) -> int:
        """The number of physical performance cores; all physical cores if they are alike."""
        return self.topology.num_performance or self.physical_cores


def probe_hardware(
    wanted_instruction_set: str | None = None, *, with_gpu: bool = False, system: Path = SYSTEM
) -> HardwareInfo:
    """Returns the machine's resources; raises UsageError if it lacks the wanted instruction set.

    Without `with_gpu`, the GPUs are not probed, because that takes a while. `system` is the mount
    point of sysfs.
    """
    memory, vrams = probe_memory(), _free_vrams() if with_gpu else ()
    topology = read_topology(usable_cores(), system)
    return HardwareInfo(
        physical_cores=topology.num_physical,
        logical_cores=len(topology.cores),
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
