"""The emulator finds accesses that are out of bounds or misaligned, read-only or unset memory."""

import numpy as np
import pytest
from cpu_device import CpuDevice
from cpu_kernel import LaunchError
from small_kernels import SmallKernels, integers, values

from sharpi.device.launch import Span

KERNELS = SmallKernels("memory")


@pytest.mark.parametrize("at", [-1, 4, 5, 100, 10**6])
def test_outside_an_argument(at: int) -> None:
    y = integers(range(16)).part(16, 16)
    with pytest.raises(LaunchError, match=r"begins|outside every argument"):
        KERNELS.run("write_at", y, np.int32(at))
    with pytest.raises(LaunchError, match=r"begins|outside every argument"):
        KERNELS.run("atomic_at", y, np.int32(at))


@pytest.mark.parametrize("entry", ["write_at", "atomic_at"])
def test_inside_an_argument(entry: str) -> None:
    y = integers([0] * 4)
    KERNELS.run(entry, y, np.int32(3))
    assert values(y) == [0, 0, 0, 1]


def test_names_the_line_and_the_argument() -> None:
    with pytest.raises(LaunchError) as raised:
        KERNELS.run("write_at", integers([0] * 4), np.int32(4))
    assert str(raised.value) == (
        "write_at: 4-byte write begins 0 bytes behind the end, in argument 0,"
        f" at {KERNELS.line('y[at] = 1')}, block (0, 0, 0), thread 0"
    )


def test_goes_beyond_an_argument() -> None:
    x = integers(range(8)).part(0, 28)
    KERNELS.run("read_four_at", x, integers([0]), np.int32(0), writes=[1])
    with pytest.raises(LaunchError, match=r"begins 0 bytes behind the end, in argument 0"):
        KERNELS.run("read_four_at", x, integers([0]), np.int32(1), writes=[1])


def test_from_one_argument_into_the_next() -> None:
    both = integers(range(8))
    first, second = both.part(0, 16), both.part(16, 16)
    KERNELS.run("read_at", first, second, np.int32(3), writes=[1])
    KERNELS.run("read_at", first, second, np.int32(4), writes=[1])  # it may read there, if oddly
    assert values(both)[4] == 3


def test_writing_what_is_only_read() -> None:
    with pytest.raises(LaunchError, match="4-byte write at offset 8 of what is only read"):
        KERNELS.run("write_at", integers([0] * 4), np.int32(2), writes=[])


@pytest.mark.parametrize("at", [1, 2, 3, 6])
def test_misaligned(at: int) -> None:
    with pytest.raises(LaunchError, match=rf"misaligned access: .* {at % 4} past a multiple of 4"):
        KERNELS.run("read_misaligned", integers([0] * 4), integers([0]), np.int32(at), writes=[1])


def test_copies_may_be_misaligned_but_not_out_of_bounds() -> None:
    x, y = integers([0x01020304, 0x05060708]), integers([0])
    KERNELS.run("copy_at", x, y, np.int32(1), writes=[1])
    assert values(y) == [0x08010203]
    with pytest.raises(LaunchError, match="goes 1 bytes too far, in argument 0"):
        KERNELS.run("copy_at", x, y, np.int32(5), writes=[1])


def test_memory_reached_through_a_table() -> None:
    found, y = integers([3, 4]), integers([0])
    table = Span(CpuDevice().allocate(8), 0, 8)
    CpuDevice().upload(table, np.array([found.address], np.uint64))
    KERNELS.run("through_table", table, y, np.int32(0), writes=[1], referenced=(found,))
    assert values(y) == [4]
    with pytest.raises(LaunchError, match="of what is only read, in referenced memory"):
        KERNELS.run("through_table", table, y, np.int32(1), writes=[1], referenced=(found,))
    # Unnamed, it is outside, or beside an argument if the allocator laid it there.
    with pytest.raises(LaunchError, match=r"begins|outside every argument"):
        KERNELS.run("through_table", table, y, np.int32(0), writes=[1])


def test_shared_memory_that_was_never_set() -> None:
    with pytest.raises(LaunchError, match="shared memory is read before it is written"):
        KERNELS.run("unset_shared", integers([0] * 32))
    with pytest.raises(LaunchError, match=r"read before it is written.*block \(1, 0, 0\)"):
        KERNELS.run("shared_is_new_in_each_block", integers([0]), grid=2, block=1)


@pytest.mark.parametrize(("num_bytes", "num_set"), [(128, 31), (124, 32)])
def test_dynamic_shared_memory(num_bytes: int, num_set: int) -> None:
    y = integers([0] * 32)
    KERNELS.run("dynamic_shared", y, np.int32(32), shared_bytes=128)
    assert values(y) == list(range(31, -1, -1))
    with pytest.raises(LaunchError, match=r"read before it is written|outside every argument"):
        KERNELS.run("dynamic_shared", y, np.int32(num_set), shared_bytes=num_bytes)


def test_more_shared_memory_than_a_block_gets() -> None:
    with pytest.raises(LaunchError, match="65537 bytes of dynamic shared memory"):
        KERNELS.run("dynamic_shared", integers([0]), np.int32(0), shared_bytes=65537)
