"""StagedUpload: uploads through a ring of page-locked buffers, which several threads fill.

The driver copies pageable memory through a buffer on one thread, and waits for each copy. Here,
threads fill the next buffers while the previous ones are copied over the bus, and nobody waits for
a small copy.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
CHUNK_BYTES = 4 << 20
SMALL_BYTES = 64 << 10  # which the caller's thread copies faster itself
BUFFERS, THREADS = 8, 4


class StagedUpload:
    """Uploads through buffers of `chunk_bytes` bytes, which `mapped` allocates.

    `mapped(bytes)` returns page-locked memory, and a host array over it. `copy(target, source,
    bytes)` starts a copy between addresses on the device's stream. `record_event` returns a CUDA
    event after the copies so far.
    """

    def __init__(
        self,
        mapped: Callable[[int], tuple[Any, Bytes]],
        copy: Callable[[int, int, int], None],
        record_event: Callable[[], Any],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._copy, self._record_event, self._chunk_bytes = copy, record_event, chunk_bytes
        self._buffers = [mapped(chunk_bytes) for _ in range(BUFFERS)]
        self._last: list[Any] = [None] * BUFFERS  # the event after each buffer's last copy
        self._next = 0
        self._threads = ThreadPoolExecutor(THREADS, "upload")

    def upload(self, target: int, data: Bytes) -> None:
        """Starts the copies of `data` to the device; the caller may change `data` afterwards."""
        filling: deque[tuple[Future[int], int, int]] = deque()
        for start in range(0, data.nbytes, self._chunk_bytes):
            index, self._next = self._next, (self._next + 1) % BUFFERS
            if len(filling) == BUFFERS:
                self._send(target, *filling.popleft())
            filled = self._filled(index, data[start : start + self._chunk_bytes])
            filling.append((filled, index, start))
        while filling:
            self._send(target, *filling.popleft())

    def _filled(self, index: int, chunk: Bytes) -> "Future[int]":
        if chunk.nbytes > SMALL_BYTES:
            return self._threads.submit(self._fill, index, chunk)
        done = Future[int]()
        done.set_result(self._fill(index, chunk))
        return done

    def _fill(self, index: int, chunk: Bytes) -> int:
        if self._last[index] is not None:
            self._last[index].synchronize()
        self._buffers[index][1][: chunk.nbytes] = chunk
        return int(chunk.nbytes)

    def _send(self, target: int, filled: "Future[int]", index: int, start: int) -> None:
        num_bytes, (memory, _) = filled.result(), self._buffers[index]
        self._copy(target + start, memory.address, num_bytes)
        self._last[index] = self._record_event()

    def close(self) -> None:
        """Ends the threads; the buffers are freed with the object."""
        self._threads.shutdown()
