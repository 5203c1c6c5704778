"""CheckSamples: chooses which launches of emulated GPUs are checked where models run.

A check costs more than the launch, and models launch the same kernels again for every layer and
token. Each test checks other launches, always the same ones.
"""

import os
from collections import Counter
from zlib import crc32

from sharpi.device.launch import Kernel

# One launch in so many where models run: not a divisor of the usual numbers of layers.
PERIOD = int(os.environ.get("SHARPI_CHECK_PERIOD", "11"))


class CheckSamples:
    """Counts the launches of each entry point in a test, and takes one in `period` of them."""

    def __init__(self) -> None:
        self._test, self._period = "", 1
        self._counts = Counter[Kernel]()

    def begin(self, test: str, period: int) -> None:
        """Forgets all launches; `test` decides which of the next ones are taken."""
        self._test, self._period = test, period
        self._counts.clear()

    def takes(self, kernel: Kernel) -> bool:
        """Counts a launch; returns True if it is to be checked."""
        count = self._counts[kernel] or crc32(f"{self._test} {kernel.entry}".encode())
        self._counts[kernel] = count + 1
        return count % self._period == 0


SAMPLES = CheckSamples()  # of all emulated GPUs of a process
