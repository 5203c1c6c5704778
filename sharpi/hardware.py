"""HardwareInfo: what the machine has. Probed once, never guessed at by others."""

import os
from dataclasses import dataclass
from pathlib import Path

from sharpi.ops.library import instruction_set


@dataclass(frozen=True, slots=True)
class HardwareInfo:
    """`physical_cores` counts those this process may use; `total_ram` and `free_ram` in bytes."""

    physical_cores: int
    logical_cores: int
    total_ram: int
    free_ram: int
    instruction_set: str


def probe_hardware(wanted_instruction_set: str | None = None) -> HardwareInfo:
    """Looks at the machine; raises UsageError when it lacks the wanted instruction set."""
    memory = _memory_info()
    usable = _usable_cores()
    return HardwareInfo(
        physical_cores=_physical_cores(usable),
        logical_cores=len(usable),
        total_ram=memory.get("MemTotal", 0),
        free_ram=memory.get("MemAvailable", 0),
        instruction_set=instruction_set(wanted_instruction_set),
    )


def _usable_cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _physical_cores(usable: set[int]) -> int:
    """Cores among the usable logical ones: hyperthreads of one core share its topology ids."""
    cores = set()
    for cpu in usable:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            package = (topology / "physical_package_id").read_text()
            cores.add((package, (topology / "core_id").read_text()))
        except OSError:
            cores.add(("", str(cpu)))
    return max(1, len(cores))


def _memory_info() -> dict[str, int]:
    """Bytes by name from /proc/meminfo; empty where there is none."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {f[0].rstrip(":"): int(f[1]) * 1024 for f in fields if len(f) == 3}
