"""ThreadPool: persistent native threads, each with the cores that it may use."""

import ctypes
from collections.abc import Sequence
from typing import Protocol

from sharpi.errors import SharpiError
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.library import load_library


class Place(Protocol):
    """The cores, NUMA node, cache group and relative speed of a thread.

    sharpi/hardware/topology.py implements it.
    """

    @property
    def cores(self) -> tuple[int, ...]: ...
    @property
    def node(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def speed(self) -> float: ...


class ThreadPool:
    """Persistent native threads; `num_threads` includes the calling thread.

    With `places`, one for each thread, threads are bound to cores, and receive work in proportion
    to their speed. Raises SharpiError if the system does not allow so many threads.
    """

    def __init__(self, num_threads: int, places: Sequence[Place] = ()) -> None:
        self.num_threads = num_threads
        self.address = int(load_library().sharpi_pool_create(num_threads, _native(places)) or 0)
        if not self.address:
            raise SharpiError(f"the system does not start {num_threads} threads; lower -t")

    @property
    def handle(self) -> int:
        """The address of the native object; raises ValueError after `close`."""
        if not self.address:
            raise ValueError("the thread pool is closed")
        return self.address

    def interrupt(self, *, wanted: bool = True) -> None:
        """Makes runs of programs end early, between two layers, until called with `wanted=False`.

        Any thread may call it. After `close` it does nothing.
        """
        if self.address:
            load_library().sharpi_pool_interrupt(self.address, wanted)

    @property
    def progress(self) -> float:
        """The fraction of the current run that is done, 0 to 1; any thread may read it."""
        if not self.address:
            return 0.0
        return float(load_library().sharpi_pool_progress(self.address))

    def close(self) -> None:
        """Stops the threads; a second call does nothing."""
        if self.address:
            load_library().sharpi_pool_destroy(self.address)
            self.address = 0


def _native(places: Sequence[Place]) -> "ctypes.Array[abi.ThreadPlace] | None":
    if not places:
        return None
    return (abi.ThreadPlace * len(places))(
        *(
            abi.ThreadPlace(
                cores=(ctypes.c_int32 * len(place.cores))(*place.cores),
                num_cores=len(place.cores),
                node=place.node,
                group=place.group,
                speed=place.speed,
            )
            for place in places
        )
    )
