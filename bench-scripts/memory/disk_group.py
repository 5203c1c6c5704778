"""DiskGroup: a cgroup (version 1) whose programs read as slowly as from a slower disk."""

import os
from pathlib import Path

from memory.memory_group import launcher_into

from sharpi.errors import UsageError
from sharpi.system.closing import Closing

_BLKIO = Path("/sys/fs/cgroup/blkio")


class DiskGroup(Closing):
    """Programs of `launcher` read `rate` bytes per second at most from the disk that has `path`.

    Only reads past the page cache are sure to be slowed. Raises UsageError where this cannot be
    set.
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
        """A command that runs the command in its further arguments inside the group."""
        return launcher_into(self.folder)

    def close(self) -> None:
        """Removes the group, whose programs have ended."""
        self.folder.rmdir()
