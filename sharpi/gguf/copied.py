"""Copies tensors from their files into separate memory, bypassing the page cache.

The dense weights, which every token reads, must not depend on the page cache: reads of a file
larger than RAM would evict them from it.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from sharpi.gguf.cursor import file_error
from sharpi.gguf.reader import Tensor
from sharpi.system.files import READS_IN_FLIGHT, aligned_range, open_direct
from sharpi.system.memory import huge_memory

READ_BYTES = 4 << 20


class _Range(Struct, frozen=True):
    """An aligned range of one file, and its place in the region of RAM."""

    part: int  # the index of the file
    start: int  # bytes from the start of the file
    num_bytes: int
    needed: int  # bytes from `start` that the file must have
    at: int  # bytes from the start of the region


def copy_bytes(tensors: Iterable[Tensor]) -> int:
    """Returns the bytes that copies of the tensors take, with alignment."""
    return sum(each.num_bytes for each in _ranges(tensors))


class TensorCopies:
    """A region of RAM for copies of tensors, in huge pages if possible; `read` fills it.

    `parts`: the files, in the order of `Tensor.part`. The attribute `tensors`: the copies by name.
    Raises MemoryError if the region does not fit into RAM.
    """

    def __init__(self, parts: Sequence[Path], tensors: Sequence[Tensor]) -> None:
        self._parts, self._ranges = parts, _ranges(tensors)
        self._arena = huge_memory(sum(each.num_bytes for each in self._ranges))
        view = np.frombuffer(self._arena, np.uint8)
        view.flags.writeable = False
        self.tensors = {each.name: _moved(each, self._ranges, view) for each in tensors}

    def read(self, on_progress: Callable[[float], None] | None = None) -> None:
        """Reads all tensors into the region; raises ModelFileError if a file cannot be read.

        `on_progress`: called with the fraction that has been read, 0 to 1.
        """
        report = on_progress or (lambda fraction: None)
        with contextlib.ExitStack() as files:
            handles = [files.enter_context(_opened(part)) for part in self._parts]
            _read_all(self._parts, handles, self._ranges, self._arena, report)


def _ranges(tensors: Iterable[Tensor]) -> list[_Range]:
    """Returns the aligned file ranges of the tensors; adjacent ones are merged into one."""
    ranges: list[_Range] = []
    for tensor in sorted(tensors, key=lambda each: (each.part, each.offset)):
        start, _ = aligned_range(tensor.offset, tensor.num_bytes)
        needed = tensor.offset + tensor.num_bytes
        last = ranges[-1] if ranges else None
        if last and last.part == tensor.part and start <= last.start + last.num_bytes:
            ranges.pop()
            start, at = last.start, last.at
            needed = max(needed, last.start + last.needed)
        else:
            at = last.at + last.num_bytes if last else 0
        _, num_bytes = aligned_range(start, needed - start)
        ranges.append(_Range(tensor.part, start, num_bytes, needed - start, at))
    return ranges


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Opens a file for direct reads, or for buffered reads if its file system requires them."""
    try:
        handle, _ = open_direct(path)
    except OSError as error:
        raise file_error(path, f"cannot be read ({error.strerror})") from None
    try:
        yield handle
    finally:
        os.close(handle)


def _read_all(
    parts: Sequence[Path],
    handles: Sequence[int],
    ranges: Sequence[_Range],
    arena: memoryview,
    on_progress: Callable[[float], None],
) -> None:
    # The import takes 6 ms, which is wasted if no tensors are copied.
    from concurrent.futures import ThreadPoolExecutor

    pieces = [piece for each in ranges for piece in _pieces(each)]

    def read(piece: _Range) -> None:
        _read(parts[piece.part], handles[piece.part], piece, arena)

    with ThreadPoolExecutor(READS_IN_FLIGHT) as pool:
        for count, _ in enumerate(pool.map(read, pieces), 1):
            on_progress(count / len(pieces))


def _pieces(whole: _Range) -> Iterator[_Range]:
    for done in range(0, whole.num_bytes, READ_BYTES):
        size = min(READ_BYTES, whole.num_bytes - done)
        needed = min(size, whole.needed - done)
        yield _Range(whole.part, whole.start + done, size, needed, whole.at + done)


def _read(path: Path, handle: int, piece: _Range, arena: memoryview) -> None:
    done = 0
    while done < piece.needed:
        target = arena[piece.at + done : piece.at + piece.num_bytes]
        try:
            count = os.preadv(handle, [target], piece.start + done)
        except OSError as error:
            raise file_error(path, f"cannot be read ({error.strerror})") from None
        if not count:
            raise file_error(path, "ends early: the file was truncated while it was read")
        done += count


def _moved(tensor: Tensor, ranges: Sequence[_Range], arena: npt.NDArray[np.uint8]) -> Tensor:
    around = next(
        each
        for each in ranges
        if each.part == tensor.part and 0 <= tensor.offset - each.start < each.num_bytes
    )
    first = around.at + tensor.offset - around.start
    data = arena[first : first + tensor.num_bytes]
    return replace(tensor, data=data, mapped_data=tensor.data)
