"""Lists this user's servers on this machine: one small file each, locked while the server runs.

The system releases the lock when the process ends for any reason, so an unlocked file is stale.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from sharpi.system.files import runtime_folder

_SUFFIX = ".json"


class RunningServer(Struct, frozen=True):
    """A running server, as its file describes it."""

    pid: int
    url: str
    model: str
    created: int  # seconds since 1970
    status_key: str  # an API key that is valid for /props only


@contextlib.contextmanager
def registered(server: RunningServer) -> Iterator[None]:
    """Keeps a locked file for the server during the `with` block; raises OSError.

    `running_servers` finds the server by that file.
    """
    folder = runtime_folder()
    port = server.url.rpartition(":")[2]
    path = folder / f"{server.pid}-{port}{_SUFFIX}"
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(asdict(server), file)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running_servers() -> list[RunningServer]:
    """Returns the running servers, oldest first, and removes stale files; raises OSError."""
    found = (_read(path) for path in sorted(runtime_folder().glob(f"*{_SUFFIX}")))
    return sorted(filter(None, found), key=lambda server: (server.created, server.pid))


def _read(path: Path) -> RunningServer | None:
    try:
        with path.open(encoding="utf-8") as file:
            if _is_stale(file.fileno()):
                path.unlink(missing_ok=True)
                return None
            return RunningServer(**json.load(file))
    # Removed in the meantime, or written by another version.
    except (OSError, ValueError, TypeError):
        return None


def _is_stale(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
