"""What other processes have planned is not free; what a dead one has planned is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharpi.hardware.memory import MemoryGauge
from sharpi.system.files import runtime_folder
from sharpi.system.reservations import MACHINE, planning, reserve, reserved

MIB = 1 << 20
OTHER = """
import sys, time
from sharpi.system.reservations import planning, reserve
with planning():
    print("plans", flush=True)
    sys.stdin.readline()
    reservation = reserve(300 << 20, ("/group",))
print("reserved", flush=True)
sys.stdin.readline()
taken = b"x" * (200 << 20)
print("taken", flush=True)
sys.stdin.readline()
reservation.close()
print("closed", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert next_line(process) == "plans"
    yield process
    process.kill()
    process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return next_line(process)


def test_what_another_process_has_yet_to_take_is_counted(other: subprocess.Popen[str]) -> None:
    assert not reserved()
    assert go_on(other) == "reserved"
    assert set(reserved()) == {MACHINE, "/group"}
    assert all(290 * MIB < num_bytes <= 300 * MIB for num_bytes in reserved().values())
    gauge = MemoryGauge()
    assert gauge.read().free - gauge.read(reserved()).free > 200 * MIB
    assert go_on(other) == "taken"
    assert 90 * MIB < reserved()[MACHINE] < 110 * MIB
    assert go_on(other) == "closed"
    assert not reserved()


def test_a_dead_process_has_nothing(other: subprocess.Popen[str]) -> None:
    assert go_on(other) == "reserved"
    assert reserved()
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert not reserved()
    assert not [*runtime_folder().glob("*[0-9].memory")]


def test_one_plans_after_the_other(other: subprocess.Popen[str]) -> None:
    assert other.stdin is not None
    start = time.monotonic()
    subprocess.Popen(["sh", "-c", f"sleep 0.3; echo > /proc/{other.pid}/fd/0"])
    with planning():
        assert time.monotonic() - start > 0.25
        assert reserved()[MACHINE] > 290 * MIB


def test_own_plans_do_not_count_and_no_folder_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with reserve(MIB, ()) as mine, planning():
        assert not reserved()
        assert len([*runtime_folder().glob("*[0-9].memory")]) == 1
    mine.close()
    (tmp_path / "sharpi").chmod(0o755)  # anybody may look: it is not used
    with planning(), reserve(MIB, ()):
        assert not reserved()
    with pytest.raises(ValueError, match="raised inside"), planning():
        raise ValueError("raised inside")
