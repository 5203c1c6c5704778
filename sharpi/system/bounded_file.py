"""Reads files that users name, within limits.

An endless device would take all memory; a named pipe that nobody writes to would never end.
"""

import errno
import os
import select
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 256 << 20  # no context holds more text
PIPE_TIMEOUT_S = 5.0  # seconds to wait for the first byte of a named pipe
_PIECE = 1 << 20


def read_bounded(path: Path) -> bytes:
    """Returns the content of a file, or of a pipe or a device that ends.

    Raises OSError, with EFBIG for more than MOST_BYTES, and with ETIMEDOUT for a named pipe that no
    program opens to write within PIPE_TIMEOUT_S seconds.
    """
    with open(path, "rb", opener=_opened) as file:
        return read_rest(file, str(path))


def read_rest(file: BinaryIO, name: str) -> bytes:
    """Returns the rest of a buffered file called `name`; raises OSError as `read_bounded` does."""
    pieces = [file.read(_PIECE)]
    while len(pieces[-1]) == _PIECE:  # a shorter piece means the end
        pieces.append(file.read(_PIECE))
        if len(pieces) * _PIECE > MOST_BYTES:
            raise _too_large(name)
    return b"".join(pieces)


def read_line(file: BinaryIO, name: str, limit: int) -> bytes:
    """Returns the next line of a buffered file called `name`, and nothing at its end.

    Raises OSError, with EFBIG for more than `limit` bytes.
    """
    line = file.readline(limit + 1)
    if len(line) > limit:
        raise _too_large(name)
    return line


def _too_large(name: str) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", name)


def _opened(path: str, flags: int) -> int:
    """Returns a descriptor of the file; a pipe of the shell's `<(...)` has its writer already."""
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
    """Waits for a program to write; raises OSError if none opens the pipe in time."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if poller.poll(PIPE_TIMEOUT_S * 1000):
        return
    try:
        os.read(descriptor, 1)
    except BlockingIOError:  # a program has the pipe open, and is slow
        return
    raise OSError(errno.ETIMEDOUT, "it is a pipe that no program writes to", path)
