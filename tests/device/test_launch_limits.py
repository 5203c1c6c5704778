"""A launch is refused before a GPU would refuse it."""

import pytest

from sharpi.device.launch import Kernel, Launch
from sharpi.errors import DeviceError

KERNEL = Kernel("embed", "embed")


@pytest.mark.parametrize("grid", [(2**31 - 1, 1, 1), (1, 65_535, 65_535)])
def test_the_largest_grids(grid: tuple[int, int, int]) -> None:
    assert Launch(KERNEL, grid, 1024, (), frozenset()).grid == grid


@pytest.mark.parametrize(
    ("grid", "block"),
    [((2**31, 1, 1), 32), ((1, 65_536, 1), 32), ((1, 1, 65_536), 32), ((1, 1, 1), 1025)],
)
def test_beyond_a_gpu(grid: tuple[int, int, int], block: int) -> None:
    with pytest.raises(DeviceError, match=r"^embed: a GPU cannot launch .*; lower -b$"):
        Launch(KERNEL, grid, block, (), frozenset())
