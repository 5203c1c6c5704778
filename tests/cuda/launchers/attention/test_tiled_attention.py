"""Attention of many tokens on tensor cores, against NumPy in float64."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from attention_cases import Case
from device_arrays import empty, read, upload
from kv_pages import PAGE, pack_pages

from sharpi.device.device import Device
from sharpi.ops.cuda.launchers.attention.heads import KvCacheSlice
from sharpi.ops.cuda.launchers.attention.tiled_attention import tiled_attention

Array = npt.NDArray[Any]


def attend(device: Device, case: Case) -> Array:
    """Returns the kernel's floats (T, heads * value_dim); pages are shuffled."""
    keys, values = case.cache()
    num_pages = -(-len(keys) // PAGE)
    table = np.random.default_rng(7).permutation(num_pages + 2)[:num_pages].astype(np.int32)
    positions = np.array(case.positions, np.int32)
    columns, sinks = case.num_heads * case.value_dim, case.sinks()
    out = empty(device, len(positions) * columns * 4)
    stored = [
        upload(device, pack_pages(rows, kind, table, num_pages + 2))
        for rows, kind in ((keys, case.types.keys), (values, case.types.values))
    ]
    device.launch(
        tiled_attention(
            upload(device, case.queries()),
            (stored[0], None if case.values_in_keys else stored[1]),
            out,
            cache_slice=KvCacheSlice(upload(device, table), upload(device, positions), case.types),
            shape=case.shape,
            tokens=len(positions),
            sinks=None if sinks is None else upload(device, sinks),
            hadamard=case.hadamard,
        )
    )
    return read(device, out, np.float32, (len(positions), columns))


def check(device: Device, case: Case) -> None:
    """Rounding to f16 moves a score of about 20 by 0.01, and so a value of 1.5 by 0.02."""
    found, wanted = attend(device, case), case.want()
    assert np.linalg.norm(found - wanted) < 2e-3 * np.linalg.norm(wanted)
    np.testing.assert_allclose(found, wanted, atol=0.05)


def tokens(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "count"), [(1, 1, 33), (4, 2, 17), (5, 1, 7), (16, 1, 3)]
)
def test_groups_and_rows_that_fill_no_block(
    device: Device, num_heads: int, num_kv_heads: int, count: int
) -> None:
    check(device, Case(tokens(0, count), num_heads, num_kv_heads))


@pytest.mark.parametrize("first", [62, 127, 140])
def test_pages(device: Device, first: int) -> None:
    check(device, Case(tokens(first, 4), 4, 1))


@pytest.mark.parametrize(
    ("key_dim", "value_dim"), [(2, 2), (40, 72), (70, 66), (192, 128), (96, 160), (256, 256)]
)
def test_dims(device: Device, key_dim: int, value_dim: int) -> None:
    check(device, Case(tokens(60, 7), 3, 1, key_dim, value_dim))


@pytest.mark.parametrize(("key_dim", "value_dim"), [(576, 512), (56, 40)])
def test_values_that_begin_the_keys(device: Device, key_dim: int, value_dim: int) -> None:
    check(device, Case(tokens(63, 2), 20, 1, key_dim, value_dim, values_in_keys=True))


@pytest.mark.parametrize(("key_dim", "value_dim"), [(64, 64), (32, 96)])
def test_q8_0(device: Device, key_dim: int, value_dim: int) -> None:
    check(device, Case(tokens(61, 5), 3, 1, key_dim, value_dim, kv_type="q8_0"))


PACKED = [
    Case(tokens(60, 7), 3, 1, 96, 128, kv_type="q4_0", value_type="turbo3", hadamard=128),
    Case(tokens(0, 35), 2, 2, 64, 32, kv_type="q5_1", value_type="q5_0"),
]


@pytest.mark.parametrize("case", PACKED, ids=lambda case: str(case.types))
def test_packed_types_of_keys_and_values(device: Device, case: Case) -> None:
    check(device, case)


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("window", [1, 24, 100])
def test_windows(device: Device, window: int, is_chunked: bool) -> None:
    check(device, Case(tokens(126, 9), 2, 1, window=window, is_chunked=is_chunked))


def test_soft_cap_and_sinks(device: Device) -> None:
    check(device, Case(tokens(66, 5), soft_cap=2.0))
    check(device, Case(tokens(66, 5), has_sinks=True, window=32))


def test_large_scores_do_not_overflow(device: Device) -> None:
    class Loud(Case):
        def queries(self) -> Array:
            return super().queries() * 100

    out = attend(device, Loud(tokens(80, 3)))
    assert np.isfinite(out).all()
    assert np.abs(out).max() < 8  # of values of 1.5 times a normal number
