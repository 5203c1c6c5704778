"""Measures how fast a GPU reads its memory, and the host's memory over the bus.

Benchmarks compare the kernels with these limits. `sharpi.ops.cpu.machine_limits` measures the
limits of the CPU.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

import numpy as np

from sharpi.device.device import Device, Work
from sharpi.device.launch import Kernel, Launch, Memory, Span
from sharpi.errors import UnsupportedModelError
from sharpi.gguf.quant_types import QuantType

BYTES_A_TRY = 1 << 30  # well beyond any GPU's cache
BUS_BYTES_A_TRY = 128 << 20
READS_OF_A_TRY = 16  # reads in one graph, so that the host's part of the time is negligible
TRIES = 5
# Random bytes, repeated to fill the memory; zeros may be read faster than weights.
_CHUNK_BYTES = 32 << 20
_THREADS, _BLOCK_BYTES, _WORD_BYTES = 256, 128 << 10, 16
_SUMS_OF_BLOCK, _SUM_BYTES = 8, 4


class GpuLimits:
    """The best reading rates of a GPU so far, in bytes/s; a measurement frees its memory."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._read, self._bus = 0.0, 0.0

    def measure(self) -> None:
        """Measures the rate of reading BYTES_A_TRY of the GPU's memory, or half of what is free."""
        size = _whole_words(min(BYTES_A_TRY, self._device.free_bytes // 2))
        memory = filled_memory(self._device, size)
        self._read = max(self._read, read_bytes_per_second(self._device, memory))

    def measure_bus(self) -> None:
        """Measures the rate at which the GPU reads page-locked memory of the host."""
        memory, host = self._device.mapped(_whole_words(BUS_BYTES_A_TRY))
        host[:] = np.resize(random_bytes(len(host)), len(host))
        self._bus = max(self._bus, read_bytes_per_second(self._device, memory))

    @property
    def bytes_per_second(self) -> float:
        """The best rate of reading the GPU's memory; call `measure` first."""
        return self._read

    @property
    def bus_bytes_per_second(self) -> float:
        """The best rate of reading the host's memory in place; call `measure_bus` first."""
        return self._bus


def read_bytes_per_second(device: Device, memory: Memory) -> float:
    """Returns the best of a few measured rates of reading a memory."""
    sums = device.allocate(sums_bytes(memory.num_bytes))
    whole = Span(memory, 0, memory.num_bytes)
    launch = read_rate(whole, Span(sums, 0, sums.num_bytes))
    seconds = min(replay_seconds(device, [launch] * READS_OF_A_TRY, TRIES))
    return READS_OF_A_TRY * memory.num_bytes / seconds


def read_rate(data: Span, sums: Span) -> Launch:
    """Launches the kernel that reads `data`, a multiple of 16 bytes.

    It writes `sums` (blocks, 8) uint32, the XOR of the words that each warp read.
    """
    return Launch(
        Kernel("read_rate", "read_rate"),
        grid=(_num_blocks(data.num_bytes), 1, 1),
        block=_THREADS,
        arguments=(data, sums, np.int64(data.num_bytes // _WORD_BYTES)),
        writes=frozenset({1}),
    )


def sums_bytes(num_bytes: int) -> int:
    """Returns the bytes of the array `sums` of `read_rate` for `num_bytes` of data."""
    return _num_blocks(num_bytes) * _SUMS_OF_BLOCK * _SUM_BYTES


def _num_blocks(num_bytes: int) -> int:
    return -(-num_bytes // _BLOCK_BYTES)


def replay_seconds(device: Device, launches: Sequence[Launch], tries: int) -> list[float]:
    """Measures `tries` times how many seconds a graph of these launches runs; returns all results.

    The launches and the graph run once before. Each measurement launches the graph once and waits
    once, so that the host's share of the time is small.
    """
    work: list[Work] = [partial(device.launch, launch) for launch in launches]
    for each in work:
        each()
    graph = device.record(work)
    return [_seconds(device, graph) for _ in range(tries + 1)][1:]


def _seconds(device: Device, graph: Work) -> float:
    device.synchronise()
    start = time.perf_counter()
    graph()
    device.synchronise()
    return time.perf_counter() - start


def filled_memory(device: Device, num_bytes: int) -> Memory:
    """Allocates GPU memory full of random bytes; raises DeviceError if there is too little."""
    memory, chunk = device.allocate(num_bytes), random_bytes(num_bytes)
    for start in range(0, num_bytes, len(chunk)):
        part = chunk[: num_bytes - start]
        device.upload(Span(memory, start, len(part)), part)
    return memory


def random_bytes(most: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Returns at most `most` random bytes, which callers repeat to fill a larger memory."""
    size = min(most, _CHUNK_BYTES)
    return np.frombuffer(np.random.default_rng(0).bytes(size), np.uint8)


def _whole_words(num_bytes: int) -> int:
    return max(_WORD_BYTES, num_bytes // _WORD_BYTES * _WORD_BYTES)


GPU_TYPES: Final = frozenset(
    QuantType[name]
    for name in (
        "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
        "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
        "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0", "NVFP4", "Q1_0", "Q2_0",
    )
)  # fmt: skip


def raise_unsupported(what: str) -> NoReturn:
    """Raises UnsupportedModelError, which says that there are no CUDA kernels for `what`.

    If the model then runs on the CPU, the message becomes a note to the user.
    """
    raise UnsupportedModelError(f"there are no CUDA kernels for {what} yet")


def check_type(quant_type: QuantType) -> None:
    """Raises UnsupportedModelError for a quant type that no kernel reads."""
    if quant_type not in GPU_TYPES:
        raise_unsupported(f"{quant_type.name} weights")
