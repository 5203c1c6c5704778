"""Placing buffers: buffers that live at the same time do not overlap, and memory is reused."""

from hypothesis import given
from hypothesis import strategies as st

from sharpi.ops.cpu.recorder_tape import ALIGNMENT, Buffer, aligned_bytes, assign_offsets

SPANS = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 20), st.integers(0, 6), st.booleans()),
    max_size=30,
)


@given(SPANS)
def test_living_buffers_never_overlap(spans: list[tuple[int, int, int, bool]]) -> None:
    buffers = [Buffer(size, 1, False, at, at + length, kept) for size, at, length, kept in spans]
    total = assign_offsets(buffers)
    for i, a in enumerate(buffers):
        assert a.offset % ALIGNMENT == 0
        assert 0 <= a.offset <= total - a.num_bytes
        for b in buffers[:i]:
            early, late = sorted((a, b), key=lambda x: x.first)
            if early.kept or early.last >= late.first:
                apart = a.offset + a.num_bytes <= b.offset or b.offset + b.num_bytes <= a.offset
                assert apart


def test_a_chain_of_values_takes_the_room_of_two() -> None:
    chain = [Buffer(640, 1, False, i, i + 1) for i in range(50)]
    assert assign_offsets(chain) == 2 * 640


def test_memory_starts_on_a_cache_line() -> None:
    assert all(aligned_bytes(n).ctypes.data % ALIGNMENT == 0 for n in (1, 63, 4096))
