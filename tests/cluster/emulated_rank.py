"""`python -m tests.cluster.emulated_rank ARGUMENTS...`: sharpi with an emulated GPU.

EMULATED_VRAM is the number of its bytes; without it there is none. With EMULATED_NCCL, gloo
takes NCCL's place: it "works", "hangs" or "lies". Only tests run this.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import sharpi.device.gpu
from sharpi.cluster.group import Group
from sharpi.device.device import Device
from sharpi.engine.placement import gpu_rates
from sharpi.errors import DeviceError

TESTS = Path(__file__).parents[1]
_READ_RATE = 400e9  # which is not measured, as the emulator is slow


def open_emulated(index: int = 0) -> Device:
    """Opens the emulated GPU; raises DeviceError without one."""
    size = os.environ.get("EMULATED_VRAM")
    if not size or index:
        raise DeviceError(f"cuda:{index} is not there")
    from cpu_device import CpuDevice

    return CpuDevice(check=False, memory_bytes=int(size))


class _Pair:
    """A communicator of two ranks over gloo, which may have a fault."""

    def __init__(self, group: Group, edge: tuple[int, int]) -> None:
        self._group = group.torch.distributed.group.WORLD
        self._rank = edge[1] if group.rank == edge[0] else edge[0]
        self._tag = 100 + 10 * edge[0] + edge[1]
        self._fault = os.environ["EMULATED_NCCL"]

    def send(self, tensors: list[Any], other: int, tag: int) -> Any:
        if self._fault == "lies":
            tensors[0][0] += 1
        return self._group.send(tensors, self._rank, self._tag)

    def recv(self, tensors: list[Any], other: int, tag: int) -> Any:
        while self._fault == "hangs":
            time.sleep(1)
        return self._group.recv(tensors, self._rank, self._tag)

    def abort(self) -> None:
        """Does nothing, since the group has other transfers, too."""


def _emulate_nccl() -> None:
    from sharpi.engine.cluster import cluster_loader, gpu_connections

    cluster_loader.has_nccl = lambda torch: True
    cluster_loader.GpuConnections = partial(gpu_connections.GpuConnections, open_end=_Pair)  # type: ignore[assignment, misc]
    gpu_connections._TRY_SECONDS = 3.0


def main() -> int:
    """Runs sharpi's command line, to which the emulated GPU is the machine's only one."""
    sys.path[:0] = [str(TESTS), str(TESTS / "cuda")]
    sharpi.device.gpu.open_gpu = open_emulated  # type: ignore[assignment]
    gpu_rates._rate = lambda device: _READ_RATE
    if "EMULATED_NCCL" in os.environ:
        _emulate_nccl()
    from sharpi.cli.start import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
