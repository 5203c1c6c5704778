"""The scripts that measure under a memory limit: groups, page cache, reads, and their report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from contest.contestant import Timing
from memory import cold_run, larger_than_ram, memory_group
from memory.cold_run import Run
from memory.larger_than_ram import direct_bytes_per_second
from memory.larger_than_ram_report import (
    bound_share,
    disk_share,
    ratio_rows,
    read_rows,
    read_sentence,
    wait_share,
    window_rows,
    window_speeds,
)
from memory.memory_group import DiskGroup, Hierarchy, MemoryGroup, find_hierarchy

from sharpi.errors import UsageError
from sharpi.hardware.rates import DiskRate


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_group, "_REMOVAL_SECONDS", 0.2)  # a plain folder is never empty


def mounts(folder: Path, line: str) -> Path:
    file = folder / "mounts"
    file.write_text(f"proc /proc proc rw 0 0\n{line}\n")
    return file


def version_2(folder: Path, controllers: str = "cpu memory") -> Hierarchy:
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text("cpu")
    return find_hierarchy(mounts(folder, f"cgroup2 {folder} cgroup2 rw 0 0"))


def test_version_1_limits_memory_and_swap_together(tmp_path: Path) -> None:
    place = find_hierarchy(mounts(tmp_path, f"cgroup {tmp_path} cgroup rw,memory 0 0"))
    assert place.limits == ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    with MemoryGroup(1000, place) as group:
        assert (group.folder / "memory.limit_in_bytes").read_text() == "1000"
        assert not (group.folder / "memory.memsw.limit_in_bytes").exists()  # a kernel without swap


def test_version_2_has_the_controller_handed_down(tmp_path: Path) -> None:
    with MemoryGroup(1000, version_2(tmp_path)) as group:
        assert (group.folder / "memory.max").read_text() == "1000"
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"


def test_a_hierarchy_without_the_memory_controller_does_not_count(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no memory cgroup is mounted"):
        version_2(tmp_path, controllers="cpu io")


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    place = Hierarchy(tmp_path, ("none/limit", "none/swap"), swap_is_extra=False)
    with pytest.raises(UsageError, match=r"no memory limit can be set .*; run this as root"):
        MemoryGroup(1000, place)
    assert list(tmp_path.iterdir()) == []


def test_there_is_one_at_a_time(tmp_path: Path) -> None:
    place = version_2(tmp_path)
    with MemoryGroup(1000, place), pytest.raises(UsageError, match="another measurement"):
        MemoryGroup(1000, place)


def test_programs_run_inside_and_are_ended_with_the_group() -> None:
    try:
        group = MemoryGroup(500_000_000)
    except UsageError as error:
        pytest.skip(str(error))
    waits = "import sys, time; print(open('/proc/self/cgroup').read(), flush=True); time.sleep(60)"
    with group:
        command = [*group.launcher, sys.executable, "-c", waits]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert any(group.folder.name in process.stdout.readline() for _ in range(30))
    assert process.wait() == -9
    assert not group.folder.exists()


RULE = "blkio.throttle.read_bps_device"


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plain folder in place of the kernel's."""
    folder = tmp_path / "blkio"
    folder.mkdir()
    monkeypatch.setattr(memory_group, "_BLKIO", folder)
    return folder


def test_the_rule_names_the_disk_of_the_file(hierarchy: Path, tmp_path: Path) -> None:
    group = DiskGroup(500_000_000, tmp_path)
    device = tmp_path.stat().st_dev
    rule = f"{os.major(device)}:{os.minor(device)} 500000000"
    assert group.folder.parent == hierarchy
    assert (group.folder / RULE).read_text() == rule


