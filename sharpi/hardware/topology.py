"""The machine's cores, and which of them each thread of a pool may run on.

Linux tells which cores are hyper-threads of one core, their NUMA nodes, caches and speeds. Threads
get fast cores first, grouped by shared cache. If all cores are alike, the system places the
threads, because a thread that is bound to a core has to wait for everything else that runs there.
"""

from collections.abc import Collection
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

SYSTEM = Path("/sys")
# A core with at least this fraction of the fastest one's capacity is a performance core. Favoured
# cores of one kind differ by a tenth; an efficiency core has about half.
PERFORMANCE_SHARE = 0.75


class Core(Struct, frozen=True):
    """A logical core. Logical cores with the same `physical` id are hyper-threads of one core.

    `capacity` is relative to the fastest core, above 0 and at most 1. Cores with the same `cache`
    id share the last level of cache.
    """

    number: int
    physical: tuple[int, int]
    node: int = 0
    cache: str = ""
    capacity: float = 1.0


class Topology(Struct, frozen=True):
    """The logical cores that this process may use, in order of their numbers."""

    cores: tuple[Core, ...]

    @property
    def num_physical(self) -> int:
        return len({core.physical for core in self.cores})

    @property
    def performance(self) -> tuple[Core, ...]:
        """The logical cores of the fastest kind; all cores if they are alike."""
        return tuple(core for core in self.cores if core.capacity >= PERFORMANCE_SHARE)

    @property
    def num_performance(self) -> int:
        """The number of physical performance cores."""
        return len({core.physical for core in self.performance})

    @property
    def is_hybrid(self) -> bool:
        return len(self.performance) < len(self.cores)

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({core.node for core in self.cores}))


def read_topology(usable: Collection[int], system: Path = SYSTEM) -> Topology:
    """Reads the topology of usable cores from sysfs; missing values are alike for all cores."""
    cpus, numbers = system / "devices/system/cpu", sorted(usable)
    capacities = _capacities(system, numbers)
    nodes = _nodes(system / "devices/system/node")
    return Topology(
        tuple(
            Core(
                number,
                _physical(cpus / f"cpu{number}", number),
                nodes.get(number, 0),
                _last_cache(cpus / f"cpu{number}/cache"),
                capacity,
            )
            for number, capacity in zip(numbers, capacities, strict=True)
        )
    )


def parse_cpu_list(text: str) -> set[int]:
    """Returns the numbers in one of the kernel's lists, such as "0-3,8"."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _physical(cpu: Path, number: int) -> tuple[int, int]:
    package = _number(cpu / "topology/physical_package_id")
    core = _number(cpu / "topology/core_id")
    return (-1, number) if package is None or core is None else (package, core)


def _nodes(folder: Path) -> dict[int, int]:
    """Returns a dict from the number of each logical core to the number of its NUMA node."""
    return {
        cpu: int(node.name.removeprefix("node"))
        for node in folder.glob("node[0-9]*")
        for cpu in parse_cpu_list(_text(node / "cpulist"))
    }


def _last_cache(folder: Path) -> str:
    """Returns the kernel's list of cores that share the last level of cache; it is its name."""
    levels = sorted(folder.glob("index[0-9]*"), key=lambda path: int(path.name[5:]))
    return _text(levels[-1] / "shared_cpu_list") if levels else ""


def _capacities(system: Path, numbers: list[int]) -> list[float]:
    """Returns each core's relative speed, from the first file that has it for all cores, else 1."""
    cpus = system / "devices/system/cpu"
    efficient = parse_cpu_list(_text(system / "devices/cpu_atom/cpus"))
    if not efficient.isdisjoint(numbers):
        return _relative([0.5 if number in efficient else 1.0 for number in numbers])
    for name in ("cpu_capacity", "acpi_cppc/highest_perf", "cpufreq/cpuinfo_max_freq"):
        values = [_number(cpus / f"cpu{number}" / name) for number in numbers]
        if all(values):
            return _relative([float(value or 0) for value in values])
    return [1.0] * len(numbers)


def _relative(values: list[float]) -> list[float]:
    most = max(values, default=1.0)
    return [value / most for value in values]


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


GROUP_THREADS = 8  # the most threads of a group; a barrier synchronises the group first


class ThreadPlace(Struct, frozen=True):
    """The cores that one thread may run on; an empty `cores` means all cores.

    `group` is the number, from 0, of a group of threads that share a cache. `speed` is relative to
    the fastest core.
    """

    cores: tuple[int, ...] = ()
    node: int = 0
    group: int = 0
    speed: float = 1.0


def place_threads(topology: Topology, num_threads: int) -> tuple[ThreadPlace, ...]:
    """Returns the place of each thread of a pool; the first thread is the caller's."""
    chosen = _one_per_physical(topology)[:num_threads]
    if len(chosen) < num_threads or not chosen:
        return _grouped([ThreadPlace() for _ in range(num_threads)], [""] * num_threads)
    chosen.sort(key=lambda core: (core.node, core.cache, core.number))
    nodes = {core.node for core in chosen}
    places = [
        ThreadPlace(
            cores=_allowed(topology, core, len(nodes) > 1, chosen),
            node=core.node,
            speed=core.capacity,
        )
        for core in chosen
    ]
    return _grouped(places, [f"{core.node} {core.cache}" for core in chosen])


def _one_per_physical(topology: Topology) -> list[Core]:
    """Returns one logical core for each physical core, fastest first, alternating NUMA nodes."""
    seen: dict[tuple[int, int], Core] = {}
    for core in topology.cores:
        seen.setdefault(core.physical, core)
    cores = sorted(seen.values(), key=lambda core: (core.node, -core.capacity, core.number))
    ranked = [
        (-core.capacity, rank, core.node, core)
        for _, group in groupby(cores, key=lambda core: core.node)
        for rank, core in enumerate(group)
    ]
    return [core for *_, core in sorted(ranked, key=lambda entry: entry[:3])]


def _allowed(topology: Topology, core: Core, by_node: bool, chosen: list[Core]) -> tuple[int, ...]:
    """Returns the cores for a thread, of its node or of the fast kind; empty for all cores."""
    only_fast = topology.is_hybrid and all(c in topology.performance for c in chosen)
    if not by_node and not only_fast:
        return ()
    kind = topology.performance if only_fast else topology.cores
    return tuple(c.number for c in kind if not by_node or c.node == core.node)


def _grouped(places: list[ThreadPlace], caches: list[str]) -> tuple[ThreadPlace, ...]:
    """Numbers the groups: at most GROUP_THREADS adjacent threads that share a cache."""
    placed: list[ThreadPlace] = []
    group, first = -1, 0
    for i, place in enumerate(places):
        if i == 0 or caches[i] != caches[i - 1] or i - first == GROUP_THREADS:
            group, first = group + 1, i
        placed.append(replace(place, group=group))
    return tuple(placed)
