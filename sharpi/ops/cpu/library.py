"""The native CPU library: the functions that run operations, and the pool of threads."""

import ctypes
from collections.abc import Collection, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sharpi.errors import SharpiError, UsageError
from sharpi.gguf.quant_types import QuantType
from sharpi.native import declare, open_library
from sharpi.ops.cpu import abi
from sharpi.ops.interface import FloatArray

INSTRUCTION_SETS = ("avx512_vbmi", "avx512_vnni", "avx_vnni", "avx2", "sse41", "neon", "portable")


@cache
def load_library() -> ctypes.CDLL:
    """Loads the native library and declares its functions; raises SharpiError if it is missing."""
    library = open_library()
    signatures = {
        "sharpi_instruction_set": (c_char_p, [c_char_p]),
        "sharpi_missing_features": (c_int, [c_char_p, c_char_p, c_size_t]),
        "sharpi_pool_create": (c_void_p, [c_int, POINTER(abi.ThreadPlace)]),
        "sharpi_pool_destroy": (None, [c_void_p]),
        "sharpi_pool_interrupt": (None, [c_void_p, c_int]),
        "sharpi_pool_progress": (c_float, [c_void_p]),
        "sharpi_program_create": (c_void_p, [c_char_p, c_int, c_int, c_int]),
        "sharpi_program_destroy": (None, [c_void_p]),
        "sharpi_program_add": (c_int, [c_void_p, c_int, c_void_p, c_size_t]),
        "sharpi_program_share_rows": (None, [c_void_p]),
        "sharpi_program_page_spans": (
            c_int64,
            [c_void_p, c_void_p, POINTER(abi.PageSpan), c_int64],
        ),
        "sharpi_place_pages": (c_int, [c_void_p, c_size_t, c_int]),
        "sharpi_program_seal": (c_int64, [c_void_p]),
        "sharpi_program_seal_within": (c_int, [c_void_p, c_void_p]),
        "sharpi_program_run": (c_int, [c_void_p, c_void_p, POINTER(abi.Step), c_int]),
    }
    return declare(library, signatures)


def instruction_set(name: str | None = None) -> str:
    """Returns the instruction set of the kernels: `name`, or by default the machine's best.

    Raises UsageError if the machine lacks it.
    """
    found = _find(name)
    if found is None:
        choices = ", ".join(filter(_find, INSTRUCTION_SETS))
        raise UsageError(f"this machine has no {name} kernels; choose one of {choices}")
    return found


def best_without(unwanted: Collection[str]) -> str:
    """Returns this machine's best instruction set that is not in `unwanted`.

    If all supported ones are in `unwanted`, returns the best of them.
    """
    known = (name for name in INSTRUCTION_SETS if name not in unwanted)
    return next((name for name in known if _find(name)), instruction_set())


def _find(name: str | None) -> str | None:
    found = load_library().sharpi_instruction_set(None if name is None else name.encode())
    return None if found is None else bytes(found).decode()


def better_instruction_sets() -> dict[str, list[str]]:
    """Returns the instruction sets better than this machine's best, with the missing CPU features.

    The best instruction set is first. Features have the compiler's names, such as avx512f.
    """
    better = INSTRUCTION_SETS[: INSTRUCTION_SETS.index(instruction_set())]
    return {name: missing for name in better if (missing := _missing_features(name))}


def _missing_features(name: str) -> list[str]:
    """Returns the CPU features that this machine lacks; none for another CPU architecture's set."""
    names = ctypes.create_string_buffer(1024)
    if load_library().sharpi_missing_features(name.encode(), names, len(names)) <= 0:
        return []
    return names.value.decode().split(", ")


_SIGNATURE = (c_int, [c_char_p, c_int, c_void_p, c_int, POINTER(c_float)])


def dequantise_rows(quant_type: QuantType, rows: npt.NDArray[np.uint8], columns: int) -> FloatArray:
    """Returns quantised rows, (..., bytes of a row), as float32 (..., columns)."""
    library = declare(open_library(), {"sharpi_dequantise": _SIGNATURE})
    data = np.ascontiguousarray(rows)
    values = np.empty((*data.shape[:-1], columns), np.float32)
    flat, out = data.reshape(-1, data.shape[-1]), values.reshape(-1, columns)
    for row, target in zip(flat, out, strict=True):
        pointer = target.ctypes.data_as(POINTER(c_float))
        status = library.sharpi_dequantise(
            None, int(quant_type), ctypes.c_void_p(row.ctypes.data), columns, pointer
        )
        assert status == 0, f"sharpi_dequantise answered {status}"
    return values


class Place(Protocol):
    """A thread's cores, NUMA node, cache group and speed; hardware/topology.py implements it."""

    @property
    def cores(self) -> tuple[int, ...]: ...
    @property
    def node(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def speed(self) -> float: ...


class ThreadPool:
    """Persistent native threads; `num_threads` includes the calling thread.

    With `places`, one for each thread, threads are bound to cores, and receive work in proportion
    to their speed. Raises SharpiError if the system does not allow so many threads.
    """

    def __init__(self, num_threads: int, places: Sequence[Place] = ()) -> None:
        self.num_threads = num_threads
        self.address = int(load_library().sharpi_pool_create(num_threads, _native(places)) or 0)
        if not self.address:
            raise SharpiError(f"the system does not start {num_threads} threads; lower -t")

    @property
    def handle(self) -> int:
        """The address of the native object; raises ValueError after `close`."""
        if not self.address:
            raise ValueError("the thread pool is closed")
        return self.address

    def interrupt(self, *, wanted: bool = True) -> None:
        """Makes runs of programs end early, between two layers, until called with `wanted=False`.

        Any thread may call it. After `close` it does nothing.
        """
        if self.address:
            load_library().sharpi_pool_interrupt(self.address, wanted)

    @property
    def progress(self) -> float:
        """The fraction of the current run that is done, 0 to 1; any thread may read it."""
        if not self.address:
            return 0.0
        return float(load_library().sharpi_pool_progress(self.address))

    def close(self) -> None:
        """Stops the threads; a second call does nothing."""
        if self.address:
            load_library().sharpi_pool_destroy(self.address)
            self.address = 0


def _native(places: Sequence[Place]) -> "ctypes.Array[abi.ThreadPlace] | None":
    if not places:
        return None
    return (abi.ThreadPlace * len(places))(
        *(
            abi.ThreadPlace(
                cores=(ctypes.c_int32 * len(place.cores))(*place.cores),
                num_cores=len(place.cores),
                node=place.node,
                group=place.group,
                speed=place.speed,
            )
            for place in places
        )
    )
