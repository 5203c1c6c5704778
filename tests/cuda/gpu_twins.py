"""What each test of this folder runs on: the CPU, and a GPU where there is one."""

import os
from pathlib import Path
from typing import Any

import pytest

GPU_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))  # of Linux, of Linux within Windows


def devices(drivers: tuple[Path, ...] = GPU_DRIVERS) -> list[Any]:
    """Returns the parameters of the fixture `device`; leaves out twins that would be skipped."""
    if "SHARPI_PTX" in os.environ:
        return [f"sm_{os.environ['SHARPI_PTX']}"]
    twin = [pytest.param("gpu", marks=pytest.mark.gpu)] if any(d.exists() for d in drivers) else []
    return ["cpu", *twin]
