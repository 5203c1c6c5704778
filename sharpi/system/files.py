"""Files that users name or that disks hold: atomic writes, bounded reads, and direct reads.

Without limits on size and time, an endless device would fill the memory, and a named pipe without a
writer would block forever. Reads of weights bypass the page cache where the system allows it.
"""

import errno
import os
import select
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the content of `path` by `data` in one step; the old file survives every failure.

    If `path` is a symbolic link, its target is replaced. If it is a pipe or a device, the data is
    written to it directly. Raises OSError.
    """
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with open(path, "wb", opener=_opened_without_waiting) as file:
            file.write(data)
    else:
        with atomic_output(path) as file:
            file.write(data)


@contextmanager
def atomic_output(path: Path) -> Iterator[BinaryIO]:
    """Yields a temporary file, which replaces the file `path` if the `with` block succeeds.

    Otherwise it is removed. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=".sharpi-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            os.fchmod(file.fileno(), _mode(target))
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def write_or_warn(path: Path, data: bytes, what: str) -> str | None:
    """Writes `path` atomically; returns None, or a warning that begins with `what`."""
    try:
        write_atomically(path, data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{what} not written to {path} ({reason})"
    return None


def _opened_without_waiting(path: str, flags: int) -> int:
    """Returns a descriptor of a pipe or a device; raises OSError for a pipe without a reader."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "no program reads from this pipe", path) from None
    os.set_blocking(descriptor, True)
    return descriptor


def _mode(path: Path) -> int:
    """Returns the mode of the existing file, or the usual mode of a new file."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)  # which temporary files ignore; it can only be read by setting it
    os.umask(mask)
    return 0o666 & ~mask


MOST_BYTES = 256 << 20  # no context holds more text
PIPE_TIMEOUT_S = 5.0  # seconds to wait for the first byte of a named pipe
_PIECE = 1 << 20


def read_bounded(path: Path) -> bytes:
    """Returns the content of a file, pipe or device.

    Raises OSError, with EFBIG for more than MOST_BYTES, and with ETIMEDOUT for a named pipe that no
    program opens for writing within PIPE_TIMEOUT_S seconds.
    """
    with open(path, "rb", opener=_opened_with_writer) as file:
        return read_rest(file, str(path))


def read_rest(file: BinaryIO, name: str) -> bytes:
    """Returns the rest of a buffered file; raises OSError, with its name, for too much."""
    pieces = [file.read(_PIECE)]
    while len(pieces[-1]) == _PIECE:  # a shorter piece means the end
        pieces.append(file.read(_PIECE))
        if len(pieces) * _PIECE > MOST_BYTES:
            raise _too_large(name)
    return b"".join(pieces)


def read_line(file: BinaryIO, name: str, limit: int) -> bytes:
    """Returns the next line, empty at the end; raises OSError for more than `limit` bytes."""
    line = file.readline(limit + 1)
    if len(line) > limit:
        raise _too_large(name)
    return line


def _too_large(name: str) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", name)


def _opened_with_writer(path: str, flags: int) -> int:
    """Returns a descriptor of the file; for a named pipe, first waits for a writer."""
    if not Path(os.path.realpath(path)).is_fifo():
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        _await_writer(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    os.set_blocking(descriptor, True)
    return descriptor


def _await_writer(descriptor: int, path: str) -> None:
    """Waits until a program writes to the pipe; raises OSError if none opens it in time."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if poller.poll(PIPE_TIMEOUT_S * 1000):
        return
    try:
        os.read(descriptor, 1)
    except BlockingIOError:  # a program has the pipe open, and is slow
        return
    raise OSError(errno.ETIMEDOUT, "it is a pipe that no program writes to", path)


def runtime_folder() -> Path:
    """Returns the folder of this user alone for files about running processes; raises OSError."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    is_there = base and os.path.isdir(base)
    temporary = Path(tempfile.gettempdir(), f"sharpi-{os.geteuid()}")
    folder = Path(base or "", "sharpi") if is_there else temporary
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_ours or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can enter")
    return folder


ALIGNMENT = 4096  # in bytes, for offset, size and address
READS_IN_FLIGHT = 8


def aligned_range(start: int, num_bytes: int) -> tuple[int, int]:
    """Returns offset and size of the smallest aligned range that contains a range of a file."""
    first = start // ALIGNMENT * ALIGNMENT
    return first, -(-(start + num_bytes) // ALIGNMENT) * ALIGNMENT - first


def widest_range(start: int, num_bytes: int, count: int) -> int:
    """Returns the most bytes of an aligned range around one of `count` pieces from `start`."""
    return max(aligned_range(start + i * num_bytes, num_bytes)[1] for i in range(count))


def open_direct(path: Path) -> tuple[int, bool]:
    """Opens a file; returns whether its reads bypass the page cache, too; raises OSError."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0)), hasattr(os, "O_DIRECT")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, os.O_RDONLY), False
