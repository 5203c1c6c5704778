"""Memory groups of both versions: the right files are written, refusals say why, nothing stays."""

import subprocess
import sys
from pathlib import Path

import pytest
from memory import memory_group
from memory.memory_group import Hierarchy, MemoryGroup, find_hierarchy

from sharpi.errors import UsageError


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
