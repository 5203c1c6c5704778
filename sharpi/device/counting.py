"""CountingDevice: a device without memory that counts allocated bytes, for plans."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.device.device import AttendShape, Device, Event, HostArray, Work
from sharpi.device.launch import Kernel, Launch, Memory, Span

_FAKE_ADDRESS = 1 << 40


class NoMemory(NamedTuple):
    """Memory that has a size and an address but no contents."""

    address: int
    num_bytes: int


class CountingDevice:
    """A `Device` that adds up allocated bytes in `num_bytes`, runs nothing and stores nothing."""

    name = "none"
    free_bytes = 1 << 40
    has_stream_words = True
    num_gpus = 1

    def __init__(self) -> None:
        self.num_bytes = 0

    def open_peer(self, index: int) -> Device:
        raise RuntimeError("a counting device has no other GPU")

    def allocate(self, num_bytes: int) -> Memory:
        self.num_bytes += num_bytes
        return NoMemory(_FAKE_ADDRESS, num_bytes)

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        raise RuntimeError("a counting device has no memory to map")

    def page_lock(self, arrays: Sequence[HostArray]) -> bool:
        return True

    def register_array(self, array: HostArray) -> Memory | None:
        return NoMemory(_FAKE_ADDRESS, array.nbytes)

    def upload(self, target: Span, source: HostArray) -> None:
        """Does nothing: there is no memory to write."""

    def copy(self, target: Span, source: Span) -> None:
        """Does nothing: there is no memory to write."""

    def download(self, source: Span, target: HostArray) -> None:
        raise RuntimeError("a counting device has nothing to read")

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Does nothing."""

    def launch(self, launch: Launch) -> None:
        """Does nothing."""

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        """Does nothing."""

    def batched_matmul(
        self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int, int]
    ) -> None:
        """Does nothing."""

    def attends(self, shape: AttendShape) -> bool:
        return True

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        """Does nothing."""

    def write_word(self, word: Span, value: int) -> None:
        """Does nothing."""

    def await_word(self, word: Span, value: int, host_work: Work) -> None:
        """Does nothing."""

    def on_side_stream(self, work: Sequence[Work]) -> Event:
        return None

    def after(self, event: Event) -> None:
        """Does nothing."""

    def record_event(self) -> Event:
        return None

    def wait(self, event: Event) -> None:
        """Does nothing: no work is in progress."""

    def record(self, work: Sequence[Work]) -> Work:
        return lambda: None

    def synchronise(self) -> None:
        """Does nothing."""
