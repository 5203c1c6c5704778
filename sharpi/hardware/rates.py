"""Measures the bandwidth of reads and copies in this machine's RAM."""

import mmap
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import numpy.typing as npt

from sharpi.hardware.memory import probe_memory
from sharpi.ops.cpu.machine_limits import read_bytes_per_second

SAMPLE_BYTES = 256 << 20  # much larger than caches
# at most a quarter of the free memory: under a tight limit, more would end the process
LARGEST_SHARE = 4
TRIES = 3
_LEAST_BYTES = 1 << 20


def measure_ram_read(num_threads: int, most_bytes: int = SAMPLE_BYTES) -> float:
    """Returns the bytes per second that `num_threads` threads read, best of a few tries.

    `most_bytes` limits the memory that they read; a small one may fit in the CPU's caches.
    """
    size = max(_LEAST_BYTES, min(most_bytes, _sample_bytes()))
    return read_bytes_per_second([_touched(size)], num_threads)


def measure_ram_copy(num_threads: int) -> float:
    """Returns the bytes per second that `num_threads` threads copy, best of a few tries.

    Each byte counts once, although it is both read and written.
    """
    half = _sample_bytes() // 2
    source, target = _touched(half), _touched(half)
    parts = list(
        zip(np.array_split(target, num_threads), np.array_split(source, num_threads), strict=True)
    )
    with ThreadPoolExecutor(num_threads) as pool:
        return half / min(_copy_seconds(pool, parts) for _ in range(TRIES))


def _copy_seconds(
    pool: ThreadPoolExecutor, parts: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]
) -> float:
    start = perf_counter()
    list(pool.map(lambda part: np.copyto(*part), parts))
    return perf_counter() - start


def _sample_bytes() -> int:
    return max(mmap.PAGESIZE, min(SAMPLE_BYTES, probe_memory().free // LARGEST_SHARE))


def _touched(count: int) -> npt.NDArray[np.uint8]:
    """Returns an array of `count` bytes whose pages are already allocated."""
    return np.ones(count, np.uint8)
