"""Where there is a GPU, each test has a twin that runs on it."""

from pathlib import Path

import pytest
from gpu_twins import devices

from sharpi.device.device import Device


def test_a_driver_brings_the_twins(tmp_path: Path) -> None:
    driver = tmp_path / "nvidiactl"
    assert devices((driver,)) == ["cpu"]
    driver.touch()
    (cpu, twin) = devices((tmp_path / "another", driver))
    assert cpu == "cpu"
    assert twin.values == ("gpu",)
    assert [mark.name for mark in twin.marks] == ["gpu"]


@pytest.mark.gpu
def test_the_gpu_takes_part(gpu: Device) -> None:
    """Without a GPU this one is skipped, and counted, in place of all twins."""
    assert gpu.name
    assert gpu.free_bytes > 0
