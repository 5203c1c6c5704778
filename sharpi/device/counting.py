"""CountingDevice: a device without memory that counts allocated bytes, for plans."""

import sys
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sharpi.device.device import AttendShape, Device, Event, HostArray, Work
from sharpi.device.launch import Memory, Span
from sharpi.units import format_bytes

_FAKE_ADDRESS = 1 << 40


class NoMemory(NamedTuple):
    """Memory that has a size and an address but no contents."""

    address: int
    num_bytes: int


class CountingDevice:
    """A `Device` that adds up allocated bytes in `num_bytes`, runs nothing and stores nothing."""

    name = "none"
    free_bytes = 1 << 40
    has_stream_words = True
    num_gpus = 1
    library_fault = None

    def __init__(self) -> None:
        self.num_bytes = 0

    def open_peer(self, index: int) -> Device:
        raise RuntimeError("a counting device has no other GPU")

    def allocate(self, num_bytes: int) -> Memory:
        self.num_bytes += num_bytes
        return NoMemory(_FAKE_ADDRESS, num_bytes)

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        raise RuntimeError("a counting device has no memory to map")

    def page_lock(self, arrays: Sequence[HostArray]) -> object:
        return True

    def register_array(self, array: HostArray) -> Memory | None:
        return NoMemory(_FAKE_ADDRESS, array.nbytes)

    def download(self, source: Span, target: HostArray) -> None:
        raise RuntimeError("a counting device has nothing to read")

    def attends(self, shape: AttendShape) -> bool:
        return True

    def on_side_stream(self, work: Sequence[Work]) -> Event:
        return None

    def record_event(self) -> Event:
        return None

    def record(self, work: Sequence[Work]) -> Work:
        return lambda: None

    def _nothing(self, *_: Any) -> None:
        """There is no memory to write, and nothing to wait for."""

    upload = copy = prepare = launch = matmul = batched_matmul = attend = _nothing
    write_word = await_word = after = wait = synchronise = _nothing


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
