"""Sound files, against the reader of the gguf package and packed by hand."""

from pathlib import Path
from typing import Any

import gguf
import gguf_bytes as pack
import numpy as np
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.gguf.string_array import StringArray

VOCABULARY_SIZES = {
    "deepseek-llm": 102400,
    "gpt-2": 50257,
    "llama-bpe": 128256,
    "llama-spm": 32000,
    "qwen2": 151936,
}


def write_model(path: Path, alignment: int = 32) -> None:
    """A file of the gguf package's writer: values of every kind, tensors of several types."""
    writer = gguf.GGUFWriter(path, "qwen3moe")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"):
        getattr(writer, f"add_{kind}")(f"number.{kind}", 100)
    writer.add_float32("number.float32", 0.1)
    writer.add_float64("number.float64", 0.1)
    writer.add_bool("number.bool", True)
    writer.add_string("text", "grüße\n")
    writer.add_array("tokens", ["<s>", "Ġa", "ü"])
    writer.add_array("scores", [-1.5, 0.0, 2.0])
    writer.add_array("types", [1, 3, -6])
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((2, 3, 64)).astype(np.float32)
    for quant_type in ("Q8_0", "Q4_0", "Q5_1", "F16", "BF16"):
        kind = gguf.GGMLQuantizationType[quant_type]
        blocks = gguf.quants.quantize(weights, kind)
        writer.add_tensor(f"blk.0.{quant_type}.weight", blocks, raw_dtype=kind)
    writer.add_tensor("norm.weight", weights[0, 0, :5])
    writer.add_tensor("ids", np.arange(6, dtype=np.int32).reshape(1, 2, 1, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | StringArray) else value


def assert_same(ours: GgufFile, theirs: gguf.GGUFReader) -> None:
    """The same metadata and the same tensors in the same places."""
    fields = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert {key: plain(value) for key, value in ours.metadata.items()} == fields
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.quant_type == tensor.tensor_type
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))
        assert (mine.num_values, mine.num_bytes) == (tensor.n_elements, tensor.n_bytes)
        assert mine.offset == tensor.data_offset
        assert mine.data.tobytes() == tensor.data.tobytes()


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_agrees_with_the_gguf_package(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, alignment)
    assert_same(open_gguf(path), gguf.GGUFReader(path))


@pytest.mark.slow
@pytest.mark.shared
def test_a_real_vocabulary_agrees_with_the_gguf_package(shared_folder: Path) -> None:
    path = shared_folder / "tokenizers" / "ggml-vocab-llama-spm.gguf"
    assert_same(open_gguf(path), gguf.GGUFReader(path))


@pytest.mark.shared
@pytest.mark.parametrize(("name", "size"), VOCABULARY_SIZES.items())
def test_real_vocabularies(shared_folder: Path, name: str, size: int) -> None:
    metadata = open_gguf(shared_folder / "tokenizers" / f"ggml-vocab-{name}.gguf").metadata
    tokens = metadata.get_string_array("tokenizer.ggml.tokens").tolist()
    assert len(tokens) == len(set(tokens)) == size
    assert len(metadata.get_array("tokenizer.ggml.token_type")) == size


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.gguf"
    infos = [pack.info("a", [4], QuantType.I8), pack.info("b", [32, 2], QuantType.Q8_0, 32)]
    data = bytes(range(4)) + bytes(28) + b"\x55" * 68
    path.write_bytes(pack.gguf([pack.uint32("key", 9)], infos, data, version=version))
    file = open_gguf(path)
    assert (file.version, file.metadata.get_int("key")) == (version, 9)
    assert file.tensors["a"].data.tolist() == [0, 1, 2, 3]
    assert file.tensors["b"].shape == (2, 32)
    assert file.tensors["b"].data.tobytes() == b"\x55" * 68
    assert file.num_bytes == path.stat().st_size


def test_tensors_are_read_only_views_of_one_mapping(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path)
    tensors = list(open_gguf(path).tensors.values())
    addresses = {tensor.data.ctypes.data - tensor.offset for tensor in tensors}
    assert len(addresses) == 1
    assert addresses.pop() % 4096 == 0
    for tensor in tensors:
        assert not tensor.data.flags.writeable
        assert not tensor.data.flags.owndata
        assert (tensor.data.dtype, tensor.data.ndim) == (np.uint8, 1)


def test_a_tensor_without_dimensions_is_one_value(tmp_path: Path) -> None:
    path = tmp_path / "scalar.gguf"
    path.write_bytes(pack.gguf(infos=[pack.info("scale", [])], data=b"\0\0\x80\x3f"))
    tensor = open_gguf(path).tensors["scale"]
    assert (tensor.shape, tensor.num_values, tensor.num_bytes) == ((), 1, 4)


def test_a_file_without_tensors_or_keys(tmp_path: Path) -> None:
    path = tmp_path / "nothing.gguf"
    path.write_bytes(pack.gguf(alignment=1))
    file = open_gguf(path)
    assert (len(file.metadata), len(file.tensors), file.parts) == (0, 0, (path,))


def test_what_was_taken_outlives_close(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path)
    with open_gguf(path) as file:
        kept = file.tensors["ids"].data
    assert not file.tensors
    assert kept.view(np.int32).tolist() == list(range(6))
    assert file.metadata.get_string_array("tokens").tolist() == ["<s>", "Ġa", "ü"]
    assert file.metadata.get_array("types").tolist() == [1, 3, -6]


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
    (tmp_path / name).write_bytes(pack.gguf([pack.uint32("split.count", 3)]))
    with pytest.raises(ModelFileError, match="is impossible; was the file renamed"):
        open_gguf(tmp_path / name)


def test_one_of_one(tmp_path: Path) -> None:
    path = tmp_path / part_name(1, 1)
    path.write_bytes(pack.gguf([pack.uint32("split.count", 1), pack.uint32("split.no", 0)]))
    assert open_gguf(path).parts == (path,)


def test_a_whole_file_under_the_name_of_a_part(tmp_path: Path) -> None:
    for number in (1, 2):  # cut out of a set by a program that joined the parts
        path = tmp_path / part_name(number, 2)
        path.write_bytes(pack.gguf(infos=[pack.info("t", [4], 24)], data=bytes([number] * 4)))
        file = open_gguf(path)
        assert (file.parts, file.tensors["t"].data.tolist()) == ((path,), [number] * 4)
