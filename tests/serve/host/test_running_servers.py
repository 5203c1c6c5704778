"""The files by which `sharpi ps` finds servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharpi.serve.host.running_servers import RunningServer, registered, running_servers

ABOUT = RunningServer(os.getpid(), "http://127.0.0.1:8080", "demo", 1, "secret")


def test_listed_while_it_runs() -> None:
    with registered(ABOUT):
        assert running_servers() == [ABOUT]
    assert running_servers() == []


def test_two_of_one_process() -> None:
    other = RunningServer(os.getpid(), "http://127.0.0.1:8081", "demo", 0, "secret")
    with registered(ABOUT), registered(other):
        assert running_servers() == [other, ABOUT]


def test_only_the_user_reads_the_key(own_runtime_folder: Path) -> None:
    with registered(ABOUT):
        folder = own_runtime_folder / "sharpi"
        (file,) = folder.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
        assert file.stat().st_mode & 0o077 == 0


def test_what_a_killed_server_left_is_removed(own_runtime_folder: Path) -> None:
    code = (
        "import os, signal; from sharpi.serve.host.running_servers import *\n"
        "with registered(RunningServer(os.getpid(), 'http://127.0.0.1:1', 'demo', 1, 'k')):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    folder = own_runtime_folder / "sharpi"
    assert len(list(folder.iterdir())) == 1
    assert running_servers() == []
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_can_enter_is_not_used(own_runtime_folder: Path) -> None:
    (own_runtime_folder / "sharpi").mkdir(mode=0o755)
    (own_runtime_folder / "sharpi").chmod(0o755)
    with pytest.raises(PermissionError, match="sharpi"):
        running_servers()


def test_without_a_runtime_folder_it_is_the_temporary_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with registered(ABOUT):
        assert (tmp_path / f"sharpi-{os.geteuid()}").is_dir()
        assert running_servers() == [ABOUT]
