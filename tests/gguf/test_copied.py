"""Copies of tensors hold the same bytes, or there is an error that names the file."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sharpi.errors import ModelFileError
from sharpi.gguf import copied
from sharpi.gguf.copied import TensorCopies, copy_bytes
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import Tensor
from sharpi.system.files import ALIGNMENT

PARTS = ("a.gguf", "b.gguf")
SIZE = 200_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of random bytes, whose ends are not aligned."""
    folder, random = tmp_path_factory.mktemp("copied"), np.random.default_rng(3)
    for name in PARTS:
        (folder / name).write_bytes(random.bytes(SIZE + 77))
    return [folder / name for name in PARTS]


def tensor(files: list[Path], name: str, part: int, offset: int, num_bytes: int) -> Tensor:
    data = np.memmap(files[part], np.uint8, "r")[offset : offset + num_bytes]
    return Tensor(name, QuantType.I8, (num_bytes,), data, part, offset)


def is_copied(copies: dict[str, Tensor], tensors: list[Tensor]) -> bool:
    return all(
        np.array_equal(copies[each.name].data, each.data)
        and not np.shares_memory(copies[each.name].data, each.data)
        and not copies[each.name].data.flags.writeable
        for each in tensors
    )


def copied_tensors(
    parts: list[Path], tensors: list[Tensor], on_progress: Callable[[float], None] | None = None
) -> dict[str, Tensor]:
    copies = TensorCopies(parts, tensors)
    copies.read(on_progress)
    return copies.tensors


PLACES = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, SIZE - 1), st.integers(1, 30_000)),
    min_size=1,
    max_size=12,
)


@given(PLACES)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_places_in_any_order(files: list[Path], places: list[tuple[int, int, int]]) -> None:
    tensors = [
        tensor(files, str(i), part, offset, min(size, SIZE + 77 - offset))
        for i, (part, offset, size) in enumerate(places)
    ]
    seen: list[float] = []
    copies = copied_tensors(files, tensors, seen.append)
    assert is_copied(copies, tensors)
    assert seen == sorted(seen)
    assert seen[-1] == 1
    whole = sum(each.num_bytes for each in tensors)
    assert copy_bytes(tensors) <= whole + 2 * ALIGNMENT * len(tensors)


def test_neighbours_share_their_pages(files: list[Path]) -> None:
    tensors = [tensor(files, str(i), 0, i * 1000, 1000) for i in range(8)]
    assert copy_bytes(tensors) == 2 * ALIGNMENT
    assert copy_bytes([]) == 0


def test_copies_know_the_bytes_in_the_file_before_they_are_filled(files: list[Path]) -> None:
    wanted = tensor(files, "x", 0, 5, 9000)
    copy = TensorCopies(files, [wanted]).tensors["x"]
    assert not copy.data.any()
    assert np.array_equal(copy.data_in_file, wanted.data)
    assert wanted.data_in_file is wanted.data


def test_a_range_of_many_reads(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied, "READ_BYTES", ALIGNMENT)
    tensors = [tensor(files, "all", 1, 0, SIZE + 77)]
    seen: list[float] = []
    assert is_copied(copied_tensors(files, tensors, seen.append), tensors)
    assert len(seen) == -(-(SIZE + 77) // ALIGNMENT)


def test_a_file_system_without_direct_reads(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    really_open = os.open

    def refuse(path: Path, flags: int) -> int:
        if flags & getattr(os, "O_DIRECT", 0):
            raise OSError(22, "Invalid argument")
        return really_open(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    tensors = [tensor(files, "x", 0, 5, 9000)]
    assert is_copied(copied_tensors(files, tensors), tensors)


def test_a_file_that_was_cut(files: list[Path], tmp_path: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(files[0].read_bytes()[:5000])
    with pytest.raises(ModelFileError, match=r"short\.gguf: ends early"):
        copied_tensors([short], [tensor(files, "x", 0, 100, 9000)])


def test_a_file_that_is_gone(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"none\.gguf: cannot be read \(No such file"):
        copied_tensors([tmp_path / "none.gguf"], [tensor(files, "x", 0, 100, 9000)])


def test_a_read_that_fails(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"cannot be read \(Is a directory"):
        copied_tensors([tmp_path], [tensor(files, "x", 0, 100, 9000)])