def test_a_program_enters_before_it_runs(hierarchy: Path, tmp_path: Path) -> None:
    group = DiskGroup(1000, tmp_path)
    shows = "import os, sys; print(os.getpid(), sys.argv[1:])"
    command = [*group.launcher, sys.executable, "-c", shows, "a b", "$0"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    number = (group.folder / "cgroup.procs").read_text().strip()
    assert out == f"{number} ['a b', '$0']\n"


def test_nothing_is_left_afterwards(
    hierarchy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_text", lambda path, text: len(text))  # as the kernel's files
    with DiskGroup(1000, tmp_path) as group:
        assert group.folder.is_dir()
    assert list(hierarchy.iterdir()) == []


def test_a_machine_without_version_1_is_refused(hierarchy: Path, tmp_path: Path) -> None:
    hierarchy.rmdir()
    with pytest.raises(UsageError, match=r"no disk can be slowed \(No such file or directory\)"):
        DiskGroup(1000, tmp_path)


def test_a_disk_that_cannot_be_slowed_leaves_no_group(
    hierarchy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, text: str) -> int:
        raise OSError(19, "No such device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UsageError, match=r"no disk can be slowed \(No such device\)"):
        DiskGroup(1000, tmp_path)
    assert list(hierarchy.iterdir()) == []


def test_the_kernel_takes_the_rule(tmp_path: Path) -> None:
    try:
        group = DiskGroup(500_000_000, tmp_path)
    except UsageError as error:
        pytest.skip(str(error))
    with group:
        waits = "import sys; print(open('/proc/self/cgroup').read())"
        command = [*group.launcher, sys.executable, "-c", waits]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert f"blkio:/{group.folder.name}" in out
    assert not group.folder.exists()


def test_a_file_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_run, "_DROP_ALL", tmp_path / "none")  # leave the machine's alone
    file = tmp_path / "m"
    file.write_bytes(bytes(1_000_001))
    assert cold_run.cached_share(file) == 1
    if cold_run.drop_cached(file) == 1:
        pytest.skip("a file system in memory keeps its pages")
    assert cold_run.cached_share(file) < 0.01


def test_what_stays_is_dropped_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, everybody = tmp_path / "m", tmp_path / "drop_caches"
    file.write_bytes(bytes(5000))
    everybody.touch()
    monkeypatch.setattr(cold_run, "_DROP_ALL", everybody)
    monkeypatch.setattr(cold_run, "cached_share", lambda path: 0.5)
    assert cold_run.drop_cached(file, tolerated=0.6) == 0.5
    assert everybody.read_text() == ""
    cold_run.drop_cached(file, tolerated=0.4)
    assert everybody.read_text() == "1"


@pytest.mark.parametrize("is_direct", [True, False])
def test_only_direct_reads_count(is_direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(larger_than_ram, "measure_disk", lambda *_: DiskRate(5.0, is_direct))
    if is_direct:
        assert direct_bytes_per_second(Path("m"), seconds=1) == 5
        return
    with pytest.raises(UsageError, match="m: its file system has no direct reads"):
        direct_bytes_per_second(Path("m"), seconds=1)


# Of 4 seconds the disk needs 200 / 100 for the missed bytes, and 3 are computing.
COUNTS = {
    "accesses": 80,
    "hits": 60,
    "read_bytes": 240,
    "wasted_bytes": 40,
    "stall_seconds": 1.0,
    "storage_bytes": 400,
}


def decode(contestant: str, *pass_seconds: float, counts: dict[str, float] | None = None) -> Run:
    return Run(
        test="decode",
        contestant=contestant,
        num_tokens=len(pass_seconds),
        timing=Timing(sum(pass_seconds), list(pass_seconds), counts or {}),
        load_seconds=1.0,
        cached_share=0.0,
        description={},
        disk_rates=(90.0, 110.0),
    )


def test_windows_are_whole() -> None:
    assert window_speeds([1, 1, 2, 2, 5], size=2) == [1, 0.5]
    assert window_speeds([1, 1], size=20) == []


def test_ratios_are_of_rounds() -> None:
    runs = [decode("sharpi", 1), decode("rival", 2), decode("sharpi", 2), decode("rival", 2)]
    (row,) = ratio_rows([*runs, decode("sharpi", 1), decode("rival", 4)])
    assert (row["ratio"], row["ratio_min"], row["ratio_max"]) == (2, 1, 4)
    assert row["tokens_per_second"] == {"sharpi": 1, "rival": 0.5}


def test_a_slow_window_shows_in_its_own_row() -> None:
    runs = [decode("sharpi", 1, 1, 3, 3), decode("rival", 2, 2, 2, 2)]
    first, second = window_rows(runs, size=2)
    assert (first["test"].strip(), first["ratio"]) == ("1 to 2", 2)
    assert (second["test"].strip(), second["ratio"]) == ("3 to 4", pytest.approx(2 / 3))


def test_one_alone_has_no_ratio() -> None:
    runs = [decode("sharpi", 1, 1, 1)]
    assert ratio_rows(runs) == window_rows(runs, size=2) == []
    assert read_rows(runs)[0]["tokens_per_second"] == 1


def test_shares_leave_out_what_was_read_in_vain() -> None:
    run = decode("sharpi", 1, 3, counts=COUNTS)
    assert disk_share(run) == pytest.approx(0.5)
    assert bound_share(run) == pytest.approx(0.75)
    assert wait_share(run) == pytest.approx(2)  # half of it was hidden
    assert bound_share(decode("sharpi", 1, 1, counts=COUNTS)) == pytest.approx(1)


def test_sentences_say_what_was_counted() -> None:
    counted = read_sentence(read_rows([decode("sharpi", 1, 3, counts=COUNTS)])[0])
    for part in ("0.50 tokens/s", "75.0 % of the experts found", "500.0 ms waited", "50 % of what"):
        assert part in counted
    assert read_sentence(read_rows([decode("rival", 1)])[0]) == (
        "decode, rival: 1.00 tokens/s, ready after 1.0 s"
    )
