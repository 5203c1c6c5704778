"""Refuses output files that cannot be written, or that are a command's input files."""

import os
from collections.abc import Sequence
from pathlib import Path

from sharpi.errors import UsageError


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
