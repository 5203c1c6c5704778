"""The read_rate kernel reads every byte once; rates are those of the bytes read."""

import numpy as np
import pytest
from device_arrays import empty, read, upload

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda import gpu_limits as gpu_limits
from sharpi.ops.cuda.gpu_limits import GpuLimits, filled_memory, read_rate, replay_seconds
from sharpi.ops.cuda.launchers.elementwise import sigmoid

BLOCK_BYTES = 128 << 10


@pytest.fixture(autouse=True)
def short_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_limits, "BYTES_A_TRY", 3 * BLOCK_BYTES)
    monkeypatch.setattr(gpu_limits, "READS_OF_A_TRY", 2)
    monkeypatch.setattr(gpu_limits, "BUS_BYTES_A_TRY", BLOCK_BYTES)


@pytest.mark.parametrize("num_bytes", [16, 4096, BLOCK_BYTES, 2 * BLOCK_BYTES + 48])
def test_every_word_is_read_once(device: Device, num_bytes: int) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, num_bytes // 4, np.uint32)
    sums = empty(device, gpu_limits.sums_bytes(num_bytes))
    device.launch(read_rate(upload(device, words), sums))
    found = read(device, sums, np.uint32, (sums.num_bytes // 4,))
    assert np.bitwise_xor.reduce(found) == np.bitwise_xor.reduce(words)
    first = words[: BLOCK_BYTES // 4]
    assert np.bitwise_xor.reduce(found[:8]) == np.bitwise_xor.reduce(first)


def test_rates(device: Device) -> None:
    limits = GpuLimits(device)
    limits.measure()
    first = limits.bytes_per_second
    limits.measure()
    limits.measure_bus()
    assert limits.bytes_per_second >= first > 0
    assert limits.bus_bytes_per_second > 0


def test_memory_is_filled_to_its_end(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_limits, "_CHUNK_BYTES", 1000)
    memory = filled_memory(device, 2500)
    found = read(device, Span(memory, 0, 2500), np.uint8, (2500,))
    np.testing.assert_array_equal(found, np.resize(gpu_limits.random_bytes(2500), 2500))
    assert len(np.unique(found)) > 200


def test_replays_repeat_the_work(device: Device) -> None:
    x = upload(device, np.zeros(3, np.float32))
    seconds = replay_seconds(device, [sigmoid(x, count=3)], tries=2)
    assert len(seconds) == 2
    assert min(seconds) > 0
    value = np.zeros(3)  # once directly, once to warm the graph up
    for _ in range(4):
        value = 1 / (1 + np.exp(-value))
    np.testing.assert_allclose(read(device, x, np.float32, (3,)), value, rtol=1e-3)
