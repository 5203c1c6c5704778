"""Free memory and cores under limits: directory trees of both versions of cgroups."""

from pathlib import Path

import pytest

from sharpi.hardware.memory import MemoryInfo, cpu_quota, probe_memory

MIB = 1 << 20
UNLIMITED = 9223372036854771712  # cgroup version 1 writes this without a limit


class Machine:
    """A /proc and its cgroup mounts in a folder: 1,000 MiB of RAM, 800 MiB of them available."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.mount = folder / "proc", folder / "cgroup"
        self.write(
            self.proc / "meminfo",
            "MemTotal: 1024000 kB\nMemAvailable: 819200 kB\nHugePages_Free: 0\n"
            "Hugepagesize: 2048 kB\n",
        )

    def join(self, line: str, mount_root: str, kind: str, options: str) -> None:
        self.write(self.proc / "self/cgroup", line + "\n")
        mount = f"30 20 0:25 {mount_root} {self.mount} rw shared:1 - {kind} cgroup {options}\n"
        self.write(self.proc / "self/mountinfo", "1 0 0:1 / / rw - ext4 disk rw\n" + mount)

    def group(self, name: str, **files: int | str) -> None:
        for file, value in files.items():
            self.write(self.mount / name / f"memory.{file}", f"{value}\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def probe(self) -> MemoryInfo:
        return probe_memory(self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def version_1(machine: Machine, group: str = "/job", mount_root: str = "/") -> None:
    machine.join(f"4:cpu,memory:{group}\n3:pids:/x", mount_root, "cgroup", "rw,cpu,memory")


def version_2(machine: Machine, group: str = "/slice/job", mount_root: str = "/") -> None:
    machine.join(f"0::{group}", mount_root, "cgroup2", "rw,nsdelegate")


def test_without_cgroups(machine: Machine) -> None:
    assert machine.probe() == MemoryInfo(
        total=1000 * MIB, free=800 * MIB, limit=None, huge_page_size=2 * MIB
    )


def test_version_1(machine: Machine) -> None:
    version_1(machine)
    stat = f"cache 7\ntotal_active_file {20 * MIB}\ntotal_inactive_file {30 * MIB}"
    machine.group("job", limit_in_bytes=400 * MIB, usage_in_bytes=150 * MIB, stat=stat)
    assert (machine.probe().limit, machine.probe().free) == (400 * MIB, 300 * MIB)


def test_version_1_without_a_limit(machine: Machine) -> None:
    version_1(machine)
    machine.group("job", limit_in_bytes=UNLIMITED, usage_in_bytes=150 * MIB, stat="")
    assert (machine.probe().limit, machine.probe().free) == (None, 800 * MIB)


def test_version_2_counts_page_cache_as_free(machine: Machine) -> None:
    version_2(machine)
    stat = f"anon {100 * MIB}\nactive_file {50 * MIB}\ninactive_file {50 * MIB}"
    machine.group("slice/job", max=500 * MIB, high="max", current=200 * MIB, stat=stat)
    machine.group("slice", max="max", current=900 * MIB, stat="")
    assert (machine.probe().limit, machine.probe().free) == (500 * MIB, 400 * MIB)


def test_the_tightest_of_the_parents_counts(machine: Machine) -> None:
    version_2(machine)
    machine.group("slice/job", max=500 * MIB, current=10 * MIB, stat="")
    machine.group("slice", max=450 * MIB, current=300 * MIB, stat="")
    assert (machine.probe().limit, machine.probe().free) == (450 * MIB, 150 * MIB)


def test_high_counts_as_a_limit(machine: Machine) -> None:
    version_2(machine)
    machine.group("slice/job", max=500 * MIB, high=300 * MIB, current=100 * MIB, stat="")
    assert (machine.probe().limit, machine.probe().free) == (300 * MIB, 200 * MIB)


def test_a_container_sees_its_group_as_the_mount(machine: Machine) -> None:
    version_1(machine, group="/docker/1f", mount_root="/docker/1f")
    machine.group(".", limit_in_bytes=200 * MIB, usage_in_bytes=50 * MIB, stat="")
    assert machine.probe().free == 150 * MIB


def test_a_group_outside_the_mount_is_taken_for_the_mounts_own(machine: Machine) -> None:
    version_2(machine, group="/../other", mount_root="/docker/1f")
    machine.group(".", max=200 * MIB, current=50 * MIB, stat="")
    assert machine.probe().free == 150 * MIB


def test_more_used_than_allowed_is_nothing_free(machine: Machine) -> None:
    version_2(machine)
    machine.group("slice/job", max=100 * MIB, current=150 * MIB, stat="")
    assert machine.probe().free == 0


def test_a_limit_above_the_machine_changes_nothing(machine: Machine) -> None:
    version_2(machine)
    machine.group("slice/job", max=5000 * MIB, current=10 * MIB, stat="")
    assert machine.probe().free == 800 * MIB


def test_without_proc_physical_memory_is_free(tmp_path: Path) -> None:
    info = probe_memory(tmp_path / "none")
    assert info.total == info.free > 0


def test_this_machine() -> None:
    info = probe_memory()
    assert 0 < info.free <= info.total


@pytest.mark.parametrize(("quota", "cores"), [(150000, 1), (250000, 2), (40000, 1), (-1, None)])
def test_a_cpu_quota_of_version_1(machine: Machine, quota: int, cores: int | None) -> None:
    version_1(machine)
    machine.write(machine.mount / "job/cpu.cfs_period_us", "100000\n")
    machine.write(machine.mount / "job/cpu.cfs_quota_us", f"{quota}\n")
    assert cpu_quota(machine.proc) == cores


def test_the_tightest_cpu_quota_of_version_2(machine: Machine) -> None:
    version_2(machine)
    assert cpu_quota(machine.proc) is None
    machine.write(machine.mount / "slice/job/cpu.max", "max 100000\n")
    assert cpu_quota(machine.proc) is None
    machine.write(machine.mount / "slice/cpu.max", "350000 100000\n")
    machine.write(machine.mount / "cpu.max", "800000 100000\n")
    assert cpu_quota(machine.proc) == 3
