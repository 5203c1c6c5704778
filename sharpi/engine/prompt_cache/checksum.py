"""Checksum: a 16-byte digest of large data, computed at the speed of memory."""

import ctypes
from ctypes import c_size_t, c_uint64, c_void_p
from functools import cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from sharpi.native import declare, open_library

Bytes = npt.NDArray[np.uint8]

DIGEST_BYTES = 16
ROW_BYTES = 64  # of eight lanes
_FIRST = np.arange(1, 9, dtype=np.uint64)


class Checksum:
    """A digest of data that is added in pieces; all but the last are whole rows of 64 bytes.

    The native library mixes the data into eight lanes of 64 bits, and BLAKE2 makes the digest of
    the lanes. It detects accidental changes, but is not secure against forged data.
    """

    def __init__(self) -> None:
        self._lanes = _FIRST.copy()
        self._num_bytes = 0

    def add(self, data: Bytes) -> None:
        """Adds contiguous bytes, without holding the GIL.

        Raises ValueError if a previous piece ended with an incomplete row.
        """
        if self._num_bytes % ROW_BYTES:
            raise ValueError("only the last piece may end within a row")
        lanes = self._lanes.ctypes.data_as(ctypes.POINTER(c_uint64))
        _library().sharpi_mix_lanes(data.ctypes.data, data.nbytes, lanes)
        self._num_bytes += data.nbytes

    def digest(self) -> bytes:
        """Returns the digest of all added bytes, 16 bytes long."""
        length = self._num_bytes.to_bytes(8, "little")
        return blake2b(self._lanes.tobytes() + length, digest_size=DIGEST_BYTES).digest()


def checksum_of(data: Bytes) -> bytes:
    """Returns the digest of contiguous bytes."""
    checksum = Checksum()
    checksum.add(data)
    return checksum.digest()


@cache
def _library() -> ctypes.CDLL:
    signatures = {"sharpi_mix_lanes": (None, [c_void_p, c_size_t, ctypes.POINTER(c_uint64)])}
    return declare(open_library(), signatures)
