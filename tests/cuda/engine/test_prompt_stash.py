"""The stash returns the rows of tokens, from the GPU and from RAM, for all sizes of batches."""

import numpy as np
from cpu_device import CpuDevice
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.device.launch import Span
from sharpi.ops.cuda.replay.prompt_program import PromptStash, StashSizes

ARRAYS = (12, 4)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 5), st.integers(0, 4), st.integers(1, 4), st.integers(1, 9))
def test_rows_come_back(page: int, on_gpu: int, in_ram: int, batch: int) -> None:
    device = CpuDevice(check=False)
    tokens = page * (on_gpu + in_ram)
    sizes = StashSizes(tokens, page, on_gpu, in_ram)
    stash = PromptStash(device, ARRAYS, sizes)
    rng, written = np.random.default_rng(0), []
    for first in range(0, tokens, batch):
        count = min(batch, tokens - first)
        for array, row_bytes in ((0, 8), (1, 4)):
            data = rng.integers(0, 256, count * row_bytes, np.uint8)
            rows = Span(device.allocate(data.nbytes), 0, data.nbytes)
            device.upload(rows, data)
            for part, stashed in stash.row_pairs(array, first, rows, row_bytes):
                device.copy(stashed, part)
            written.append((array, first, row_bytes, data))
    for array, first, row_bytes, data in written:
        rows, found = Span(device.allocate(data.nbytes), 0, data.nbytes), np.empty_like(data)
        for part, stashed in stash.row_pairs(array, first, rows, row_bytes):
            device.copy(part, stashed)
        device.download(rows, found)
        assert np.array_equal(found, data)


def test_pages_are_counted() -> None:
    sizes = StashSizes(40, 4, 3, 5)
    assert sizes.holds(32)
    assert not sizes.holds(33)
    assert [sizes.spilled_pages(n) for n in (12, 13, 32)] == [0, 1, 5]
