"""Copies of experts between memories of all alignments."""

import numpy as np
import pytest
from device_arrays import empty, read, upload

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.experts.host_items import CopyWait, GatherPiece, gather_experts

EXPERTS = 3


@pytest.mark.parametrize("num_bytes", [1, 15, 34, 16 << 10, (32 << 10) + 7])
@pytest.mark.parametrize("apart", [0, 1, 2, 4, 8])
def test_copies_from_homes_and_slots(device: Device, num_bytes: int, apart: int) -> None:
    rng = np.random.default_rng([num_bytes, apart])
    home, host = device.mapped(EXPERTS * (num_bytes + 5) + 16)
    host[:] = rng.integers(0, 256, len(host), np.uint8)
    starts = np.arange(EXPERTS) * (num_bytes + 5) + apart
    stride = num_bytes + 16
    untouched = np.zeros(4 * stride, np.uint8)
    slots, early, staging = (upload(device, untouched) for _ in range(3))
    piece = GatherPiece(
        host_addresses=upload(device, starts.astype(np.uint64) + np.uint64(home.address)),
        slots=slots,
        early=early,
        staging=staging,
        stride=stride,
        num_bytes=num_bytes,
        referenced=(Span(home, 0, home.num_bytes),),
    )
    # Places: host copies 0-2, slots 3-6, early 7-10, staging from 11 on.
    for listed in ([(2, 4, 2), (0, 8, 0), (1, 11, 1)], [(2, 6, 4), (0, 3, 8)]):
        loads = np.array([[len(listed), 0, 0, 0], *((*load, 0) for load in listed)], np.int32)
        sizes = {"experts": EXPERTS, "num_slots": 4, "num_early": 4, "most_loads": 3}
        device.launch(gather_experts(upload(device, loads), [piece], **sizes))
    expected = np.zeros((3, 4, stride), np.uint8)
    for memory, place, expert in [(0, 1, 2), (1, 1, 0), (2, 0, 1), (0, 3, 2), (0, 0, 0)]:
        expected[memory, place, :num_bytes] = host[starts[expert] :][:num_bytes]
    found = [read(device, span, np.uint8, (4, stride)) for span in (slots, early, staging)]
    np.testing.assert_array_equal(np.stack(found), expected)


def test_the_end_is_noted_once_by_many_blocks(device: Device) -> None:
    """Of 32 blocks the last adds the time; the next launch counts from 0 again."""
    home = upload(device, np.zeros((EXPERTS, 256 << 10), np.uint8))
    steps = np.arange(EXPERTS, dtype=np.uint64) * np.uint64(256 << 10)
    piece = GatherPiece(
        host_addresses=upload(device, steps + np.uint64(home.address)),
        slots=empty(device, 2 * (256 << 10)),
        early=None,
        staging=None,
        stride=256 << 10,
        num_bytes=256 << 10,
        referenced=(home,),
    )
    words = upload(device, np.array([0, 10**6, 0], np.int64))
    wait = CopyWait(words.part(16, 4), words.part(8, 8), words.part(0, 8))
    sizes = {"experts": EXPERTS, "num_slots": 2, "num_early": 0, "most_loads": 2, "wait": wait}
    seen = []
    for count in (2, 0, 2):
        loads = np.array([[count, 0, 0, 0], [0, 3, 0, 0], [1, 4, 1, 0]], np.int32)
        device.launch(gather_experts(upload(device, loads), [piece], **sizes))
        seen.append(read(device, words, np.int64, (3,)).tolist())
    (first, _, copied), second, (third, _, _) = seen
    assert first > 0
    assert copied == 0
    assert second == seen[0]
    assert third > 2 * first  # the beginning stays where it was


def test_pieces_side_by_side(device: Device) -> None:
    """There are three pieces of different sizes, and more chunks than blocks."""
    rng = np.random.default_rng(0)
    data = [rng.integers(0, 256, (EXPERTS, size), np.uint8) for size in (48 << 10, 34, 16 << 10)]
    host_addresses = [upload(device, each) for each in data]
    pieces = [
        GatherPiece(
            host_addresses=upload(
                device,
                np.uint64(home.address) + np.arange(EXPERTS, dtype=np.uint64) * each.shape[1],
            ),
            slots=empty(device, each.nbytes),
            early=None,
            staging=None,
            stride=each.shape[1],
            num_bytes=each.shape[1],
            referenced=(home,),
        )
        for home, each in zip(host_addresses, data, strict=True)
    ]
    loads = np.array([[3, 3, 0, 0], [0, 5, 0, 0], [1, 3, 1, 0], [2, 4, 2, 0]], np.int32)
    sizes = {"experts": EXPERTS, "num_slots": 3, "num_early": 0, "most_loads": 1}
    device.launch(gather_experts(upload(device, loads), pieces, **sizes))
    for piece, each in zip(pieces, data, strict=True):
        found = read(device, piece.slots, np.uint8, each.shape)
        np.testing.assert_array_equal(found, each[[1, 2, 0]])
