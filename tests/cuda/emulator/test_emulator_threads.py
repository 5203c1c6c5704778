"""Threads, barriers and warps of the emulator do what CUDA's do, in every order."""

import numpy as np
import pytest
from cpu_device import BACKWARD, FORWARD
from cpu_kernel import LaunchError
from small_kernels import SmallKernels, integers, values

from sharpi.errors import DeviceError

KERNELS = SmallKernels("threads")
ORDERS = pytest.mark.parametrize("order", [FORWARD, BACKWARD, 7])


def result(entry: str, num_threads: int, order: int) -> list[int]:
    out = integers([0] * num_threads)
    KERNELS.run(entry, out, block=num_threads, order=order)
    return values(out)


@ORDERS
def test_numbers(order: int) -> None:
    out = integers([0] * 48)
    KERNELS.run("numbers", out, grid=3, block=16, order=order)
    assert values(out) == [100 * block + thread + 3 for block in range(3) for thread in range(16)]


@ORDERS
def test_xor_shuffle(order: int) -> None:
    assert result("xor_shuffle", 32, order) == [lane ^ 5 for lane in range(32)]


@ORDERS
def test_narrow_shuffles(order: int) -> None:
    for lane, value in enumerate(result("narrow_shuffles", 32, order)):
        place = lane % 8
        down = lane + 3 if place < 5 else lane
        up = lane - 3 if place >= 3 else lane
        assert value == lane - place + 1 + 100 * down + 10000 * up


@ORDERS
def test_halves_of_a_warp_on_their_own(order: int) -> None:
    assert result("half_warps", 32, order) == [120] * 16 + [376] * 16


@ORDERS
def test_votes(order: int) -> None:
    assert result("votes", 96, order) == [320113] * 32 + [320112] * 32 + [320110] * 32


@ORDERS
def test_shared_memory(order: int) -> None:
    assert result("reversed", 64, order) == list(range(63, -1, -1))


@ORDERS
def test_atomics(order: int) -> None:
    x, out = integers([i % 3 for i in range(300)]), integers([0] * 4)
    KERNELS.run("histogram", x, out, np.int32(300), grid=3, block=64, order=order, writes=[1])
    assert values(out) == [100, 100, 100, 0]


@ORDERS
def test_threads_that_ended_are_not_waited_for(order: int) -> None:
    assert result("barrier_of_some", 64, order) == [1] * 40 + [0] * 24


@ORDERS
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("different_barriers", "threads wait at different barriers"),
        ("half_a_shuffle", "waits for lanes that never come"),
        ("shuffle_with_the_ended", r"ended or never were|never come"),
        ("shuffle_outside_its_mask", "is not in the mask 0xffff"),
        ("shuffle_from_outside_its_mask", "reads lane 20, which is not in its mask"),
        ("different_shuffles", "different warp operations"),
        ("trap", "__trap"),
    ],
)
def test_faults(entry: str, says: str, order: int) -> None:
    with pytest.raises(LaunchError, match=says) as raised:
        result(entry, 64, order)
    assert f"{entry}: " in str(raised.value)
    assert "at threads.cu:" in str(raised.value)


def test_goes_on_after_a_fault() -> None:
    with pytest.raises(LaunchError):
        result("trap", 64, FORWARD)
    assert result("reversed", 64, FORWARD)[0] == 63


def test_blocks_of_a_size_that_no_gpu_has() -> None:
    with pytest.raises(LaunchError, match="a block of 0 threads"):
        KERNELS.run("numbers", integers([0]), block=0)
    with pytest.raises(DeviceError, match="blocks of 1025 threads"):
        KERNELS.run("numbers", integers([0]), block=1025)


def test_an_empty_grid() -> None:
    with pytest.raises(LaunchError, match="a grid of 0 x 1 x 1"):
        KERNELS.run("numbers", integers([0]), grid=0)
