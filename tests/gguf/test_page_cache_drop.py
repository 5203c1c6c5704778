"""Pages of a mapped file that are given back are read again, with the same bytes."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from sharpi.system.memory import drop_pages

SIZE = 64 * mmap.PAGESIZE


@pytest.mark.parametrize(("begin", "end"), [(0, SIZE), (100, SIZE - 100), (10, 200), (0, 0)])
def test_the_bytes_stay_and_nothing_beside_them_is_touched(
    begin: int, end: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.bin"
    content = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    path.write_bytes(content.tobytes())
    with path.open("rb") as file:
        os.fsync(file.fileno())
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, np.uint8)
    assert np.array_equal(data, content)
    drop_pages(data[begin:end], path, begin)
    assert np.array_equal(data, content)


def test_a_file_that_is_gone_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(SIZE))
    with path.open("rb") as file:
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    path.unlink()
    drop_pages(data, path, 0)
    assert not data.any()
