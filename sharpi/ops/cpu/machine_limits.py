"""Measures the limits of the machine: bytes read per second, and int8 operations per second.

Benchmarks compare the kernels with these limits. A limit is the best of several tries, because
other load can only make a try slower.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_void_p
from functools import cache

import numpy as np
import numpy.typing as npt

from sharpi.errors import UsageError
from sharpi.native import declare
from sharpi.ops.cpu.library import load_library

BYTES_A_TRY, LEAST_BYTES_A_TRY = 1 << 30, 64 << 20
SECONDS_A_READ = 0.1
SECONDS_A_TRY = 0.02


class MachineLimits:
    """The best memory and int8 rates measured so far, by number of threads.

    The reading rate is measured on `pages`, the arrays of a mapped model.
    """

    def __init__(self, pages: Sequence[npt.NDArray[np.uint8]], instruction_set: str) -> None:
        self._pages = pages
        self._instruction_set = instruction_set
        self._bytes: dict[int, float] = {}
        self._operations: dict[int, float] = {}

    def measure(self, num_threads: int) -> None:
        """Measures the reading rate and the int8 rate once more, and keeps the best ones."""
        read = read_bytes_per_second(self._pages, num_threads)
        self._bytes[num_threads] = max(read, self._bytes.get(num_threads, 0.0))
        peak = int8_operations_per_second(self._instruction_set, num_threads)
        self._operations[num_threads] = max(peak, self._operations.get(num_threads, 0.0))

    def bytes_per_second(self, num_threads: int) -> float:
        """Returns the best measured reading rate; `measure` must have been called before."""
        return self._bytes[num_threads]

    def operations_per_second(self, num_threads: int) -> float:
        """Returns the best measured int8 rate; `measure` must have been called before."""
        return self._operations[num_threads]


@cache
def _library() -> ctypes.CDLL:
    ranges = [POINTER(c_void_p), POINTER(c_size_t), c_int]
    signatures = {
        "sharpi_read_seconds": (c_double, [*ranges, c_int, c_int]),
        "sharpi_int8_operations_per_second": (c_double, [c_char_p, c_int, c_double]),
    }
    return declare(load_library(), signatures)


def read_bytes_per_second(
    parts: Sequence[npt.NDArray[np.uint8]], num_threads: int, tries: int = 3
) -> float:
    """Returns the best of `tries` measured rates at which threads read the first GiB of `parts`.

    Arrays of less than a GiB in total are read repeatedly. A machine that would take long for a GiB
    reads less. Raises ValueError if all arrays are empty.
    """
    if not any(part.nbytes for part in parts):
        raise ValueError("there is nothing to read")
    least = _read_rate(parts, num_threads, LEAST_BYTES_A_TRY)
    count = max(LEAST_BYTES_A_TRY, min(BYTES_A_TRY, int(least * SECONDS_A_READ)))
    return max(_read_rate(parts, num_threads, count) for _ in range(tries))


def _read_rate(parts: Sequence[npt.NDArray[np.uint8]], num_threads: int, count: int) -> float:
    """Measures once how fast threads read the first `count` bytes; fewer are read repeatedly."""
    parts = _first_bytes(parts, count)
    total = sum(part.nbytes for part in parts)
    passes = max(1, count // total)
    addresses = (c_void_p * len(parts))(*(part.ctypes.data for part in parts))
    sizes = (c_size_t * len(parts))(*(part.nbytes for part in parts))
    seconds = _library().sharpi_read_seconds(addresses, sizes, len(parts), num_threads, passes)
    return float(total * passes / seconds)


def _first_bytes(parts: Sequence[npt.NDArray[np.uint8]], count: int) -> list[npt.NDArray[np.uint8]]:
    taken = []
    for part in parts:
        if part.nbytes and count > 0:
            taken.append(part[:count])
            count -= part.nbytes
    return taken


def int8_operations_per_second(instruction_set: str, num_threads: int, tries: int = 3) -> float:
    """Measures an instruction set's peak int8 operations per second; a multiply-add counts as two.

    Raises UsageError if the machine lacks the instruction set.
    """
    measure = _library().sharpi_int8_operations_per_second
    best = max(measure(instruction_set.encode(), num_threads, SECONDS_A_TRY) for _ in range(tries))
    if best < 0:
        raise UsageError(f"this machine has no {instruction_set} kernels")
    return float(best)
