"""A device that has no memory and counts what is asked of it: what a plan is made from."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.device.device import AttendShape, HostArray, Mark, Work
from sharpi.device.launch import Launch, Memory, Span

_SOMEWHERE = 1 << 40


class NoMemory(NamedTuple):
    """A size and an address that nothing reads."""

    address: int
    num_bytes: int


class CountingDevice:
    """`num_bytes` allocated; nothing runs, so nothing can be read back or mapped."""

    name = "none"
    free_bytes = _SOMEWHERE

    def __init__(self) -> None:
        self.num_bytes = 0

    def allocate(self, num_bytes: int) -> Memory:
        self.num_bytes += num_bytes
        return NoMemory(_SOMEWHERE, num_bytes)

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        raise RuntimeError("a counting device has no memory to map")

    def adopt(self, array: HostArray) -> Memory | None:
        return NoMemory(_SOMEWHERE, array.nbytes)

    def upload(self, target: Span, source: HostArray) -> None:
        """Nothing is kept."""

    def copy(self, target: Span, source: Span) -> None:
        """Nothing is kept."""

    def download(self, source: Span, target: HostArray) -> None:
        raise RuntimeError("a counting device has nothing to read")

    def launch(self, launch: Launch) -> None:
        """Nothing runs."""

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        """Nothing runs."""

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        """Nothing runs."""

    def write_word(self, word: Span, value: int) -> None:
        """Nothing runs."""

    def await_word(self, word: Span, value: int, meanwhile: Work) -> None:
        """Nothing runs."""

    def on_side_stream(self, work: Sequence[Work]) -> Mark:
        return None

    def after(self, mark: Mark) -> None:
        """Nothing runs."""

    def record(self, work: Sequence[Work]) -> Work:
        return lambda: None

    def synchronise(self) -> None:
        """Nothing runs."""
