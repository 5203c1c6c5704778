"""A disk group writes the rule of one disk, runs programs inside, and leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from memory import disk_group
from memory.disk_group import DiskGroup

from sharpi.errors import UsageError

RULE = "blkio.throttle.read_bps_device"


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plain folder in place of the kernel's."""
    folder = tmp_path / "blkio"
    folder.mkdir()
    monkeypatch.setattr(disk_group, "_BLKIO", folder)
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
