"""Writes files atomically: after a failure, the old file is unchanged."""

import errno
import os
import stat
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the content of `path` by `data` in one step; the old file survives every failure.

    If `path` is a symbolic link, its target is replaced. If it is a pipe or a device, the data is
    written to it directly. Raises OSError.
    """
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with open(path, "wb", opener=_opened) as file:
            file.write(data)
    else:
        _replace(Path(os.path.realpath(path)), data)


def write_or_warn(path: Path, data: bytes, what: str) -> str | None:
    """Writes `path` atomically; returns None, or a warning if that fails.

    The warning begins with `what`, such as "the stats were".
    """
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


def _opened(path: str, flags: int) -> int:
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
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else new_file_mode()


def new_file_mode() -> int:
    """Returns the mode of a new file under the process's umask, such as 0o644.

    It is needed because temporary files ignore the umask. The umask can only be read by setting it.
    """
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
