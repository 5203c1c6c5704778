"""Headers of messages, the order and threads in which a channel sends them, and its awake core."""

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sharpi.cluster.channel import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_BODY_BYTES,
    Channel,
    IdleInhibitor,
    Kind,
    Message,
    read_header,
)
from sharpi.errors import ClusterError

pytestmark = [pytest.mark.native, pytest.mark.slow]  # torch is slow to import


class Work:
    """A transfer that ends when `may_end` is set."""

    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end

    def wait(self) -> None:
        self._may_end.wait()


class Wire:
    """A stand-in for gloo that records which thread sends what, and receives nothing."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, str]] = []
        self.may_end = threading.Event()

    def send(self, frames: list[Any], target: int, tag: int) -> Work:
        (frame,) = frames
        self.sent.append((frame.numpy().tobytes(), threading.current_thread().name))
        return Work(self.may_end)

    def recv(self, frames: list[Any], source: int, tag: int) -> Work:
        return Work(threading.Event())


class Distributed:
    """A stand-in for torch: real tensors, and a wire for torch.distributed."""

    def __init__(self, wire: Wire) -> None:
        torch = pytest.importorskip("torch")
        self.empty, self.frombuffer, self.uint8 = torch.empty, torch.frombuffer, torch.uint8
        self.distributed = self.group = self
        self.WORLD = wire


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def channel(wire: Wire) -> Iterator[Channel]:
    made = Channel(Distributed(wire))
    made.start(None, 1, 1)  # type: ignore[arg-type]
    yield made
    wire.may_end.set()
    made._outbox.put(None)
    if made._idle_inhibitor is not None:
        made._idle_inhibitor.close()


def wait_until(count: int, wire: Wire) -> None:
    end = time.monotonic() + 20
    while len(wire.sent) < count and time.monotonic() < end:
        time.sleep(0.001)


def test_a_small_message_is_handed_over_by_its_sender(channel: Channel, wire: Wire) -> None:
    """No other thread has to wake up first, even while an earlier message is in flight."""
    for number in range(2):
        channel.send(Message(Kind.STEP, number, b"abc"))
    assert [name for _, name in wire.sent] == [threading.current_thread().name] * 2


def test_messages_keep_their_order_behind_a_large_one(channel: Channel, wire: Wire) -> None:
    large, small = bytes(2 * FRAME_BYTES), b"abc"
    channel.send(Message(Kind.STEP, 1, large))
    channel.send(Message(Kind.STEP, 2, small))
    wire.may_end.set()
    wait_until(4, wire)
    data = b"".join(frame for frame, _ in wire.sent)
    first, second = Message(Kind.STEP, 1, large), Message(Kind.STEP, 2, small)
    assert data == first.header() + large + second.header() + small


def idle_threads() -> int:
    """Returns how many threads of this process have the lowest priority."""
    tasks = [int(task) for task in os.listdir("/proc/self/task")]
    return sum(os.sched_getscheduler(task) == os.SCHED_IDLE for task in tasks)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux alone has such threads")
def test_a_thread_that_gives_way_keeps_the_core_idle_inhibitor() -> None:
    before, inhibitor = idle_threads(), IdleInhibitor()
    end = time.monotonic() + 20
    while idle_threads() == before and time.monotonic() < end:
        time.sleep(0.001)
    assert idle_threads() == before + 1
    with inhibitor.waiting():
        pass
    inhibitor.close()
    inhibitor.close()
    with inhibitor.waiting():
        assert idle_threads() == before


def test_a_header_says_kind_number_and_length() -> None:
    header = Message(Kind.OUTPUTS, 7, b"abc").header()
    assert len(header) == HEADER_BYTES
    assert read_header(header) == (Kind.OUTPUTS, 7, 3)


@pytest.mark.parametrize("place", [0, 4, 6])
def test_a_foreign_header_is_refused(place: int) -> None:
    header = bytearray(Message(Kind.STEP, 1).header())
    header[place] ^= 0xFF
    with pytest.raises(ClusterError, match="not sharpi's"):
        read_header(header)


def test_a_body_beyond_the_limit_is_refused() -> None:
    header = bytearray(Message(Kind.STEP, 1).header())
    header[-8:] = (MAX_BODY_BYTES + 1).to_bytes(8, "little")
    with pytest.raises(ClusterError, match="at most"):
        read_header(header)
