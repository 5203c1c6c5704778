"""Channel: sends messages to the next rank and receives them from the previous one, with gloo.

One thread completes sends and another receives, so that no step waits for an earlier step's
transfer, and a lost rank is noticed at once. A message is sent in frames of FRAME_BYTES. The
receiver posts its receive for the next frame before that frame is sent, which saves gloo a round
trip. The thread that calls `send` passes a message of one frame to gloo itself, unless earlier
messages are still queued. If the wait for the last message was short, `receive` keeps the CPU core
awake while it waits for the next one.

A message is a header of fixed size, then array bytes. Nothing is pickled: a rank accepts integers
and floats of a stated length, and nothing else.
"""

import ctypes
import queue
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from ctypes import c_void_p
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct

from sharpi.cluster.heartbeat import HeartbeatMonitor
from sharpi.errors import ClusterError
from sharpi.native import declare, open_library
from sharpi.system.process import Closing, start_native


class IdleInhibitor(Closing):
    """A native thread of the lowest priority, which spins inside the `waiting` context.

    It keeps a CPU core from sleeping while a rank waits for a message. After sleeping, a core of a
    virtual machine computes slowly for a few milliseconds: with two ranks, each on one core,
    decoding one sequence was 3 % slower. Every other thread runs before it. If the system does not
    support this priority, `waiting` does nothing.
    """

    def __init__(self) -> None:
        self._handle: int | None = _library().sharpi_awake_create()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Keeps the CPU core awake within the context, for at most a tenth of a second."""
        if self._handle is not None:
            _library().sharpi_awake_begin(self._handle)
        try:
            yield
        finally:
            if self._handle is not None:
                _library().sharpi_awake_end(self._handle)

    def close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _library().sharpi_awake_destroy(handle)


@cache
def _library() -> ctypes.CDLL:
    signatures = {
        "sharpi_awake_create": (c_void_p, []),
        "sharpi_awake_destroy": (None, [c_void_p]),
        "sharpi_awake_begin": (None, [c_void_p]),
        "sharpi_awake_end": (None, [c_void_p]),
    }
    return declare(open_library(), signatures)


class LinkStats(Struct):
    """One rank's counts of sent and received messages since the start, with their seconds."""

    num_sent: int = 0
    sent_bytes: int = 0
    send_seconds: float = 0.0
    num_received: int = 0
    received_bytes: int = 0
    receive_seconds: float = 0.0  # from each message's first frame to its last


_HEADER = struct.Struct("<4sHHqQ")  # magic, version, kind, number, bytes that follow
_MAGIC, _VERSION = b"shrp", 1
HEADER_BYTES = _HEADER.size
MAX_BODY_BYTES = 1 << 30


class Kind(IntEnum):
    """The kinds of messages; the numbers are part of the format."""

    STEP = 1  # the tokens of a step, and the values that the next layers need
    OUTPUTS = 2  # the values of a step's outputs after the last layer
    COPY_PAGE = 3
    COPY_STATE = 4
    FAILED = 5  # a step failed; the body says why, in UTF-8
    CLOSE = 6  # the first rank has ended
    DROP_WINDOWS = 7  # drops a page's windows


class Message(NamedTuple):
    """One message; `number` is the number of the step that it belongs to."""

    kind: Kind
    number: int
    body: bytes | memoryview = b""

    def header(self) -> bytes:
        """Returns the header, whose size is HEADER_BYTES."""
        return _HEADER.pack(_MAGIC, _VERSION, self.kind, self.number, len(self.body))


def read_header(data: bytes | memoryview) -> tuple[Kind, int, int]:
    """Returns a message's kind, number and length of body; raises ClusterError for others."""
    magic, version, kind, number, length = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or kind not in Kind._value2member_map_:
        raise ClusterError("a message came that is not sharpi's; all ranks need the same version")
    if length > MAX_BODY_BYTES:
        raise ClusterError(f"a message of {length} bytes came; at most {MAX_BODY_BYTES} are taken")
    return Kind(kind), number, length


FRAME_BYTES = 256 << 10
_LEAVE_SECONDS = 5.0
_TAG = 0
_AWAKE_SECONDS = 0.1  # seconds of waiting before a rank goes to sleep
_MAX_QUEUED = 4  # messages queued each way, which bounds the memory of prompts' values


class _Transfer(NamedTuple):
    """A message that gloo is sending."""

    work: Any
    data: Any  # the tensor, which must exist until the transfer ends
    start: float


