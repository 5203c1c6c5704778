"""The heartbeats of ranks: who is silent, who has left in order, and who says what is wrong."""

import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from sharpi.cluster import heartbeat
from sharpi.cluster.heartbeat import HeartbeatMonitor

BUSY_MONITORS = """
import sys
from datetime import timedelta
from torch.distributed import TCPStore
from sharpi.cli import main as program
from sharpi.cluster import heartbeat

heartbeat._BEAT_SECONDS = 0
store = TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=5))
for _ in range(4):
    heartbeat.HeartbeatMonitor(store, 0, ("a",), print).start()
sys.argv = ["sharpi", "--version"]
program.main()
"""


class FakeStore:
    """A store of one process; `is_lost` makes every call fail."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.is_lost = False

    def set(self, key: str, value: str, /) -> None:
        self._require()
        self.values[key] = value.encode()

    def get(self, key: str, /) -> bytes:
        self._require()
        return self.values[key]

    def check(self, keys: list[str], /) -> bool:
        self._require()
        return all(key in self.values for key in keys)

    def set_timeout(self, timeout: timedelta, /) -> None:
        self._require()

    def _require(self) -> None:
        if self.is_lost:
            raise ConnectionError


class Faults:
    """Collects faults, and waits for one."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._came = threading.Event()

    def __call__(self, fault: str) -> None:
        self.all.append(fault)
        self._came.set()

    def wait(self) -> str:
        assert self._came.wait(60)
        return self.all[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.01)
    monkeypatch.setattr(heartbeat, "SILENCE_SECONDS", 0.2)


def test_a_silent_rank_is_named() -> None:
    store, faults = FakeStore(), Faults()
    with HeartbeatMonitor(store, 0, ("a", "b"), faults) as monitor:
        monitor.start()
        assert faults.wait() == "rank 1 on b does not answer for 0 seconds"
        assert monitor.fault == faults.all[0]
    assert store.values["fault"] == faults.all[0].encode()


def test_a_store_that_hangs_is_lost_as_well() -> None:
    store, faults, answers = FakeStore(), Faults(), threading.Event()
    store.check = lambda keys: answers.wait(60)  # type: ignore[method-assign]
    with HeartbeatMonitor(store, 1, ("a", "b"), faults) as monitor:
        monitor.start()
        assert faults.wait().startswith("rank 0 on a does not answer")
    answers.set()


@pytest.mark.slow
def test_the_process_ends_well_while_a_store_is_asked() -> None:
    """torch aborts a process that ends as usual while a thread is in a call to its store."""
    pytest.importorskip("torch")
    ended = subprocess.run(
        [sys.executable, "-c", BUSY_MONITORS], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("sharpi ")


def test_what_another_rank_says_is_passed_on() -> None:
    store, faults = FakeStore(), Faults()
    store.values["fault"] = b"rank 2 on c: the disk is broken"
    with HeartbeatMonitor(store, 0, ("a", "b", "c"), faults) as monitor:
        monitor.start()
        assert faults.wait() == "rank 2 on c: the disk is broken"


def test_a_lost_store_is_the_first_rank() -> None:
    store, faults = FakeStore(), Faults()
    monitor = HeartbeatMonitor(store, 1, ("a", "b"), faults)
    store.is_lost = True
    monitor.start()
    assert faults.wait().startswith("rank 0 on a does not answer")
    monitor.close()


def test_a_rank_that_left_in_order_is_not_missed() -> None:
    store, faults = FakeStore(), Faults()
    store.values["left/1"] = b""
    with HeartbeatMonitor(store, 0, ("a", "b", "c"), faults) as monitor:
        monitor.start()
        assert faults.wait().startswith("rank 2 on c")


def test_the_first_rank_ends_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LEAVE_SECONDS", 60)
    store = FakeStore()
    with HeartbeatMonitor(store, 0, ("a", "b", "c"), Faults()) as monitor:
        store.values["left/1"] = b""
        later = threading.Timer(0.05, lambda: store.set("left/2", ""))
        later.start()
        assert monitor.wait_for_others()
        assert "left/2" in store.values


def test_the_first_rank_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LEAVE_SECONDS", 0.05)
    with HeartbeatMonitor(FakeStore(), 0, ("a", "b"), Faults()) as monitor:
        assert not monitor.wait_for_others()
        monitor.fail("rank 1 is lost")
        monkeypatch.setattr(heartbeat, "LEAVE_SECONDS", 1e9)
        assert not monitor.wait_for_others()


def test_a_lost_lender_is_not_waited_for() -> None:
    faults, lost = Faults(), Faults()
    with HeartbeatMonitor(FakeStore(), 0, ("a", "b"), faults) as monitor:
        monitor.set_optional_ranks({1}, lambda rank: lost(str(rank)))
        monitor.start()
        assert lost.wait() == "1"
        assert monitor.wait_for_others()


def test_a_lost_store_is_not_waited_for() -> None:
    """The exception of a store would otherwise replace the error with which the rank ends."""
    store = FakeStore()
    with HeartbeatMonitor(store, 0, ("a", "b"), Faults()) as monitor:
        store.is_lost = True
        assert not monitor.wait_for_others()


def test_only_the_first_fault_counts() -> None:
    faults = Faults()
    monitor = HeartbeatMonitor(FakeStore(), 0, ("a", "b"), faults)
    monitor.lost(1, "has ended")
    monitor.fail("later")
    assert faults.all == ["rank 1 on b has ended"]
    monitor.close()


def test_after_the_end_nothing_is_a_fault() -> None:
    faults = Faults()
    monitor = HeartbeatMonitor(FakeStore(), 0, ("a", "b"), faults)
    monitor.close()
    monitor.lost(1, "has ended")
    assert faults.all == []
