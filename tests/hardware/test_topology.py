"""The topology of processors that this machine is not, from folders written like sysfs."""

from pathlib import Path

import pytest

from sharpi.hardware.info import probe_hardware
from sharpi.hardware.topology import Topology, parse_cpu_list, place_threads, read_topology


class Sysfs:
    """A folder with the files of sysfs that the topology is read from."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> None:
        target = self.root / "devices" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")

    def core(self, number: int, core: int, package: int = 0, cache: str = "") -> None:
        cpu = f"system/cpu/cpu{number}"
        self.write(f"{cpu}/topology/physical_package_id", package)
        self.write(f"{cpu}/topology/core_id", core)
        self.write(f"{cpu}/cache/index0/shared_cpu_list", number)
        if cache:
            self.write(f"{cpu}/cache/index3/shared_cpu_list", cache)

    def node(self, number: int, cpus: str) -> None:
        self.write(f"system/node/node{number}/cpulist", cpus)

    def topology(self, count: int) -> Topology:
        return read_topology(range(count), self.root)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path)


def alder_lake(sysfs: Sysfs) -> Topology:
    """8 performance cores of two logical ones each, and 8 efficiency cores."""
    for number in range(16):
        sysfs.core(number, number // 2, cache="0-23")
    for number in range(16, 24):
        sysfs.core(number, number, cache="0-23")
    sysfs.write("cpu_core/cpus", "0-15")
    sysfs.write("cpu_atom/cpus", "16-23")
    sysfs.node(0, "0-23")
    return sysfs.topology(24)


def two_sockets(sysfs: Sysfs) -> Topology:
    """Two sockets of 12 cores in caches of 6, with two logical cores each; siblings come last."""
    for number in range(48):
        core, package = number % 12, number // 12 % 2
        first = package * 12 + core // 6 * 6
        cache = f"{first}-{first + 5},{first + 24}-{first + 29}"
        sysfs.core(number, core, package, cache)
    sysfs.node(0, "0-11,24-35")
    sysfs.node(1, "12-23,36-47")
    return sysfs.topology(48)


def test_a_hybrid_processor_uses_its_performance_cores(sysfs: Sysfs) -> None:
    topology = alder_lake(sysfs)
    assert (topology.num_physical, topology.num_performance) == (16, 8)
    assert topology.is_hybrid
    places = place_threads(topology, 8)
    assert {place.cores for place in places} == {tuple(range(16))}
    assert {place.speed for place in places} == {1.0}


def test_more_threads_than_performance_cores_share_by_speed(sysfs: Sysfs) -> None:
    places = place_threads(alder_lake(sysfs), 12)
    assert [place.speed for place in places] == [1.0] * 8 + [0.5] * 4
    assert {place.cores for place in places} == {()}


def test_only_the_usable_cores_count(sysfs: Sysfs) -> None:
    alder_lake(sysfs)
    topology = read_topology(range(16, 24), sysfs.root)
    assert (topology.num_physical, topology.num_performance) == (8, 8)
    assert not topology.is_hybrid


@pytest.mark.parametrize(
    ("name", "fast", "slow"),
    [
        ("cpu_capacity", 1024, 446),
        ("acpi_cppc/highest_perf", 196, 110),
        ("cpufreq/cpuinfo_max_freq", 3_400_000, 2_400_000),
    ],
)
def test_capacity_comes_from_what_the_system_has(
    sysfs: Sysfs, name: str, fast: int, slow: int
) -> None:
    for number in range(4):
        sysfs.core(number, number)
        sysfs.write(f"system/cpu/cpu{number}/{name}", fast if number < 2 else slow)
    topology = sysfs.topology(4)
    assert topology.num_performance == 2
    assert topology.cores[3].capacity == pytest.approx(slow / fast)


def test_favoured_cores_of_one_kind_are_alike(sysfs: Sysfs) -> None:
    for number, performance in enumerate((231, 226, 196, 191)):
        sysfs.core(number, number)
        sysfs.write(f"system/cpu/cpu{number}/acpi_cppc/highest_perf", performance)
    assert not sysfs.topology(4).is_hybrid


def test_threads_of_two_nodes_stay_on_their_node(sysfs: Sysfs) -> None:
    topology = two_sockets(sysfs)
    assert (topology.num_physical, topology.nodes) == (24, (0, 1))
    places = place_threads(topology, 24)
    assert [place.node for place in places] == [0] * 12 + [1] * 12
    assert places[0].cores == (*range(12), *range(24, 36))
    assert places[-1].cores == (*range(12, 24), *range(36, 48))
    assert [place.group for place in places] == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6


def test_few_threads_are_spread_over_the_nodes(sysfs: Sysfs) -> None:
    places = place_threads(two_sockets(sysfs), 5)
    assert [place.node for place in places] == [0, 0, 0, 1, 1]


def test_groups_have_at_most_eight_threads(sysfs: Sysfs) -> None:
    for number in range(20):
        sysfs.core(number, number, cache="0-19")
    places = place_threads(sysfs.topology(20), 20)
    assert [place.group for place in places] == [0] * 8 + [1] * 8 + [2] * 4


def test_more_threads_than_cores_run_anywhere(sysfs: Sysfs) -> None:
    places = place_threads(two_sockets(sysfs), 30)
    assert {(place.cores, place.node, place.speed) for place in places} == {((), 0, 1.0)}


def test_a_system_that_tells_nothing_has_equal_cores(tmp_path: Path) -> None:
    topology = read_topology({3, 5}, tmp_path)
    assert (topology.num_physical, topology.num_performance, topology.nodes) == (2, 2, (0,))
    assert {place.cores for place in place_threads(topology, 2)} == {()}


def test_the_probe_reads_the_given_folder(sysfs: Sysfs) -> None:
    assert probe_hardware(system=sysfs.root).topology.nodes == (0,)
    for number in range(64):
        sysfs.core(number, 0)
    assert probe_hardware(system=sysfs.root).physical_cores == 1


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", set()), ("0\n", {0}), ("0-2,7", {0, 1, 2, 7}), ("4,6-6", {4, 6})],
)
def test_lists_of_cores(text: str, numbers: set[int]) -> None:
    assert parse_cpu_list(text) == numbers