class Channel(Closing):
    """Sends to one rank of torch.distributed's group and receives from another; see `start`."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._source, self._target = torch, 0, 0
        # Bypasses torch.distributed's checks of every call, which take as long as the transfer.
        self._group = torch.distributed.group.WORLD
        self._received = torch.empty(FRAME_BYTES, dtype=torch.uint8)
        self._received_bytes = memoryview(self._received.numpy())
        self._outbox: queue.Queue[Message | _Transfer | None] = queue.Queue(_MAX_QUEUED)
        self._unsent, self._unsent_lock = 0, threading.Lock()  # messages not yet handed to gloo
        self._idle_inhibitor: IdleInhibitor | None = None
        self._inbox: queue.Queue[Message | str] = queue.Queue(_MAX_QUEUED)
        self._monitor: HeartbeatMonitor | None = None
        self._fault: str | None = None
        self._has_ended = False
        self.stats = LinkStats()
        self._waits_briefly = True
        self._threads = [
            threading.Thread(target=work, name="channel", daemon=True)
            for work in (self._send_all, self._receive_all)
        ]

    def start(self, monitor: HeartbeatMonitor, source: int, target: int) -> None:
        """Starts to send to rank `target` and receive from `source`; failures go to `monitor`."""
        self._monitor, self._source, self._target = monitor, source, target
        self._idle_inhibitor = IdleInhibitor()
        for thread in self._threads:
            start_native(thread)

    def send(self, message: Message) -> None:
        """Sends a message, or queues it behind earlier ones; blocks while the queue is full."""
        self.raise_if_failed()
        item = self._begun(message)
        while True:
            self.raise_if_failed()
            try:
                return self._outbox.put(item, timeout=0.2)
            except queue.Full:
                continue

    def receive(self) -> Message:
        """Waits for the next message; raises ClusterError once the group is broken."""
        start = time.perf_counter()
        inhibitor = self._idle_inhibitor if self._waits_briefly and self._inbox.empty() else None
        with inhibitor.waiting() if inhibitor else nullcontext():
            message = self._inbox.get()
        self._waits_briefly = time.perf_counter() - start < _AWAKE_SECONDS
        if isinstance(message, str):
            raise ClusterError(message)
        return message

    def fail(self, fault: str) -> None:
        """Makes `receive` and `send`, also waiting ones, raise ClusterError with `fault`."""
        self._fault = fault
        while True:
            try:
                return self._inbox.put_nowait(fault)
            except queue.Full:
                with suppress(queue.Empty):
                    self._inbox.get_nowait()

    def close(self) -> None:
        """Sends the queued messages, then waits a few seconds for the source rank to close, too."""
        if self._has_ended or self._monitor is None:
            return
        self._has_ended = True
        if self._fault is None:
            self._outbox.put(None)
        for thread in self._threads:
            thread.join(_LEAVE_SECONDS if self._fault is None else 0.1)
        if self._idle_inhibitor is not None:
            self._idle_inhibitor.close()

    def raise_if_failed(self) -> None:
        if self._fault is not None:
            raise ClusterError(self._fault)

    def _send_all(self) -> None:
        try:
            while (item := self._outbox.get()) is not None:
                if isinstance(item, _Transfer):
                    item.work.wait()
                    self._count_sent(item.data, item.start)
                else:
                    self._send(item)
        except Exception as error:
            self._lost(self._target, error)

    def _begun(self, message: Message) -> Message | _Transfer:
        """Starts to send a message of one frame; returns a message that has to be queued."""
        with self._unsent_lock:
            if self._unsent or HEADER_BYTES + len(message.body) > FRAME_BYTES:
                self._unsent += 1
                return message
            tensor, start = self._tensor(message), time.perf_counter()
            try:
                return _Transfer(self._group.send([tensor], self._target, _TAG), tensor, start)
            except Exception as error:
                self._lost(self._target, error)
                return message

    def _send(self, message: Message) -> None:
        tensor, start = self._tensor(message), time.perf_counter()
        for frame in tensor.split(FRAME_BYTES):
            self._group.send([frame], self._target, _TAG).wait()
        self._count_sent(tensor, start)
        with self._unsent_lock:
            self._unsent -= 1

    def _tensor(self, message: Message) -> Any:
        data = bytearray(message.header())
        data += message.body
        return self._torch.frombuffer(data, dtype=self._torch.uint8)

    def _count_sent(self, data: Any, start: float) -> None:
        self.stats.send_seconds += time.perf_counter() - start
        self.stats.num_sent += 1
        self.stats.sent_bytes += len(data)

    def _receive_all(self) -> None:
        try:
            message = self._receive()
            while message.kind is not Kind.CLOSE:
                self._inbox.put(message)
                message = self._receive()
            self._inbox.put(message)
        except Exception as error:
            self._lost(self._source, error)

    def _receive(self) -> Message:
        first = self._frame()
        start = time.perf_counter()
        kind, number, length = read_header(first)
        body = bytearray(first[HEADER_BYTES : HEADER_BYTES + length])
        while len(body) < length:
            body += self._frame()[: length - len(body)]
        self.stats.receive_seconds += time.perf_counter() - start
        self.stats.num_received += 1
        self.stats.received_bytes += HEADER_BYTES + length
        return Message(kind, number, memoryview(body))

    def _frame(self) -> memoryview:
        """Waits for a frame and returns a view of it, which the next call overwrites."""
        self._group.recv([self._received], self._source, _TAG).wait()
        return self._received_bytes

    def _lost(self, rank: int, error: Exception) -> None:
        if self._has_ended or self._monitor is None:
            return
        if isinstance(error, ClusterError):
            self._monitor.fail(str(error))
        else:
            self._monitor.lost(rank, "has ended or cannot be reached")
