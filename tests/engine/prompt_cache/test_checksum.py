"""The checksum of the native library agrees with a plain one, and tells changed data apart."""

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.engine.prompt_cache.record import Checksum, checksum_of

pytestmark = pytest.mark.native


def plain(data: bytes) -> bytes:
    """Returns the digest as the docstrings state it, over Python's integers."""
    lanes, mask = list(range(1, 9)), 2**64 - 1
    padded = data + bytes(-len(data) % 64)
    for start in range(0, len(padded), 8):
        lane = start // 8 % 8
        word = int.from_bytes(padded[start : start + 8], "little")
        product = (lanes[lane] ^ word) * 0x9E3779B97F4A7C15 & mask
        lanes[lane] = (product << 29 | product >> 35) & mask
    values = np.array(lanes, np.uint64).tobytes()
    return blake2b(values + len(data).to_bytes(8, "little"), digest_size=16).digest()


def digest(data: bytes) -> bytes:
    return checksum_of(np.frombuffer(data, np.uint8))


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_the_native_checksum_is_the_plain_one(data: bytes) -> None:
    assert digest(data) == plain(data)


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=400), st.data())
def test_a_flipped_bit_is_found(data: bytes, drawn: st.DataObject) -> None:
    changed = bytearray(data)
    changed[drawn.draw(st.integers(0, len(data) - 1))] ^= 1 << drawn.draw(st.integers(0, 7))
    assert digest(bytes(changed)) != digest(data)


def test_zeros_at_the_end_count() -> None:
    assert len({digest(bytes(count)) for count in (0, 1, 63, 64, 65, 128)}) == 6


def test_pieces_give_the_digest_of_the_whole() -> None:
    data = np.arange(1000, dtype=np.int32).view(np.uint8)
    checksum = Checksum()
    for start in range(0, data.size, 640):
        checksum.add(data[start : start + 640])
    assert checksum.digest() == checksum_of(data)


def test_a_piece_after_a_row_that_is_not_full_is_refused() -> None:
    checksum = Checksum()
    checksum.add(np.zeros(65, np.uint8))
    with pytest.raises(ValueError, match="last piece"):
        checksum.add(np.zeros(64, np.uint8))
