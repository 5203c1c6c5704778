"""MappedFile: detects that the file of a loaded model was truncated, changed or unreadable.

Reading a page that is no longer there raises SIGBUS, which would end the process without a word.
Renaming or removing the file does no harm, because the mapping keeps its content.
"""

import ctypes
import os
import time
from ctypes import c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sharpi.errors import ModelFileError
from sharpi.gguf.reader import GgufFile
from sharpi.native import declare, open_library

_State: TypeAlias = tuple[int, int, int, int]  # device, inode, size and modification time
_LOOK_SECONDS = 0.5  # between two checks of the file while the model runs
_SAMPLE_BYTES = 4096  # checked at the beginning, the middle and the end of a tensor


class MappedFile:
    """Monitors the file of one loaded model, as an observer of its steps.

    Call `close` before the file is unmapped.

    `since` is the time at which loading began, in nanoseconds since 1970. A file written after that
    counts as changed.
    """

    def __init__(self, file: GgufFile, since: int | None = None) -> None:
        self._path, self._parts = file.path, file.parts
        self._states = [_state_before(part, since) for part in file.parts]
        self._next_look = 0.0
        library = _library()
        library.sharpi_survive_cut_files()
        for address, num_bytes in _mappings(file):
            library.sharpi_guard_file(address, num_bytes)
        self._num_faults = int(library.sharpi_file_faults())

    reads_routes = False

    def step(self, segments: object, program: object) -> None:
        """Raises ModelFileError if a read of the file failed, so that no step of zeros counts."""
        self.check_reads()

    @property
    def is_readable(self) -> bool:
        return bool(_library().sharpi_file_faults() == self._num_faults)

    def check_reads(self) -> None:
        """Raises ModelFileError if a read of the mapped file failed since it was mapped."""
        if not self.is_readable:
            raise ModelFileError(
                f"{self._path}: the file was cut short or became unreadable while it was in use"
            )

    def check_sometimes(self) -> None:
        """Calls `check_content` at most twice a second, so that each step can afford the call."""
        if (now := time.monotonic()) >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self.check_content()

    def check_content(self) -> None:
        """Raises ModelFileError if the file's size or modification time changed since loading."""
        for part, before in zip(self._parts, self._states, strict=True):
            now = _state(part)
            if now is not None and before is not None and now[:2] == before[:2] and now != before:
                raise ModelFileError(f"{part}: the file was changed while it was in use")

    def is_replaced(self) -> bool:
        """Returns whether the path of the model now holds another or changed file."""
        return any(
            now is not None and now != before
            for now, before in zip(map(_state, self._parts), self._states, strict=True)
        )

    def close(self) -> None:
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


def _state_before(path: Path, since: int | None) -> _State | None:
    """Returns a file's state; None if the file does not exist."""
    state = _state(path)
    if state is None or since is None or not since < state[3] <= time.time_ns():
        return state
    return *state[:3], -1


def check_not_empty(file: GgufFile) -> None:
    """Raises ModelFileError if samples of a large tensor are zeros, as in unfinished copies."""
    for tensor in file.tensors.values():
        data = tensor.data_in_file
        if len(data) < 4 * _SAMPLE_BYTES or data.base is None:
            continue
        starts = (0, len(data) // 2, len(data) - _SAMPLE_BYTES)
        if not any(data[start : start + _SAMPLE_BYTES].any() for start in starts):
            path = file.parts[tensor.part]
            raise ModelFileError(
                f"{path}: the tensor {tensor.name} holds only zeros; is the copy complete?"
            )


def _mappings(file: GgufFile) -> set[tuple[int, int]]:
    """Returns the address and the size in bytes of each mapped part of the file."""
    roots = (_root(tensor.data_in_file) for tensor in file.tensors.values())
    return {(root.ctypes.data, root.nbytes) for root in roots}


def _root(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    while isinstance(data.base, np.ndarray):
        data = data.base
    return data
