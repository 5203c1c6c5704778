"""Finds the file of the conversation log, and switches the log on or off.

`sharpi log off` creates a file beside the log; while that file exists, nothing is logged. A process
without a home folder, such as a service, logs nothing.
"""

import os
from pathlib import Path

_OFF = "log-off"
_LOG = "conversations.sqlite3"


def state_folder() -> Path | None:
    """Returns sharpi's state folder by the XDG base directory rules; None without a home folder."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "sharpi"
    home = os.environ.get("HOME")
    return Path(home) / ".local" / "state" / "sharpi" if home else None


def log_path() -> Path | None:
    """Returns the path of the log, even if it does not exist yet; None without a home folder."""
    folder = state_folder()
    return None if folder is None else folder / _LOG


def is_switched_off() -> bool:
    """Returns whether `sharpi log off` is in effect; True without a home folder."""
    folder = state_folder()
    return folder is None or (folder / _OFF).exists()


def switch(*, on: bool) -> None:
    """Switches the log on or off for all later processes; raises OSError."""
    folder = state_folder()
    if folder is None:
        raise FileNotFoundError("neither XDG_STATE_HOME nor HOME is set")
    if on:
        (folder / _OFF).unlink(missing_ok=True)
        return
    make_private_folder(folder)
    (folder / _OFF).touch(mode=0o600)


def make_private_folder(folder: Path) -> None:
    """Creates a folder that only its owner can access, unless it exists; raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
