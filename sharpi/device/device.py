"""A processor with memory of its own, as the CUDA engine sees it.

Two implementations: a GPU (`cuda.py`), and the tests' execution of the same kernels on the CPU.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpi.device.launch import Launch, Memory, Span


class AttendShape(NamedTuple):
    """Sizes of `Device.attend`."""

    tokens: int
    positions: int
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    page_positions: int


HostArray = npt.NDArray[Any]
Mark: TypeAlias = Any  # a device's own
Work = Callable[[], None]


class Device(Protocol):
    """Everything happens in the order of the calls, but for what is done `on_side_stream`."""

    @property
    def name(self) -> str:
        """What the device is called."""

    @property
    def free_bytes(self) -> int:
        """Memory that can be allocated now."""

    def allocate(self, num_bytes: int) -> Memory:
        """Memory of its own, contents undefined; raises DeviceError where there is not so much."""

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        """Page-locked memory of the host that kernels can read, and the host's view of it."""

    def adopt(self, array: HostArray) -> Memory | None:
        """Memory of the host, page-locked where it lies, that kernels can read.

        None where the driver does not allow that; the array has to stay.
        """

    def upload(self, target: Span, source: HostArray) -> None:
        """Copies an array of the host; it may be changed once this returns."""

    def copy(self, target: Span, source: Span) -> None:
        """Copies between memories the device sees, page-locked ones too; returns before it ends."""

    def download(self, source: Span, target: HostArray) -> None:
        """Copies to the host, and waits for it."""

    def launch(self, launch: Launch) -> None:
        """Starts a kernel; returns before it ends."""

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        """out (T, rows) = x (T, columns) weights (rows, columns)^T, all f16; T, rows, columns."""

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        """Causal attention of many tokens over a paged f16 KV cache, by the device's library.

        q (tokens, heads, key_dim) and out (tokens, heads, value_dim) floats; keys and values
        (pages, KV heads, page positions, dim) f16; the tokens are the last of `shape.positions`.
        """

    def write_word(self, word: Span, value: int) -> None:
        """Sets a uint32 of page-locked memory once everything so far is done."""

    def await_word(self, word: Span, value: int, meanwhile: Work) -> None:
        """Lets what follows begin only when a uint32 of page-locked memory has this value.

        `meanwhile` is what the host does for that: called here, but not while work is recorded,
        whose replay is followed by it.
        """

    def on_side_stream(self, work: Sequence[Work]) -> Mark:
        """Does this after what was asked for before, but beside what is asked for from now on.

        One such piece of work comes after the other. The mark is that of its end.
        """

    def after(self, mark: Mark) -> None:
        """Lets what follows begin only when what the mark stands for is done."""

    def record(self, work: Sequence[Work]) -> Work:
        """One call that does what these calls do: a CUDA graph, where the device has such."""

    def synchronise(self) -> None:
        """Returns when everything so far is done."""
