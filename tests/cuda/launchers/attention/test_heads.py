import numpy as np
import pytest
from device_arrays import empty, read, upload
from kv_pages import PACKED, PAGE, page_bytes, unpack_row
from reference_kv_rounding import round_rows
from reference_ops import ReferenceOps

from sharpi.device.device import Device
from sharpi.ops.cpu.kv_cache import hadamard
from sharpi.ops.cuda.launchers.attention.heads import (
    HeadGroup,
    HeadNorm,
    HeadRope,
    KvCacheSlice,
    heads,
)
from sharpi.settings import KvType

EPSILON = 1e-5
POSITIONS = np.array([0, 63, 200], np.int32)


def _values(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[-1]).normal(0, 2, shape).astype(np.float32)


def _angles(half: int) -> np.ndarray:
    turns = POSITIONS[:, None] * 0.37 ** np.arange(half)
    return np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)


def _want(
    x: np.ndarray, weight: np.ndarray | None, angles: np.ndarray | None, interleaved: bool
) -> np.ndarray:
    """Returns the expected heads of x (T, heads, dim)."""
    ops, flat = ReferenceOps(), x.reshape(len(x), -1)
    if weight is not None:
        flat = ops.rms_norm(flat, weight.reshape(-1), EPSILON, x.shape[1])
    if angles is not None:
        flat = ops.rope(flat, x.shape[1], angles, interleaved)
    return flat.reshape(x.shape)


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("num_heads", "dim", "half"), [(1, 2, 1), (3, 80, 20), (8, 64, 32), (2, 576, 32)]
)
def test_in_place(
    device: Device, num_heads: int, dim: int, half: int, interleaved: bool, per_head: bool
) -> None:
    x, angles = _values(3, num_heads, dim), _angles(half)
    weight = _values(num_heads if per_head else 1, dim)
    span = upload(device, x)
    norm = HeadNorm(upload(device, weight), EPSILON, per_head)
    rope = HeadRope(upload(device, angles), half, interleaved)
    device.launch(heads([HeadGroup(span, num_heads, dim, norm, rope)], tokens=3))
    want = _want(x, weight, angles, interleaved)
    np.testing.assert_allclose(read(device, span, np.float32, x.shape), want, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("has_norm", [False, True])
def test_either_alone(device: Device, has_norm: bool) -> None:
    x, weight, angles = _values(3, 5, 96), _values(96), _angles(24)
    span = upload(device, x)
    norm = HeadNorm(upload(device, weight), EPSILON, False) if has_norm else None
    rope = None if has_norm else HeadRope(upload(device, angles), 24, False)
    device.launch(heads([HeadGroup(span, 5, 96, norm, rope)], tokens=3))
    want = _want(x, weight if has_norm else None, None if has_norm else angles, False)
    np.testing.assert_allclose(read(device, span, np.float32, x.shape), want, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize(
    ("kv_type", "num_heads", "dim"),
    [("f16", 2, 64), ("f16", 3, 70), ("f16", 1, 576), ("q8_0", 2, 128), ("q8_0", 1, 32)],
)
def test_into_cache(device: Device, kv_type: KvType, num_heads: int, dim: int) -> None:
    x, angles = _values(3, num_heads, dim), _angles(16)
    x[1, 0, :32] = 0  # a block of zeros has no scale
    size, table = page_bytes(kv_type, num_heads, dim), np.array([4, 0, 0, 2], np.int32)
    pages = empty(device, 5 * size)
    cache_slice = KvCacheSlice(upload(device, table), upload(device, POSITIONS))
    source = upload(device, x)
    rope = HeadRope(upload(device, angles), 16, False)
    group = HeadGroup(source, num_heads, dim, None, rope, pages, kv_type=kv_type)
    device.launch(heads([group], tokens=3, cache_slice=cache_slice))
    np.testing.assert_array_equal(read(device, source, np.float32, x.shape), x)
    bits = read(device, pages, np.uint8, (5, size))
    for position, want in zip(POSITIONS, _want(x, None, angles, False), strict=True):
        row = unpack_row(bits[table[position // PAGE]], position % PAGE, num_heads, dim, kv_type)
        step = np.abs(want) * 2**-11 if kv_type == "f16" else np.abs(want).max() / 127 * 0.51
        assert (np.abs(row - want) <= step + 1e-6).all()


@pytest.mark.parametrize(("num_heads", "dim", "block"), [(2, 128, 128), (1, 96, 32), (1, 576, 64)])
@pytest.mark.parametrize("kv_type", PACKED)
def test_packed_into_cache(
    device: Device, kv_type: KvType, num_heads: int, dim: int, block: int
) -> None:
    """Heads are transformed and rounded like the CPU's reference does; a NaN stays one."""
    x = _values(3, num_heads, dim)
    x[1, 0, :block] = 0
    x[2, -1, -1] = np.nan
    size = page_bytes(kv_type, num_heads, dim)
    pages = empty(device, 4 * size)
    cache_slice = KvCacheSlice(
        upload(device, np.arange(4, dtype=np.int32)), upload(device, POSITIONS)
    )
    group = HeadGroup(
        upload(device, x), num_heads, dim, pages=pages, hadamard=block, kv_type=kv_type
    )
    device.launch(heads([group], tokens=3, cache_slice=cache_slice))
    bits = read(device, pages, np.uint8, (4, size))
    found = np.stack(
        [unpack_row(bits[at // PAGE], at % PAGE, num_heads, dim, kv_type) for at in POSITIONS]
    )
    want = round_rows(hadamard(x, block), kv_type)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    is_other = ~np.isclose(found, want, rtol=1e-3, atol=1e-6, equal_nan=True)
    assert is_other.mean() < 0.01  # numbers halfway between two levels
    exact = hadamard(x, block)
    errors = [np.nanmean((rows - exact) ** 2) for rows in (found, want)]
    assert errors[0] < 1.01 * errors[1]


def test_sequences_go_to_pages_of_their_own(device: Device) -> None:
    """Three tokens of two sequences go to the pages of their own sequence."""
    x, size = _values(3, 2, 64), page_bytes("f16", 2, 64)
    tables = np.array([[3, 0, 0, 2], [4, 0, 0, 1]], np.int32)
    owners = np.array([1, 0, 1], np.int32)
    pages = upload(device, np.zeros((5, size), np.uint8))
    cache_slice = KvCacheSlice(
        upload(device, tables),
        upload(device, POSITIONS),
        sequences=upload(device, owners),
        table_stride=4,
    )
    device.launch(
        heads([HeadGroup(upload(device, x), 2, 64, pages=pages)], tokens=3, cache_slice=cache_slice)
    )
    bits = read(device, pages, np.uint8, (5, size))
    for token, position in enumerate(POSITIONS):
        page = bits[tables[owners[token], position // PAGE]]
        row = unpack_row(page, position % PAGE, 2, 64, "f16")
        np.testing.assert_array_equal(row, x[token].astype(np.float16))


def test_cache_leaves_other_positions_alone(device: Device) -> None:
    size = page_bytes("q8_0", 1, 32)
    pages = upload(device, np.full(size, 7, np.uint8))
    positions = upload(device, np.array([5], np.int32))
    cache_slice = KvCacheSlice(upload(device, np.zeros(1, np.int32)), positions)
    x = upload(device, _values(1, 1, 32))
    device.launch(
        heads([HeadGroup(x, 1, 32, pages=pages, kv_type="q8_0")], tokens=1, cache_slice=cache_slice)
    )
    changed = np.flatnonzero(read(device, pages, np.uint8, (size,)) != 7)
    where = {*range(5 * 32, 6 * 32), *range(PAGE * 32 + 10, PAGE * 32 + 12)}
    assert set(changed.tolist()) <= where
    assert len(changed) > 30


def test_groups_together_are_what_they_are_alone(device: Device) -> None:
    """Queries in place, keys and values of other sizes into the cache."""
    table, positions = upload(device, np.array([0, 1, 1, 2], np.int32)), upload(device, POSITIONS)
    cache_slice = KvCacheSlice(table, positions)
    weight, rope = upload(device, _values(64)), HeadRope(upload(device, _angles(16)), 16, True)
    norm = HeadNorm(weight, EPSILON)

    def groups() -> list[HeadGroup]:
        sizes = ((5, 64), (2, 64), (2, 48))
        spans = [upload(device, _values(3, count, dim)) for count, dim in sizes]
        pages = [
            upload(device, np.zeros((3, page_bytes("f16", count, dim)), np.uint8))
            for count, dim in sizes
        ]
        return [
            HeadGroup(spans[0], 5, 64, norm, rope),
            HeadGroup(spans[1], 2, 64, None, rope, pages[1]),
            HeadGroup(spans[2], 2, 48, pages=pages[2]),
        ]

    together, alone = groups(), groups()
    device.launch(heads(together, tokens=3, cache_slice=cache_slice))
    for group in alone:
        device.launch(heads([group], tokens=3, cache_slice=cache_slice))
    for one, other in zip(together, alone, strict=True):
        for span, same in ((one.x, other.x), (one.pages, other.pages)):
            if span is not None and same is not None:
                shape = (span.num_bytes,)
                found = read(device, span, np.uint8, shape)
                np.testing.assert_array_equal(found, read(device, same, np.uint8, shape))
