"""CheckSamples: chooses which of many equal launches of a device are checked, as a check costs more
than the launch.

Models launch the same kernels again for every token. What can go wrong in them depends on the data,
too, so that not only the first ones are checked.
"""

from collections import Counter
from collections.abc import Hashable

from sharpi.device.launch import Launch, Span

FIRST = 2  # launches of a kind that are always checked
PERIOD = 3  # then every third: not a divisor of the usual numbers of layers


class CheckSamples:
    """Counts launches by kind: kernel, sizes, and scalar arguments."""

    def __init__(self) -> None:
        self._counts = Counter[Hashable]()

    def begin(self) -> None:
        """Forgets all launches, so that each test has the same ones checked in any order."""
        self._counts.clear()

    def takes(self, launch: Launch) -> bool:
        """Counts a launch; returns True if it is to be checked."""
        kind = _kind(launch)
        count = self._counts[kind]
        self._counts[kind] += 1
        return count < FIRST or count % PERIOD == 0


def _kind(launch: Launch) -> Hashable:
    scalars = tuple(None if isinstance(a, Span) else a for a in launch.arguments)
    return launch.kernel, launch.grid, launch.block, launch.shared_bytes, scalars
