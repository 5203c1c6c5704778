"""Device: the interface of a processor with memory of its own, which the CUDA engine runs on.

It has two implementations: a GPU (`cuda.py`), and the emulator of the tests, which runs on the CPU.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sharpi.device.launch import Kernel, Launch, Memory, Span


class AttendShape(NamedTuple):
    """The sizes of a call of `Device.attend`."""

    tokens: int
    positions: int
    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    scale: float
    page_positions: int


HostArray = npt.NDArray[Any]
Mark: TypeAlias = Any  # the device's own type
Work = Callable[[], None]


class Device(Protocol):
    """A processor with memory of its own.

    It works in the order of the calls; only work `on_side_stream` runs in parallel.
    """

    @property
    def name(self) -> str:
        """The name of the device."""

    @property
    def num_gpus(self) -> int:
        """The number of GPUs that the driver shows on this machine."""

    def sibling(self, index: int) -> "Device":
        """Opens another GPU of this machine; each of the two can copy from the other.

        Raises DeviceError for a GPU that is missing or cannot be used.
        """

    @property
    def free_bytes(self) -> int:
        """The bytes that can be allocated now."""

    @property
    def has_stream_words(self) -> bool:
        """True if `write_word` and `await_word` work."""

    def allocate(self, num_bytes: int) -> Memory:
        """Allocates memory, its contents undefined; raises DeviceError if there is too little."""

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        """Allocates page-locked memory that kernels can read; returns it and the host's view."""

    def page_lock(self, arrays: Sequence[HostArray]) -> bool:
        """Page-locks arrays in place, so that `adopt` can return them as memory.

        Returns False, and page-locks none of them, if the driver refuses one. The arrays must
        outlive the device.
        """

    def adopt(self, array: HostArray) -> Memory | None:
        """Page-locks an array in place and returns it as memory that kernels can read.

        Returns None if the driver does not allow it. The array must outlive the memory.
        """

    def upload(self, target: Span, source: HostArray) -> None:
        """Copies a host array to the device; the array may be changed once this returns."""

    def copy(self, target: Span, source: Span) -> None:
        """Starts a copy between memories that the device sees, page-locked memory included."""

    def download(self, source: Span, target: HostArray) -> None:
        """Copies to the host, and waits for the end of the copy."""

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Compiles kernels in parallel, so that their first launches do not have to."""

    def launch(self, launch: Launch) -> None:
        """Launches a kernel; returns before the kernel ends."""

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        """Computes out (T, rows) = x (T, columns) weights (rows, columns)^T, all f16.

        `shape` is (T, rows, columns).
        """

    def batched_matmul(
        self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int, int]
    ) -> None:
        """Computes out[:, m] (T, rows) = x[:, m] (T, columns) weights[m] (rows, columns)^T, in f16.

        `shape` is (T, matrices, rows, columns): x is (T, matrices, columns), out (T, matrices,
        rows).
        """

    @property
    def has_grouped_products(self) -> bool:
        """True if `grouped_matmul` works, and does not wait."""

    def grouped_matmul(
        self, x: Span, weights: Span, out: Span, offsets: Span, shape: tuple[int, int, int, int]
    ) -> None:
        """Computes out (T, rows) = x (T, columns) weights[e] (rows, columns)^T, all bf16.

        `shape` is (T, matrices, rows, columns). Matrix e has the rows of x from offsets[e] to
        offsets[e + 1], int32 (matrices + 1,) that begin with 0. Rows after the last offset get
        undefined values.
        """

    def attends(self, shape: AttendShape) -> bool:
        """Returns True if `attend` supports heads of this shape, for any tokens and positions."""

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        """Computes causal attention of many tokens over a paged f16 KV cache, with a library.

        q (tokens, heads, key_dim) and out (tokens, heads, value_dim) are float32, keys and values
        (pages, KV heads, page positions, dim) f16. The tokens are the last of `shape.positions`.
        """

    def torch_stream(self) -> AbstractContextManager[Any]:
        """Returns a context in which torch's calls run in order with the device's other work."""

    def tensor(self, span: Span) -> Any:
        """Returns a tensor of torch over the bytes of a span, which is not copied."""

    def write_word(self, word: Span, value: int) -> None:
        """Sets a uint32 in page-locked memory once all earlier work is done."""

    def await_word(self, word: Span, value: int, meanwhile: Work) -> None:
        """Holds later work back until a uint32 in page-locked memory has this value.

        Another thread of the host sets the value. A device that works synchronously waits for that
        thread by calling `meanwhile`.
        """

    def on_side_stream(self, work: Sequence[Work]) -> Mark:
        """Runs this work after all earlier work, in parallel to later work.

        Work on the side stream keeps its own order. The returned mark stands for its end.
        """

    def after(self, mark: Mark) -> None:
        """Makes later work wait until the work that the mark stands for is done."""

    def mark(self) -> Mark:
        """Returns a mark that stands for the end of all work so far."""

    def wait(self, mark: Mark) -> None:
        """Waits until the work that the mark stands for is done."""

    def record(self, work: Sequence[Work]) -> Work:
        """Records these calls as one, a CUDA graph where the device has graphs, and returns it."""

    def synchronise(self) -> None:
        """Waits until all work so far is done."""
