"""Reads files that people name, within a limit: an endless device would take all memory."""

import errno
from pathlib import Path
from typing import BinaryIO

MOST_BYTES = 256 << 20  # no context holds so much text
_PIECE = 1 << 20


def read_bounded(path: Path) -> bytes:
    """Returns the content of a file, or of a pipe or a device that ends.

    Raises OSError, with EFBIG for more than MOST_BYTES.
    """
    with path.open("rb") as file:
        return read_rest(file, str(path))


def read_rest(file: BinaryIO, name: str) -> bytes:
    """Returns the rest of a buffered file called `name`; raises OSError as `read_bounded` does."""
    pieces = [file.read(_PIECE)]
    while len(pieces[-1]) == _PIECE:  # less is the end
        pieces.append(file.read(_PIECE))
        if len(pieces) * _PIECE > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", name)
    return b"".join(pieces)
