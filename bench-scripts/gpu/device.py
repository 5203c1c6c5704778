"""Which device a script about cards works on: the card, or the tests' execution on the CPU."""

import sys
from collections.abc import Callable
from pathlib import Path

from sharpi.device.device import Device
from sharpi.device.gpu import open_card
from sharpi.ops.cuda import gpu_limits as card_limits

TESTS = Path(__file__).resolve().parents[2] / "tests"


def device_opener(is_dry: bool) -> Callable[[], Device]:
    """Opens the card, or with `is_dry` what runs the kernels on the CPU, where little is timed."""
    return _open_cpu if is_dry else open_card


def _open_cpu() -> Device:
    add_tests("cuda")
    from cpu_device import CpuDevice

    card_limits.BYTES_A_TRY, card_limits.BUS_BYTES_A_TRY = 1 << 18, 1 << 16
    card_limits.READS_OF_A_TRY = card_limits.TRIES = 1
    device: Device = CpuDevice(check=False)
    return device


def add_tests(folder: str) -> None:
    """Makes the modules of a folder of the tests importable."""
    path = str(TESTS / folder)
    if path not in sys.path:
        sys.path.append(path)
