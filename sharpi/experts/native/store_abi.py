"""The C interface of the expert store for ctypes: its structs, and its functions' types."""

import ctypes
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

from sharpi.native import check_layouts, declare
from sharpi.ops.cpu.library import load_library

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
        "sharpi_store_end_token": (c_int, [c_void_p]),
        "sharpi_store_reset_sequence": (None, [c_void_p]),
        "sharpi_store_max_group": (c_int, [c_void_p]),
        "sharpi_store_table": (c_void_p, [c_void_p, c_int, c_int]),
        "sharpi_store_counts": (None, [c_void_p] * 5),
        "sharpi_store_uses": (None, [c_void_p, c_void_p, c_int]),
        "sharpi_store_last_fault": (None, [c_void_p, c_char_p, c_size_t]),
    }
    return declare(library, signatures)
