"""Reads files that users name, with limits on size and time.

Without them, an endless device would fill the memory, and a named pipe without a writer would block
forever.
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
    """Returns the content of a file, pipe or device.

    Raises OSError, with EFBIG for more than MOST_BYTES, and with ETIMEDOUT for a named pipe that no
    program opens for writing within PIPE_TIMEOUT_S seconds.
    """
    with open(path, "rb", opener=_opened) as file:
        return read_rest(file, str(path))


def read_rest(file: BinaryIO, name: str) -> bytes:
    """Returns the bytes from the current position of a buffered file to its end.

    Raises OSError as `read_bounded` does; `name` is the file's name in the error.
    """
    pieces = [file.read(_PIECE)]
    while len(pieces[-1]) == _PIECE:  # a shorter piece means the end
        pieces.append(file.read(_PIECE))
        if len(pieces) * _PIECE > MOST_BYTES:
            raise _too_large(name)
    return b"".join(pieces)


def read_line(file: BinaryIO, name: str, limit: int) -> bytes:
    """Returns the next line of a buffered file, empty at its end.

    Raises OSError, with EFBIG for a line of more than `limit` bytes; `name` is the file's name in
    the error.
    """
    line = file.readline(limit + 1)
    if len(line) > limit:
        raise _too_large(name)
    return line


def _too_large(name: str) -> OSError:
    return OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", name)


def _opened(path: str, flags: int) -> int:
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
