"""DiskGroup: a cgroup (version 1) that limits the rate at which its programs read from a disk."""

import os
from pathlib import Path

from memory.memory_group import launcher_into

from sharpi.errors import UsageError
from sharpi.system.closing import Closing

_BLKIO = Path("/sys/fs/cgroup/blkio")


class DiskGroup(Closing):
    """A cgroup whose programs read at most `rate` bytes per second from the disk with `path`.

    Reads through the page cache may be faster. Raises UsageError if the limit cannot be set.
    """

    def __init__(self, rate: int, path: Path) -> None:
        device = os.stat(path).st_dev
        self.folder = _BLKIO / f"sharpi-{os.getpid()}"
        rule = f"{os.major(device)}:{os.minor(device)} {rate}"
        try:
            self.folder.mkdir()
            self._limit(rule)
        except OSError as error:
            raise UsageError(
                f"{_BLKIO}: no disk can be slowed ({error.strerror}); it takes cgroups of version 1"
                " and root"
            ) from None

    def _limit(self, rule: str) -> None:
        try:
            (self.folder / "blkio.throttle.read_bps_device").write_text(rule)
        except OSError:
            self.folder.rmdir()
            raise

    @property
    def launcher(self) -> tuple[str, ...]:
        """A command that runs the command in its further arguments within the cgroup."""
        return launcher_into(self.folder)

    def close(self) -> None:
        """Removes the cgroup; all its programs must have ended."""
        self.folder.rmdir()
