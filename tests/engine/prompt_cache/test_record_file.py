"""A record's file is read back whole or refused, whatever happens to its bytes."""

import errno
import os
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sharpi.engine.prompt_cache.model_digest import arithmetic_files
from sharpi.engine.prompt_cache.record import (
    HEADER_BYTES,
    Bytes,
    Checksum,
    Record,
    RecordFault,
    checksum_of,
    parse_name,
    read_record,
    write_record,
)

pytestmark = pytest.mark.native
RECORD = Record(b"k" * 16, b"p" * 16, 128, tuple(range(40)), page_bytes=300, state_bytes=100)
DATA = np.random.default_rng(1).integers(0, 256, 400, np.uint8)


def read(path: Path, record: Record = RECORD) -> Bytes:
    data = np.zeros(record.num_bytes, np.uint8)
    read_record(path, record, data)
    return data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / str(RECORD.name)
    write_record(path, RECORD, DATA, time_ns=5)
    return path


def test_what_was_written_is_read(path: Path) -> None:
    assert (read(path) == DATA).all()
    assert path.stat().st_mtime_ns == 5
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_is_named_by_its_tokens(path: Path) -> None:
    name = parse_name(path.name)
    assert name == RECORD.name
    assert (name.num_tokens, name.has_state) == (40, True)
    assert parse_name("conversation.json") is None


faults = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 911), st.integers(0, 7)),
    st.tuples(st.just("cut"), st.integers(0, 911), st.just(0)),
    st.tuples(st.just("fill"), st.integers(0, 911), st.integers(1, 64)),
    st.tuples(st.just("append"), st.integers(1, 5000), st.just(0)),
)


@settings(deadline=None)
@given(st.lists(faults, min_size=1, max_size=3))
def test_any_damage_is_refused_or_does_not_change_a_byte(damage: list[tuple]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / str(RECORD.name)
        write_record(path, RECORD, DATA, time_ns=5)
        whole = path.read_bytes()
        content = bytearray(whole)
        for kind, place, detail in damage:
            at = min(place, max(0, len(content) - 1))
            if kind == "flip" and content:
                content[at] ^= 1 << detail
            elif kind == "cut":
                del content[at:]
            elif kind == "fill":
                content[at : at + detail] = bytes(len(content[at : at + detail]))
            elif kind == "append":
                content += bytes(place)
        path.write_bytes(content)
        if bytes(content) == whole:
            assert (read(path) == DATA).all()
        else:
            with pytest.raises(RecordFault):
                read(path)


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("key", b"q" * 16, "another model"),
        ("parent", b"q" * 16, "another text"),
        ("position", 64, "another text"),
        ("tokens", tuple(range(1, 41)), "another text"),
        ("page_bytes", 200, "another text"),
    ],
)
def test_a_record_of_something_else_is_refused(
    path: Path, field: str, value: object, fault: str
) -> None:
    with pytest.raises(RecordFault, match=fault):
        read(path, replace(RECORD, **{field: value}))


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe, folder, link = tmp_path / "pipe", tmp_path / "folder", tmp_path / "link"
    os.mkfifo(pipe)
    folder.mkdir()
    link.symlink_to(pipe)
    for path in (pipe, folder):
        with pytest.raises(RecordFault, match="regular"):
            read(path)
    with pytest.raises(OSError, match="symbolic"):
        read(link)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_left = [HEADER_BYTES + 10]
    write = os.write

    def write_to_full_disk(descriptor: int, data: memoryview) -> int:
        if not num_left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = write(descriptor, data[: num_left[0]])
        num_left[0] -= count
        return count

    monkeypatch.setattr(os, "write", write_to_full_disk)
    with pytest.raises(OSError, match="No space"):
        write_record(tmp_path / str(RECORD.name), RECORD, DATA, time_ns=5)
    assert list(tmp_path.iterdir()) == []


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


def test_the_code_of_pages_is_that_of_every_processor() -> None:
    """What lays pages out, on a CPU or a GPU, decides whether files of pages can be used."""
    names = {path.name for path in arithmetic_files()}
    assert {"kv_packed.cuh", "heads.cu", "attention_calls.py", "kv_cache.py"} <= names
    assert any(name.endswith(".so") for name in names)
