"""Uploads through page-locked buffers: every byte arrives, and no buffer is filled too early."""

import ctypes
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pytest

from sharpi.device.staged_upload import BUFFERS, SMALL_BYTES, StagedUpload

CHUNK = 64


class SlowBus:
    """Copies when an event is waited for, as late as a device may."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, int]] = []
        self._lock = Lock()

    def mapped(self, num_bytes: int) -> tuple[SimpleNamespace, np.ndarray]:
        view = np.zeros(num_bytes, np.uint8)
        return SimpleNamespace(address=view.ctypes.data, view=view), view

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        self.waiting.append((target, source, num_bytes))

    def record_event(self) -> SimpleNamespace:
        count = len(self.waiting)
        return SimpleNamespace(synchronize=lambda: self.carry(count))

    def carry(self, count: int) -> None:
        with self._lock:
            for number in range(count):
                target, source, num_bytes = self.waiting[number]
                ctypes.memmove(target, source, num_bytes)
                self.waiting[number] = (target, source, 0)


@pytest.mark.parametrize("chunk", [CHUNK, SMALL_BYTES + CHUNK], ids=["one thread", "threads"])
@pytest.mark.parametrize("chunks", [0.1, 1, 1.1, 3.2 * BUFFERS])
def test_every_byte_arrives(chunks: float, chunk: int) -> None:
    bus, size = SlowBus(), int(chunks * chunk)
    upload = StagedUpload(bus.mapped, bus.copy, bus.record_event, chunk)
    for seed in range(2):
        data = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
        target = np.zeros(size, np.uint8)
        upload.upload(target.ctypes.data, data)
        bus.carry(len(bus.waiting))
        np.testing.assert_array_equal(target, data)
    assert max(num_bytes for _, _, num_bytes in [(0, 0, 0), *bus.waiting]) == 0
    upload.close()


def test_small_uploads_wait_for_no_more_than_their_buffer() -> None:
    bus = SlowBus()
    small = StagedUpload(bus.mapped, bus.copy, bus.record_event)
    target, source = np.zeros((20, 12), np.uint8), np.zeros(12, np.uint8)
    for number, row in enumerate(target):
        source[:] = number + 1
        small.upload(row.ctypes.data, source)
    num_pending = sum(size > 0 for *_, size in bus.waiting)
    assert 0 < num_pending < len(target)
    bus.carry(len(bus.waiting))
    assert (target == np.arange(1, 21)[:, None]).all()
    whole = np.arange(SMALL_BYTES, dtype=np.uint32).astype(np.uint8)
    found = np.zeros_like(whole)
    small.upload(found.ctypes.data, whole)
    bus.carry(len(bus.waiting))
    np.testing.assert_array_equal(found, whole)
