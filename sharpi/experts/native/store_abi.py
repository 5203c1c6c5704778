"""The C interface of the expert store: its functions, the layout of experts, and its counts."""

import ctypes
from collections.abc import Collection, Mapping, Sequence
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.errors import ModelFileError
from sharpi.experts.layer_stats import PhaseCounts
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.native import check_layouts, declare
from sharpi.ops.cpu.library import load_library
from sharpi.system.files import widest_range

NUM_PIECES = 3  # gate, up, down


class NativePiece(Structure):
    """Mirrors `PieceParams` of kernels/cpu/experts/store/store_api.cpp."""

    _fields_ = (("offset", c_uint64), ("bytes", c_uint64), ("file", c_int32), ("reserved", c_int32))


class NativeLayer(Structure):
    """Mirrors `LayerParams` of kernels/cpu/experts/store/store_api.cpp."""

    _fields_ = (
        ("num_experts", c_int32),
        ("num_slots", c_int32),
        ("pieces", NativePiece * NUM_PIECES),
    )


class NativeStore(Structure):
    """Mirrors `StoreParams` of kernels/cpu/experts/store/store_api.cpp."""

    _fields_ = (
        ("files", POINTER(c_char_p)),
        ("layers", POINTER(NativeLayer)),
        ("num_files", c_int32),
        ("num_layers", c_int32),
        ("num_staging", c_int32),
        ("reads_in_flight", c_int32),
        ("direct", c_int32),
        ("reserved", c_int32),
        ("max_prefetch_bytes", c_int64),
    )


@cache
def store_library() -> ctypes.CDLL:
    """Returns the native library with argument types set for the store's functions."""
    library = load_library()
    structs = {"PieceParams": NativePiece, "LayerParams": NativeLayer, "StoreParams": NativeStore}
    check_layouts(library, "sharpi_store_layouts", structs)
    create = [POINTER(NativeStore), c_size_t, c_void_p, c_char_p, c_size_t]
    signatures = {
        "sharpi_store_create": (c_void_p, create),
        "sharpi_store_destroy": (None, [c_void_p]),
        "sharpi_store_start": (c_int, [c_void_p]),
        "sharpi_store_acquire": (c_int, [c_void_p, c_int, c_void_p, c_int, c_int]),
        "sharpi_store_wait": (c_int, [c_void_p, c_int, c_int]),
        "sharpi_store_is_ready": (c_int, [c_void_p, c_int, c_int]),
        "sharpi_store_release": (c_int, [c_void_p, c_int, c_int]),
        "sharpi_store_prefetch": (c_int, [c_void_p, c_int, c_void_p, c_int]),
        "sharpi_store_holds": (c_int, [c_void_p, c_int, c_int]),
        "sharpi_store_exchange": (c_int, [c_void_p, c_int, c_int, c_int, POINTER(c_void_p)]),
        "sharpi_store_resize": (c_int, [c_void_p, c_void_p]),
        "sharpi_store_slots": (None, [c_void_p, c_void_p]),
        "sharpi_store_set_learning": (None, [c_void_p, c_int]),
        "sharpi_store_set_prefetching": (None, [c_void_p, c_int]),
        "sharpi_store_end_token": (c_int, [c_void_p]),
        "sharpi_store_reset_sequence": (None, [c_void_p]),
        "sharpi_store_max_group": (c_int, [c_void_p]),
        "sharpi_store_table": (c_void_p, [c_void_p, c_int, c_int]),
        "sharpi_store_counts": (None, [c_void_p] * 5),
        "sharpi_store_uses": (None, [c_void_p, c_void_p, c_int]),
        "sharpi_store_last_fault": (None, [c_void_p, c_char_p, c_size_t]),
    }
    return declare(library, signatures)


class StoreTotals(NamedTuple):
    """The memory and the reads of all layers together."""

    memory_bytes: int
    dropped_prefetches: int  # experts that were not read because the queue was full
    failed_prefetches: int  # experts that could not be read
    failed_reads: int  # experts that could not be read, prefetches included
    prefetched_bytes: int  # read before a thread waited for them
    is_direct: bool  # reads bypass the page cache


# The fields of `StoreCounts` in C++, with the names of PhaseCounts; its times are nanoseconds.
_COUNTS = (
    "accesses", "hits", "late", "loads", "bytes_loaded", "stall_seconds", "prefetched",
    "prefetch_used", "wasted_bytes",
)  # fmt: skip
STALLS = _COUNTS.index("stall_seconds")


def phase_counts(row: Sequence[int]) -> PhaseCounts:
    """Returns the counts of one layer and phase from a row of `NativeCounts.phases`."""
    counts = PhaseCounts(**dict(zip(_COUNTS, row, strict=True)))
    return replace(counts, stall_seconds=row[STALLS] / 1e9)


