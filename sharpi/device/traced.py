"""Prints each allocation on a device, the module that asked for it, and the free memory."""

import sys
import weakref
from typing import Any, cast

from sharpi.device.device import Device
from sharpi.device.launch import Memory
from sharpi.units import format_bytes


def traced(device: Device) -> Device:
    """Returns the device, with every allocation and release of its memory printed to stderr."""
    return cast(Device, _TracedDevice(device))


class _TracedDevice:
    """Passes all calls on to the real device, and prints each allocation and release."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._allocated = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def allocate(self, num_bytes: int) -> Memory:
        """Allocates memory, and prints the name of the module that asked for it."""
        memory = self._device.allocate(num_bytes)
        caller = sys._getframe(1).f_globals.get("__name__", "?").rpartition(".")[2]
        self._allocated += num_bytes
        self._print("+", num_bytes, caller)
        weakref.finalize(memory, self._release, num_bytes, caller).atexit = False
        return memory

    def _release(self, num_bytes: int, caller: str) -> None:
        self._allocated -= num_bytes
        self._print("-", num_bytes, caller)

    def _print(self, sign: str, num_bytes: int, caller: str) -> None:
        used, free = format_bytes(self._allocated), format_bytes(self._device.free_bytes)
        print(
            f"vram: {sign} {format_bytes(num_bytes)} {caller}; {used} allocated, {free} free",
            file=sys.stderr,
        )
