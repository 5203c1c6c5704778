"""Channel: messages to the next rank and from the one before, over torch.distributed's sends.

One thread sends and another receives, so that no step waits for an earlier step's transfer, and a
lost rank is noticed at once. A message travels in frames. The receiver posts its receive for the
next frame before that frame is sent, which saves gloo a round trip. If the last message came soon,
`receive` polls for the next one with short sleeps, since a core that has slept for milliseconds
computes slowly for the next few milliseconds.
"""

import queue
import threading
import time
from typing import Any

from sharpi.cluster.message import HEADER_BYTES, Kind, Message, read_header
from sharpi.cluster.watch import Watch
from sharpi.cluster.wire_count import WireCount
from sharpi.errors import ClusterError
from sharpi.system.closing import Closing

FRAME_BYTES = 256 << 10
_LEAVE_SECONDS = 5.0
_TAG = 0
_AWAKE_SECONDS = 0.1  # of waiting before a rank goes to sleep
_NAP_SECONDS = 5e-5
_MAX_QUEUED = 4  # messages each way, which bounds the memory of prompts' values


class Channel(Closing):
    """Sends to one rank of torch.distributed's group and receives from another; see `start`."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._source, self._target = torch, 0, 0
        # Sends without torch.distributed's checks of every call, which take as long as the wire.
        self._group = torch.distributed.group.WORLD
        self._received = torch.empty(FRAME_BYTES, dtype=torch.uint8)
        self._received_bytes = memoryview(self._received.numpy())
        self._outbox: queue.Queue[Message | None] = queue.Queue(_MAX_QUEUED)
        self._inbox: queue.Queue[Message | str] = queue.Queue(_MAX_QUEUED)
        self._watch: Watch | None = None
        self._fault: str | None = None
        self._has_ended = False
        self.count = WireCount()
        self._waits_awake = True
        self._threads = [
            threading.Thread(target=work, name="channel", daemon=True)
            for work in (self._send_all, self._receive_all)
        ]

    def start(self, watch: Watch, source: int, target: int) -> None:
        """Begins to send to `target` and to receive from `source`; reports failures to `watch`."""
        self._watch, self._source, self._target = watch, source, target
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Queues a message to be sent; blocks while the queue is full."""
        while True:
            self._require_sound()
            try:
                return self._outbox.put(message, timeout=0.2)
            except queue.Full:
                continue

    def receive(self) -> Message:
        """Waits for the next message; raises ClusterError once the group is broken."""
        start = time.perf_counter()
        if self._waits_awake:
            self._wait_awake(start + _AWAKE_SECONDS)
        message = self._inbox.get()
        self._waits_awake = time.perf_counter() - start < _AWAKE_SECONDS
        if isinstance(message, str):
            raise ClusterError(message)
        return message

    def _wait_awake(self, end: float) -> None:
        """Polls with short sleeps until a message has come or the time `end` has passed."""
        while self._inbox.empty() and time.perf_counter() < end:
            time.sleep(_NAP_SECONDS)

    def fail(self, fault: str) -> None:
        """Makes this and every later `receive` and `send` raise `fault`; any thread may call it."""
        self._fault = fault
        while True:
            try:
                return self._inbox.put_nowait(fault)
            except queue.Full:
                self._drop_one()

    def close(self) -> None:
        """Sends what is queued, and waits a few seconds until the source rank has closed, too."""
        if self._has_ended or self._watch is None:
            return
        self._has_ended = True
        if self._fault is None:
            self._outbox.put(None)
        for thread in self._threads:
            thread.join(_LEAVE_SECONDS if self._fault is None else 0.1)

    def _drop_one(self) -> None:
        try:
            self._inbox.get_nowait()
        except queue.Empty:
            return

    def _require_sound(self) -> None:
        if self._fault is not None:
            raise ClusterError(self._fault)

    def _send_all(self) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                self._send(message)
        except Exception as error:
            self._lost(self._target, error)

    def _send(self, message: Message) -> None:
        data = bytearray(message.header())
        data += message.body
        tensor = self._torch.frombuffer(data, dtype=self._torch.uint8)
        start = time.perf_counter()
        for frame in tensor.split(FRAME_BYTES) if len(data) > FRAME_BYTES else (tensor,):
            self._group.send([frame], self._target, _TAG).wait()
        self.count.send_seconds += time.perf_counter() - start
        self.count.num_sent += 1
        self.count.sent_bytes += len(data)

    def _receive_all(self) -> None:
        try:
            kind = None
            while kind is not Kind.CLOSE:
                message = self._receive()
                kind = message.kind
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
        self.count.receive_seconds += time.perf_counter() - start
        self.count.num_received += 1
        self.count.received_bytes += HEADER_BYTES + length
        return Message(kind, number, memoryview(body))

    def _frame(self) -> memoryview:
        """Waits for a frame and returns a view of it, which the next call overwrites."""
        self._group.recv([self._received], self._source, _TAG).wait()
        return self._received_bytes

    def _lost(self, rank: int, error: Exception) -> None:
        if self._has_ended or self._watch is None:
            return
        if isinstance(error, ClusterError):
            self._watch.fail(str(error))
        else:
            self._watch.lost(rank, "has ended or cannot be reached")
