"""`python -m tests.cluster.emulated_rank ARGUMENTS...`: sharpi with an emulated GPU.

EMULATED_VRAM is the number of its bytes; without it there is none. Only tests run this.
"""

import os
import sys
from pathlib import Path

import sharpi.device.gpu
from sharpi.device.device import Device
from sharpi.engine.placement import choice
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


def main() -> int:
    """Runs sharpi's command line, to which the emulated GPU is the machine's only one."""
    sys.path[:0] = [str(TESTS), str(TESTS / "cuda")]
    sharpi.device.gpu.open_gpu = open_emulated  # type: ignore[assignment]
    choice._rate = lambda device: _READ_RATE
    from sharpi.cli.start import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
