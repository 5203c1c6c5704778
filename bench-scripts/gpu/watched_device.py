"""A device that counts captured and replayed graphs, and otherwise behaves like another device."""

from collections.abc import Sequence
from typing import Any

from sharpi.device.device import Device, Work


class WatchedDevice:
    """Wraps a device and counts its graphs; all other attributes are those of the device.

    `captured`, `replayed`: the numbers of graph captures and replays.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.captured, self.replayed = 0, 0

    def record(self, work: Sequence[Work]) -> Work:
        """Captures work to a graph; returns its replay. Counts the capture and each replay."""
        graph = self._device.record(work)
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            graph()

        return replay

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)