class NativeCounts:
    """The arrays that `sharpi_store_counts` fills, and their contents as tuples."""

    def __init__(self, num_layers: int) -> None:
        self.phases = np.empty((num_layers, 2, len(_COUNTS)), np.int64)  # prompts, decoded tokens
        self.reads = np.empty((num_layers, 2), np.int64)
        self._before_pin = np.empty(2, np.int64)
        self._totals = np.empty(len(StoreTotals._fields), np.int64)

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of the arrays, in the order of the native function's parameters."""
        arrays: tuple[NDArray[np.int64], ...] = (
            self.phases, self.reads, self._before_pin, self._totals,
        )  # fmt: skip
        return tuple(array.ctypes.data for array in arrays)

    @property
    def before_pin(self) -> tuple[int, int] | None:
        """The accesses and hits before the most used experts were first pinned; None until then."""
        accesses, hits = self._before_pin.tolist()
        return None if accesses < 0 else (accesses, hits)

    @property
    def totals(self) -> StoreTotals:
        """The counts that are not kept per layer."""
        memory, dropped, failed, unread, early, is_direct = self._totals.tolist()
        return StoreTotals(memory, dropped, failed, unread, early, bool(is_direct))


_MATRICES = ("gate", "up", "down")


class PieceLayout(Struct, frozen=True):
    """The gate, up or down matrices of all experts of a layer, contiguous in one file."""

    file: int  # index of the model's file
    offset: int  # bytes from the start of that file
    num_bytes: int  # bytes of one expert's matrix


_NOTHING = PieceLayout(file=0, offset=0, num_bytes=0)


class LayerLayout(Struct, frozen=True):
    """The positions and sizes of a layer's routed experts in the model's files."""

    num_experts: int = 0  # 0 in a dense layer
    # gate (or fused gate and up), up, down; a missing one has no bytes
    pieces: tuple[PieceLayout, ...] = ()

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert as the file encodes it."""
        return sum(piece.num_bytes for piece in self.pieces)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a buffer that any expert of the layer can be read into."""
        return sum(widest_range(p.offset, p.num_bytes, self.num_experts) for p in self.pieces)


class StoreLayout(Struct, frozen=True):
    """A model's files, and the layout of each layer's experts in them."""

    files: tuple[Path, ...]
    layers: tuple[LayerLayout, ...]

    @property
    def largest_slot(self) -> int:
        """Bytes of a buffer that fits an expert of any layer; 0 without experts."""
        return max((layer.slot_bytes for layer in self.layers), default=0)

    def memory_bytes(self, slots: tuple[int, ...], num_staging: int) -> int:
        """Returns the bytes that the store allocates for this many slots and staging buffers."""
        in_layers = zip(slots, self.layers, strict=True)
        return sum(n * layer.slot_bytes for n, layer in in_layers) + num_staging * self.largest_slot


def read_layout(file: GgufFile, num_layers: int, own: Collection[int] | None = None) -> StoreLayout:
    """Finds the experts of layers, or of `own` ones; raises ModelFileError if some are missing."""
    layers = (
        _layer(file.path, file.tensors, index) if own is None or index in own else LayerLayout()
        for index in range(num_layers)
    )
    return StoreLayout(file.openable_parts, tuple(layers))


def _layer(path: Path, tensors: Mapping[str, Tensor], index: int) -> LayerLayout:
    names = {each: f"blk.{index}.ffn_{each}_exps.weight" for each in _MATRICES}
    found = {each: tensors[name] for each, name in names.items() if name in tensors}
    fused = tensors.get(f"blk.{index}.ffn_gate_up_exps.weight")
    if fused is not None and "down" in found:
        return LayerLayout(fused.shape[0], (_piece(fused), _NOTHING, _piece(found["down"])))
    if not found:
        return LayerLayout()
    num_experts = next(iter(found.values())).shape[0]
    is_whole = {"up", "down"} <= found.keys()
    if not is_whole or any(tensor.shape[0] != num_experts for tensor in found.values()):
        raise ModelFileError(
            f"{path}: layer {index} does not have {', '.join(_MATRICES)} of all its experts, so"
            " they cannot be read one by one; give --ram the whole model's size"
        )
    pieces = (_piece(found[each]) if each in found else _NOTHING for each in _MATRICES)
    return LayerLayout(num_experts, tuple(pieces))


def _piece(tensor: Tensor) -> PieceLayout:
    return PieceLayout(tensor.part, tensor.offset, tensor.num_bytes // tensor.shape[0])
