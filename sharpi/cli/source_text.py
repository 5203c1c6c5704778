"""Reads text from an argument, a file or stdin, as UTF-8 and without stripping anything."""

import sys
from pathlib import Path

from sharpi.errors import UsageError
from sharpi.system.files import read_bounded, read_rest

STDIN = "-"
_NUMPY = b"\x93NUMPY"


def text_of_argument(text: str, name: str) -> str:
    """Returns `text` unchanged; raises UsageError, which names `name`, if it is not UTF-8."""
    return _decoded(text.encode("utf-8", "surrogateescape"), name)


def text_of_file(path: str) -> str:
    """Returns the text of a file, or of stdin for `-`; raises UsageError if it cannot be read."""
    if path == STDIN:
        return text_of_stdin()
    try:
        return _decoded(read_bounded(Path(path)), path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def text_of_stdin() -> str:
    """Reads stdin to its end and keeps all newlines; raises UsageError if it is not UTF-8."""
    name = "standard input"
    try:
        return _decoded(read_rest(sys.stdin.buffer, name), name)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error


def _decoded(data: bytes, name: str) -> str:
    if data.startswith(_NUMPY):
        raise UsageError(f"{name} is a NumPy array, not text; `sharpi logits --tokens` takes ids")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text: byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from error
