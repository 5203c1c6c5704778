"""Chooses the cores of the thread pool's threads: fast cores first, and grouped by shared cache.

If all cores are alike, the operating system places the threads, because a thread that is bound to a
core has to wait for everything else that runs there.
"""

from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from sharpi.hardware.topology import Core, Topology

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
    """Returns the numbers of the cores that a thread may use; empty for all cores.

    With `by_node`, only cores of the NUMA node of `core`. If the cores `chosen` for all threads are
    performance cores, only performance cores.
    """
    only_fast = topology.is_hybrid and all(c in topology.performance for c in chosen)
    if not by_node and not only_fast:
        return ()
    kind = topology.performance if only_fast else topology.cores
    return tuple(c.number for c in kind if not by_node or c.node == core.node)


def _grouped(places: list[ThreadPlace], caches: list[str]) -> tuple[ThreadPlace, ...]:
    """Returns the places with group numbers.

    A group has at most GROUP_THREADS adjacent threads with the same entry in `caches`.
    """
    placed: list[ThreadPlace] = []
    group, first = -1, 0
    for i, place in enumerate(places):
        if i == 0 or caches[i] != caches[i - 1] or i - first == GROUP_THREADS:
            group, first = group + 1, i
        placed.append(replace(place, group=group))
    return tuple(placed)
