"""Thousands of damaged headers: each file opens or is refused, and none costs much memory."""

import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf_bytes as pack
import pytest

from sharpi.errors import ModelFileError
from sharpi.gguf.file_summary import summarise
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.gguf.string_array import StringArray

NUM_SEEDS, MUTATIONS_PER_SEED = 4, 300
PEAK_BYTES = 4 << 20
GIGABYTE = 1 << 30
INTEGERS = (0, 1, 2, 7, 8, 9, 31, 255, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1)

TENSORS = (
    ("token_embd.weight", (32, 8), QuantType.Q8_0, 272),
    ("blk.0.ffn_up_exps.weight", (256, 2, 2), QuantType.Q4_K, 576),
    ("output_norm.weight", (32,), QuantType.F32, 128),
    ("ids", (3, 1, 1, 2), QuantType.I16, 12),
)


def sound_file() -> bytes:
    """A file with metadata of every type and tensors of several types, about 2,000 bytes."""
    pairs = [pack.string("general.architecture", "llama")]
    pairs += [pack.pair(f"n.{c}", c, pack.number(c, 1)) for c in pack.FORMATS]
    pairs += [
        pack.pair(f"a.{c}", pack.ARRAY, pack.array(c, [pack.number(c, 1)] * 5))
        for c in pack.FORMATS
    ]
    tokens = [pack.text(f"token{i}") for i in range(20)]
    pairs.append(pack.pair("tokenizer.ggml.tokens", pack.ARRAY, pack.array(pack.STRING, tokens)))
    inner = [pack.array(pack.U8, [b"\1"]), pack.array(pack.STRING, [pack.text("x")])]
    pairs.append(pack.pair("nested", pack.ARRAY, pack.array(pack.ARRAY, inner)))
    pairs.append(pack.uint32("general.alignment", 32))
    pairs.append(pack.uint32("llama.expert_count", 2))
    infos, offset = [], 0
    for name, sizes, quant_type, size in TENSORS:
        infos.append(pack.info(name, sizes, quant_type, offset))
        offset += -(-size // 32) * 32
    return pack.gguf(pairs, infos, bytes(offset))


SOUND = sound_file()
HEAD_BYTES = len(SOUND) - 1056


def flip_bytes(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(HEAD_BYTES)] = rng.randrange(256)


def flip_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(HEAD_BYTES)] ^= 1 << rng.randrange(8)


def blast_integer(data: bytearray, rng: random.Random) -> None:
    size = rng.choice((4, 8))
    value = rng.choice((*INTEGERS, len(SOUND), rng.getrandbits(64))) & (256**size - 1)
    at = rng.randrange(HEAD_BYTES - size)
    data[at : at + size] = value.to_bytes(size, "little")


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def cut_out(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(HEAD_BYTES)
    del data[at : at + rng.randint(1, 40)]


def repeat_piece(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(HEAD_BYTES)
    data[at:at] = data[at : at + rng.randint(1, 80)]


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_bytes,
    flip_bit,
    flip_bit,
    blast_integer,
    blast_integer,
    truncate,
    cut_out,
    repeat_piece,
)


def use_everything(file: GgufFile, size: int) -> None:
    """Reads all that the file offers; every view must lie inside it."""
    for tensor in file.tensors.values():
        assert 0 < tensor.offset <= tensor.offset + tensor.num_bytes <= size
        assert tensor.data.size == tensor.num_bytes
        tensor.data.sum()
    for value in file.metadata.values():
        if isinstance(value, StringArray):
            assert len(value.tolist()) == len(value)
    summarise(file)


def opens(path: Path, data: bytes) -> bool:
    """Says if `data` opens as a model; any error but a ModelFileError fails the test."""
    path.write_bytes(data)
    try:
        use_everything(open_gguf(path), len(data))
    except ModelFileError as error:
        fault = str(error)
    else:
        return True
    assert fault.isprintable()
    return False


def test_the_sound_file_opens(tmp_path: Path) -> None:
    assert opens(tmp_path / "sound.gguf", SOUND)
    assert len(open_gguf(tmp_path / "sound.gguf").tensors) == len(TENSORS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(NUM_SEEDS))
def test_damaged_headers(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    num_opened = 0
    tracemalloc.start()
    try:
        for _ in range(MUTATIONS_PER_SEED):
            data = bytearray(SOUND)
            rng.choice(MUTATIONS)(data, rng)
            num_opened += opens(tmp_path / "damaged.gguf", bytes(data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES
    # Both outcomes must occur: a flipped text still opens, a flipped count does not.
    assert 0 < num_opened < MUTATIONS_PER_SEED


def lying(code: int, *counts: int) -> bytes:
    """A head whose only value claims `counts`; arrays nest where there are two."""
    payload = b""
    for entry, count in zip((code, *(0,) * (len(counts) - 1)), counts, strict=True):
        payload += struct.pack("<IQ", entry, count)
    return pack.gguf([pack.pair("key", pack.ARRAY, payload)])


LIES = {
    "text": pack.gguf([pack.pair("key", pack.STRING, struct.pack("<Q", 3 * GIGABYTE))]),
    "numbers": lying(pack.F32, GIGABYTE // 2),
    "texts": lying(pack.STRING, GIGABYTE // 8),
    "nested arrays": lying(pack.ARRAY, GIGABYTE // 16, 1),
    "keys": pack.gguf(num_pairs=GIGABYTE // 16),
    "tensors": pack.gguf(num_infos=GIGABYTE // 32),
}


@pytest.mark.parametrize("head", LIES.values(), ids=list(LIES))
def test_a_large_file_that_lies_costs_little_memory(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(4 * GIGABYTE)  # sparse: it takes no disk
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            open_gguf(path)
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES
    finally:
        tracemalloc.stop()
