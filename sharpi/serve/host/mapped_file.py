"""MappedFile: watches the file of a running model, which may be cut short, changed or unreadable.

A file that was renamed or removed does no harm: the mapping keeps it as it was.
"""

import ctypes
import os
from ctypes import c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sharpi.errors import ModelFileError
from sharpi.gguf.reader import GgufFile
from sharpi.native import declare, open_library

_State: TypeAlias = tuple[int, int, int, int]  # device, number, size and time of the last change


class MappedFile:
    """The file of one loaded model; `close` ends the watch before the file is unmapped."""

    def __init__(self, file: GgufFile) -> None:
        self._path, self._parts = file.path, file.parts
        self._states = [_state(part) for part in file.parts]
        library = _library()
        library.sharpi_survive_cut_files()
        for address, num_bytes in _mappings(file):
            library.sharpi_guard_file(address, num_bytes)
        self._num_faults = int(library.sharpi_file_faults())

    @property
    def is_readable(self) -> bool:
        """False once a part of the file could not be read since it was mapped."""
        return bool(_library().sharpi_file_faults() == self._num_faults)

    def check_reads(self) -> None:
        """Raises ModelFileError if a part of the file could not be read since it was mapped."""
        if not self.is_readable:
            raise ModelFileError(
                f"{self._path}: the file was cut short or became unreadable while it was in use"
            )

    def check_content(self) -> None:
        """Raises ModelFileError if somebody has written to the file since it was mapped."""
        for part, before in zip(self._parts, self._states, strict=True):
            now = _state(part)
            if now is not None and before is not None and now[:2] == before[:2] and now != before:
                raise ModelFileError(f"{part}: the file was changed while it was in use")

    def is_replaced(self) -> bool:
        """Returns whether there is another file in the place of this one."""
        return any(
            now is not None and now != before
            for now, before in zip(map(_state, self._parts), self._states, strict=True)
        )

    def close(self) -> None:
        """Ends the watch."""
        _library().sharpi_forget_files()


@cache
def _library() -> ctypes.CDLL:
    signatures = {
        "sharpi_survive_cut_files": (c_int, []),
        "sharpi_guard_file": (c_int, [c_void_p, c_size_t]),
        "sharpi_forget_files": (None, []),
        "sharpi_file_faults": (c_int64, []),
    }
    return declare(open_library(), signatures)


def _state(path: Path) -> _State | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _mappings(file: GgufFile) -> set[tuple[int, int]]:
    """Returns address and size of each mapped part."""
    roots = (_root(tensor.data_in_file) for tensor in file.tensors.values())
    return {(root.ctypes.data, root.nbytes) for root in roots}


def _root(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    while isinstance(data.base, np.ndarray):
        data = data.base
    return data
