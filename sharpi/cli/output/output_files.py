"""Writes output files atomically, and refuses to replace a command's input files."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from sharpi.errors import UsageError
from sharpi.system.files import new_file_mode


def refuse_to_replace(name: str, output: Path, inputs: Sequence[Path]) -> None:
    """Raises UsageError if `output`, the value of option `name`, is one of `inputs`."""
    for path in inputs:
        if _is_same(output, path):
            raise UsageError(f"{name} {output} would replace the input {path}; name another file")


def refuse_unwritable(name: str, output: Path) -> None:
    """Raises UsageError if `output`, the value of option `name`, cannot be written."""
    reason = _obstacle(output)
    if reason is not None:
        raise UsageError(f"{name}: cannot write {output} ({reason}); name another file")


def _obstacle(output: Path) -> str | None:
    """Returns why a file cannot be written; None if it can.

    For a regular file the folder must be writable, for a pipe or device the file itself.
    """
    try:
        target = Path(os.path.realpath(output))
        if target.is_dir():
            return "it is a folder"
        is_special = target.exists() and not target.is_file()
        if not target.parent.is_dir():
            return f"there is no folder {target.parent}"
        if not os.access(target if is_special else target.parent, os.W_OK):
            return "permission denied"
        target.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror
    return None


def _is_same(output: Path, path: Path) -> bool:
    try:
        return output.samefile(path)
    except OSError:  # one of them does not exist, so they differ
        return False


@contextmanager
def atomic_output(path: Path) -> Iterator[BinaryIO]:
    """Yields a temporary file, which replaces `path` if the `with` block succeeds.

    Otherwise it is removed. Raises UsageError at the start of the block if `path` is not writable.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write {path}: it is not a regular file")
    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, new_file_mode())
            yield file
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
