"""The emulator finds unordered accesses, and lets ordered ones pass."""

import pytest
from cpu_device import BACKWARD, FORWARD
from cpu_kernel import LaunchError
from small_kernels import SmallKernels, integers, values

KERNELS = SmallKernels("races")
ORDERS = pytest.mark.parametrize("order", [FORWARD, BACKWARD, 7])


@ORDERS
@pytest.mark.parametrize(
    ("entry", "block"),
    [
        ("read_after_write", 64),
        ("write_after_read", 64),
        ("write_after_reads_of_all", 64),
        ("two_writes", 32),
        ("shuffle_is_no_fence", 32),
        ("warp_fence_between_warps", 64),
        ("atomic_and_plain", 32),
    ],
)
def test_races_in_a_block(entry: str, block: int, order: int) -> None:
    with pytest.raises(LaunchError, match=rf"{entry}: (race|.*read before it).* at races\.cu:"):
        KERNELS.run(entry, integers([0] * 64), block=block, order=order)


@ORDERS
@pytest.mark.parametrize(
    ("entry", "block"),
    [("blocks_write_one", 32), ("block_reads_another", 32), ("block_writes_what_all_read", 1)],
)
def test_races_of_blocks(entry: str, block: int, order: int) -> None:
    with pytest.raises(LaunchError, match="of another block before"):
        KERNELS.run(entry, integers([0] * 64), grid=3, block=block, order=order)


def test_names_the_line_and_the_threads() -> None:
    with pytest.raises(LaunchError) as raised:
        KERNELS.run("two_writes", integers([0] * 16))
    assert str(raised.value) == (
        "two_writes: race at offset 0: a write, a write of thread 0 before, and nothing between"
        f" them, in argument 0, at {KERNELS.line('two_writes')}, block (0, 0, 0), thread 16"
    )


@ORDERS
@pytest.mark.parametrize(
    ("entry", "block", "first"),
    [
        ("warp_fence", 32, 31),
        ("warp_fence_before_write", 32, 3),
        ("barriers_in_a_loop", 64, 192),
        ("atomics_of_blocks", 64, 64),
    ],
)
def test_no_race(entry: str, block: int, first: int, order: int) -> None:
    out = integers([0] * 64)
    KERNELS.run(entry, out, block=block, order=order)
    assert values(out)[0] == first


@ORDERS
def test_no_race_of_blocks(order: int) -> None:
    out = integers([5] + [0] * 96)
    KERNELS.run("atomics_of_blocks", out, grid=3, order=order)
    KERNELS.run("reads_of_blocks", out, grid=3, order=order)
    assert values(out) == [101] * 97


@ORDERS
def test_one_launch_after_another_is_no_race(order: int) -> None:
    out = integers([0] * 64)
    for _ in range(2):
        KERNELS.run("blocks_write_one", out, order=order)


@ORDERS
@pytest.mark.parametrize("writes", [[1], [0, 1]])
def test_in_place(writes: list[int], order: int) -> None:
    out = integers([0] * 32)
    KERNELS.run("in_place", out, out, order=order, writes=writes)
    assert values(out) == [1] * 32


@ORDERS
@pytest.mark.parametrize("entry", ["last_block_sums", "last_block_writes_what_all_read"])
def test_the_last_block_sees_what_the_others_did(entry: str, order: int) -> None:
    total = integers([0])
    KERNELS.run(
        entry, integers([0] * 5), integers([0]), total,
        grid=5, order=order, writes=[0, 1, 2],
    )  # fmt: skip
    assert values(total) == [15]


@ORDERS
@pytest.mark.parametrize(
    "entry", ["writes_after_it_arrived", "arrives_without_a_fence", "joins_another_counter"]
)
def test_a_last_block_that_does_not_wait(entry: str, order: int) -> None:
    with pytest.raises(LaunchError, match=rf"{entry}: race .*: a read, a write of another block"):
        KERNELS.run(
            entry, integers([0] * 5), integers([0]), integers([0]),
            grid=5, order=order, writes=[0, 1, 2],
        )  # fmt: skip
