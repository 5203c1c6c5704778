"""Models split over several files."""

from pathlib import Path

import gguf
import gguf_bytes as pack
import numpy as np
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.reader import open_gguf


def part_name(number: int, count: int = 3) -> str:
    return f"model-{number:05d}-of-{count:05d}.gguf"


def write_part(
    folder: Path,
    number: int,
    *,
    tensor: str | None = None,
    stored: int | None = None,
    total: int = 3,
) -> None:
    """Part `number` of three with one tensor; it says it is part `stored`."""
    pairs = [
        pack.uint32("split.no", (number if stored is None else stored) - 1),
        pack.uint32("split.count", 3),
        pack.uint32("split.tensors.count", total),
        pack.string("general.architecture", "llama" if number == 1 else "ignored"),
    ]
    infos = [pack.info(tensor or f"t{number}", [4], 24)]
    (folder / part_name(number)).write_bytes(pack.gguf(pairs, infos, bytes([number] * 4)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2, 3):
        write_part(tmp_path, number)
    return tmp_path


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_part_opens_the_set(folder: Path, number: int) -> None:
    file = open_gguf(folder / part_name(number))
    assert [part.name for part in file.parts] == [part_name(n) for n in (1, 2, 3)]
    assert {n: (t.part, t.data.tolist()) for n, t in file.tensors.items()} == {
        f"t{n}": (n - 1, [n] * 4) for n in (1, 2, 3)
    }
    assert file.metadata.get_str("general.architecture") == "llama"
    assert file.num_bytes == sum(part.stat().st_size for part in file.parts)


def test_the_gguf_package_splits_the_same_way(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", split_max_tensors=2)
    for index in range(5):
        writer.add_tensor(f"t{index}", np.full(8, index, np.float32))
    writer.write_header_to_file(tmp_path / "model.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(tmp_path / part_name(1))
    assert [tensor.data.view(np.float32)[0] for tensor in file.tensors.values()] == [0, 1, 2, 3, 4]
    assert [tensor.part for tensor in file.tensors.values()] == [0, 0, 1, 1, 2]


def test_a_missing_part_is_named(folder: Path) -> None:
    (folder / part_name(2)).unlink()
    for number in (1, 3):
        with pytest.raises(
            ModelFileError, match=r"00002-of-00003\.gguf: no such file; all 3 parts"
        ):
            open_gguf(folder / part_name(number))


def test_a_missing_part_that_was_asked_for(folder: Path) -> None:
    (folder / part_name(2)).unlink()
    with pytest.raises(ModelFileError, match=r"00002-of-00003\.gguf: no such file$"):
        open_gguf(folder / part_name(2))


def test_a_tensor_in_two_parts(folder: Path) -> None:
    write_part(folder, 3, tensor="t1")
    with pytest.raises(ModelFileError, match=r"00003-of-.*: tensor t1 is also in another part"):
        open_gguf(folder / part_name(1))


def test_parts_in_the_wrong_order(folder: Path) -> None:
    write_part(folder, 2, stored=3)
    with pytest.raises(ModelFileError, match="holds part 3 of 3, though its name says 2 of 3"):
        open_gguf(folder / part_name(1))


def test_too_few_tensors(folder: Path) -> None:
    write_part(folder, 1, total=7)
    with pytest.raises(ModelFileError, match="the parts hold 3 tensors, not 7"):
        open_gguf(folder / part_name(1))


def test_a_renamed_part_says_how_to_call_it(folder: Path) -> None:
    renamed = (folder / part_name(2)).rename(folder / "other.gguf")
    with pytest.raises(ModelFileError, match=r"rename it to other-00002-of-00003\.gguf"):
        open_gguf(renamed)


def test_a_damaged_part_is_named(folder: Path) -> None:
    (folder / part_name(3)).write_bytes(b"GGUF\3\0")
    with pytest.raises(ModelFileError, match=r"00003-of-00003\.gguf: truncated"):
        open_gguf(folder / part_name(1))


@pytest.mark.parametrize("name", ["model-00004-of-00003.gguf", "model-00000-of-00003.gguf"])
def test_an_impossible_number(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pack.gguf())
    with pytest.raises(ModelFileError, match="is impossible; was the file renamed"):
        open_gguf(tmp_path / name)


def test_one_of_one(tmp_path: Path) -> None:
    path = tmp_path / part_name(1, 1)
    path.write_bytes(pack.gguf([pack.uint32("split.count", 1), pack.uint32("split.no", 0)]))
    assert open_gguf(path).parts == (path,)


def test_a_whole_file_under_the_name_of_a_part(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / part_name(number, 2)).write_bytes(pack.gguf())
    with pytest.raises(ModelFileError, match="holds part 1 of 1, though its name says 1 of 2"):
        open_gguf(tmp_path / part_name(1, 2))
