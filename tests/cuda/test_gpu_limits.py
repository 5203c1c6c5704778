"""The read_rate kernel reads every byte once; rates are those of the bytes read."""

import numpy as np
import pytest
from device_arrays import empty, read, upload
from hypothesis import given
from hypothesis import strategies as st
from quant_weights import TYPES

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda import gpu_limits as gpu_limits
from sharpi.ops.cuda.gpu_limits import GpuLimits, filled_memory, read_rate, replay_seconds
from sharpi.ops.cuda.launchers.elementwise import unary
from sharpi.ops.cuda.matvec_layout import BLOCK, block_threads, lanes_of_row, units_of_row
from sharpi.ops.interface import Unary

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
    seconds = replay_seconds(device, [unary(x, Unary.SIGMOID, count=3)], tries=2)
    assert len(seconds) == 2
    assert min(seconds) > 0
    value = np.zeros(3)  # once directly, once to warm the graph up
    for _ in range(4):
        value = 1 / (1 + np.exp(-value))
    np.testing.assert_allclose(read(device, x, np.float32, (3,)), value, rtol=1e-3)


@given(st.sampled_from(TYPES), st.integers(1, 64))
def test_lanes_have_turns_enough_and_most_are_busy(quant_type: QuantType, blocks: int) -> None:
    columns = blocks * max(8, quant_type.block_values)
    units, lanes = units_of_row(quant_type, columns), lanes_of_row(quant_type, columns)
    assert lanes in (4, 8, 16, 32)
    assert lanes == 4 or units >= 2 * lanes
    turns = -(-units // lanes)
    assert lanes == 4 or 3 * units >= 2 * turns * lanes


@pytest.mark.parametrize(
    ("quant_type", "columns", "lanes"),
    [
        (QuantType.Q4_K, 2048, 16),
        (QuantType.Q4_K, 768, 4),
        (QuantType.Q6_K, 768, 8),
        (QuantType.Q8_0, 2048, 32),
        (QuantType.MXFP4, 2880, 32),
        (QuantType.BF16, 2, 4),
    ],
)
def test_shapes_of_models(quant_type: QuantType, columns: int, lanes: int) -> None:
    assert lanes_of_row(quant_type, columns) == lanes


def test_few_rows_are_split_over_many_blocks() -> None:
    assert block_threads(128, 8) == 64
    assert block_threads(1000, 8) == 64
    assert block_threads(1500, 8) == 128
    assert block_threads(100_000, 8) == BLOCK
