"""Files that are there whole or not at all."""

import os
import stat
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces `path` by `data` in one step; an old file survives every failure.

    A link keeps pointing where it does; a pipe or device is written to. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        target.write_bytes(data)
    else:
        _replace(target, data)


def write_or_warn(path: Path, data: bytes, what: str) -> str | None:
    """The same without an error: returns a warning, which begins with `what` ("the stats were")."""
    try:
        write_atomically(path, data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{what} not written to {path} ({reason})"
    return None


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".sharpi-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), _mode(path))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _mode(path: Path) -> int:
    """The old file's, or what a new one gets."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else new_file_mode()


def new_file_mode() -> int:
    """What the process's mask, which temporary files ignore, leaves; read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
