"""Of equal launches the first ones and then every third are checked, in each test anew."""

import numpy as np
import pytest
from check_samples import FIRST, PERIOD, CheckSamples
from cpu_device import CpuDevice
from cpu_kernel import LaunchError
from small_kernels import FOLDER, integers

from sharpi.device.launch import Kernel, Launch, Span

TEXT = (FOLDER / "memory.cu").read_text(encoding="utf-8")


def read_through(table: Span, into: Span) -> Launch:
    """Reads from an address that lies in memory: launches are equal whatever it is."""
    arguments = table, into, np.int32(0)
    return Launch(Kernel("memory", "through_table"), (1, 1, 1), 1, arguments, frozenset({1}))


def choices(samples: CheckSamples, launch: Launch, number: int) -> list[bool]:
    return [samples.takes(launch) for _ in range(number)]


def launch_times(device: CpuDevice, launch: Launch, number: int) -> None:
    for _ in range(number):
        device.launch(launch)


def test_the_first_and_every_third_launch_are_checked() -> None:
    launch = read_through(integers([0, 0]), integers([0]))
    expected = [n < FIRST or n % PERIOD == 0 for n in range(20)]
    samples = CheckSamples()
    assert choices(samples, launch, 20) == expected
    samples.begin()
    assert choices(samples, launch, 20) == expected


def test_launches_of_other_sizes_and_numbers_are_another_kind() -> None:
    samples, table, into = CheckSamples(), integers([0, 0]), integers([0])
    choices(samples, read_through(table, into), 9)
    longer = Launch(
        Kernel("memory", "through_table"), (2, 1, 1), 1, (table, into, np.int32(0)), frozenset()
    )
    other = Launch(
        Kernel("memory", "through_table"), (1, 1, 1), 1, (table, into, np.int32(1)), frozenset()
    )
    assert samples.takes(longer)
    assert samples.takes(other)


def test_a_fault_of_later_launches_is_found() -> None:
    device = CpuDevice(texts={"memory": TEXT})
    table, into, outside = integers([0, 0]), integers([0] * 4), integers([0] * 4)
    launch = read_through(table, into)
    device.upload(table, np.array([into.address], np.uint64))
    launch_times(device, launch, FIRST)
    device.upload(table, np.array([outside.address], np.uint64))
    with pytest.raises(LaunchError, match=r"outside every argument|behind the end"):
        launch_times(device, launch, PERIOD)
