"""Device: the interface of a processor with separate memory, on which the CUDA engine runs.

`cuda.py` implements it for a GPU. The tests have an emulator that runs on the CPU.
"""

from collections.abc import Callable, Iterable, Sequence
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
Event: TypeAlias = Any  # the device's own type
Work = Callable[[], None]


class Device(Protocol):
    """A processor with separate memory, such as a GPU.

    Calls are executed in order; only those given to `on_side_stream` run in parallel.
    """

    @property
    def name(self) -> str:
        """The name of the device."""

    @property
    def num_gpus(self) -> int:
        """The number of GPUs that the driver shows on this machine."""

    def open_peer(self, index: int) -> "Device":
        """Opens another GPU of this machine; each of the two can copy from the other.

        Raises DeviceError for a GPU that is missing or cannot be used.
        """

    @property
    def free_bytes(self) -> int:
        """The bytes that can be allocated now."""

    @property
    def has_stream_words(self) -> bool:
        """True if `write_word` and `await_word` work."""

    @property
    def library_fault(self) -> str | None:
        """Why `matmul`, `batched_matmul` and `attend` cannot be called; None if they can."""

    def allocate(self, num_bytes: int) -> Memory:
        """Allocates memory, its contents undefined; raises DeviceError if there is too little."""

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        """Allocates page-locked host memory that kernels can read.

        Returns it as the device's memory, and as an array of the host over the same bytes.
        """

    def page_lock(self, arrays: Sequence[HostArray]) -> object:
        """Page-locks arrays in place, so that `register_array` can return them as memory.

        They stay locked while the returned object or memory of them lives. Returns None, and
        page-locks none of them, if the driver refuses one.
        """

    def register_array(self, array: HostArray) -> Memory | None:
        """Page-locks an array in place and returns it as memory that kernels can read.

        Returns None if the driver does not allow it. The memory keeps the array alive.
        """

    def upload(self, target: Span, source: HostArray) -> None:
        """Starts copying a host array to the device; the array may be changed after the call."""

    def copy(self, target: Span, source: Span) -> None:
        """Starts a copy between memories that the device sees, page-locked memory included."""

    def download(self, source: Span, target: HostArray) -> None:
        """Copies to the host, and waits for the end of the copy."""

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Compiles kernels in parallel ahead of their launches; raises KernelError."""

    def launch(self, launch: Launch) -> None:
        """Launches a kernel; returns before the kernel ends.

        Raises DependentLaunchError if it may not start before the preceding one has ended.
        """

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

    def attends(self, shape: AttendShape) -> bool:
        """Returns True if `attend` supports this shape, whatever its `tokens` and `positions`."""

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        """Computes causal attention of many tokens over a paged f16 KV cache, with a library.

        q (tokens, heads, key_dim) and out (tokens, heads, value_dim) are float32, keys and values
        (pages, KV heads, page positions, dim) f16. The queries belong to the last `shape.tokens`
        of the sequence's `shape.positions` positions.
        """

    def write_word(self, word: Span, value: int) -> None:
        """Sets a uint32 in page-locked memory once all earlier work is done."""

    def await_word(self, word: Span, value: int, host_work: Work) -> None:
        """Makes later work wait until a uint32 in page-locked memory equals `value`.

        Another thread of the host sets it. A synchronous device, such as the tests' emulator,
        calls `host_work`, which waits for that thread.
        """

    def on_side_stream(self, work: Sequence[Work]) -> Event:
        """Runs these calls on the side stream, after all earlier work and beside later work.

        Calls on the side stream run in order. Returns an event for the end of these calls.
        """

    def after(self, event: Event) -> None:
        """Makes later work of the device wait for an event, without blocking the host."""

    def record_event(self) -> Event:
        """Returns an event for the end of all work so far, like a recorded CUDA event."""

    def wait(self, event: Event) -> None:
        """Blocks the host until all work before the event is done."""

    def record(self, work: Sequence[Work]) -> Work:
        """Records these calls as a CUDA graph, and returns the call that launches it.

        The kernels must have run before, because none may be loaded during a capture. Raises
        DeviceError if the driver refuses; a capture that has failed is ended.
        """

    def synchronise(self) -> None:
        """Blocks the host until all work so far is done."""
