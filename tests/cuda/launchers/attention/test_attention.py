from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from activation_rows import rounding_error, unpack_rows
from attention_cases import Case
from device_arrays import empty, read, upload
from kv_pages import PAGE, pack_pages

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.launchers.attention.attention import attention, scratch_bytes
from sharpi.ops.cuda.launchers.attention.heads import KvCacheSlice
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.settings import KvType

Array = npt.NDArray[Any]


def attend(
    device: Device,
    case: Case,
    tokens: slice = slice(None),
    max_positions: int = 0,
    planes: int = 0,
    *,
    in_tiles: bool = False,
) -> tuple[Array, Array]:
    """Returns the kernels' floats (T, heads * value_dim) and quantised rows; pages are shuffled."""
    keys, values = case.cache()
    num_pages = -(-len(keys) // PAGE)
    table = np.random.default_rng(7).permutation(num_pages + 2)[:num_pages].astype(np.int32)
    queries = case.queries()[tokens]
    positions = np.array(case.positions, np.int32)[tokens]
    columns, count = case.num_heads * case.value_dim, len(positions)
    limit = max_positions or len(keys)
    scratch = empty(device, scratch_bytes(case.shape, count, limit))
    out = empty(device, count * columns * 4)
    quantised = empty(device, count * activation_bytes(columns, planes)) if planes else None
    sinks = case.sinks()
    pages = [
        upload(device, pack_pages(rows, kind, table, num_pages + 2))
        for rows, kind in ((keys, case.types.keys), (values, case.types.values))
    ]
    launches = attention(
        upload(device, queries),
        (pages[0], None if case.values_in_keys else pages[1]),
        *(out, quantised, scratch),
        cache_slice=KvCacheSlice(upload(device, table), upload(device, positions), case.types),
        shape=case.shape,
        tokens=count,
        sinks=None if sinks is None else upload(device, sinks),
        planes=planes,
        max_positions=limit,
        hadamard=case.hadamard,
        in_tiles=in_tiles,
    )
    for launch in launches:
        device.launch(launch)
    floats = read(device, out, np.float32, (count, columns))
    rows = (
        np.zeros(0)
        if quantised is None
        else read(device, quantised, np.uint8, (quantised.num_bytes,))
    )
    return floats, rows


def check(device: Device, case: Case) -> None:
    out, _ = attend(device, case)
    np.testing.assert_allclose(out, case.want(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("position", [0, 1, 63, 64, 255, 256, 600])
def test_positions(device: Device, position: int) -> None:
    check(device, Case((position,)))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "kv_type"),
    [
        (1, 1, "f16"),
        (2, 2, "q8_0"),
        (3, 1, "f16"),
        (5, 1, "q8_0"),
        (16, 2, "f16"),
        (9, 1, "q8_0"),
        (24, 2, "f16"),
    ],
)
def test_groups(device: Device, num_heads: int, num_kv_heads: int, kv_type: KvType) -> None:
    """Groups of every size, also those that need several blocks."""
    check(device, Case((70, 2), num_heads, num_kv_heads, kv_type=kv_type))


@pytest.mark.parametrize(
    ("key_dim", "value_dim"), [(2, 2), (80, 80), (72, 40), (70, 74), (192, 128), (576, 512)]
)
def test_dims(device: Device, key_dim: int, value_dim: int) -> None:
    check(device, Case((90,), 3, 1, key_dim, value_dim))


@pytest.mark.parametrize(
    ("window", "position"), [(1, 23), (24, 0), (24, 23), (24, 24), (300, 300), (300, 599)]
)
def test_chunks(device: Device, window: int, position: int) -> None:
    check(device, Case((position,), window=window, is_chunked=True))


@pytest.mark.parametrize(
    ("key_dim", "value_dim", "kv_type"),
    [(56, 40, "f16"), (576, 512, "f16"), (70, 66, "f16"), (96, 64, "q8_0")],
)
def test_values_that_begin_the_keys(
    device: Device, key_dim: int, value_dim: int, kv_type: KvType
) -> None:
    case = Case((3, 300), 10, 1, key_dim, value_dim, kv_type=kv_type, values_in_keys=True)
    check(device, case)


@pytest.mark.parametrize(("key_dim", "value_dim"), [(32, 32), (96, 160), (256, 256)])
def test_dims_of_q8_0(device: Device, key_dim: int, value_dim: int) -> None:
    check(device, Case((90,), 3, 1, key_dim, value_dim, kv_type="q8_0"))


PACKED = [
    Case((90, 2), 6, 2, 96, 64, kv_type="q5_1", value_type="q4_0"),
    Case((300,), 9, 1, 32, 128, kv_type="q5_0", value_type="turbo3", hadamard=128),
    Case((65,), 3, 1, 64, 96, kv_type="iq4_nl", value_type="q5_1", hadamard=32, has_sinks=True),
    Case((70,), 2, 2, 128, 32, kv_type="turbo3", value_type="iq4_nl"),
    Case((257,), 16, 2, kv_type="q4_0", value_type="q5_0", hadamard=64),
]


@pytest.mark.parametrize("case", PACKED, ids=lambda case: str(case.types))
def test_packed_types_of_keys_and_values(device: Device, case: Case) -> None:
    check(device, case)


def test_transformed_values_are_rounded_once_more(device: Device) -> None:
    """Several blocks of a merge have the bits of the floats that they are quantised from."""
    case = Case((300, 2), 16, 2, kv_type="q4_0", value_type="q5_0", hadamard=64)
    out, rows = attend(device, case, planes=1)
    np.testing.assert_allclose(out, case.want(), rtol=1e-5, atol=1e-5)
    quantised = unpack_rows(rows, 2, 16 * 64, 1)
    assert (np.abs(quantised - out) <= rounding_error(out, 1)).all()


@pytest.mark.parametrize("window", [1, 64, 100, 300])
def test_window(device: Device, window: int) -> None:
    check(device, Case((5, 299, 520), window=window))


def test_soft_cap_and_sinks(device: Device) -> None:
    check(device, Case((3, 290), soft_cap=2.0))
    check(device, Case((3, 290), has_sinks=True, window=128))


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize(("num_heads", "value_dim"), [(4, 64), (4, 40), (16, 10)])
def test_quantised(device: Device, num_heads: int, value_dim: int, planes: int) -> None:
    """Heads whose size is not a multiple of 32 share quantised blocks."""
    case = Case((40, 270), num_heads, 2, 64, value_dim)
    out, rows = attend(device, case, planes=planes)
    np.testing.assert_allclose(out, case.want(), rtol=1e-5, atol=1e-5)
    quantised = unpack_rows(rows, 2, num_heads * value_dim, planes)
    assert (np.abs(quantised - out) <= rounding_error(out, planes)).all()


def test_bits_do_not_depend_on_the_launch(device: Device) -> None:
    """A token has the same bits alone or among others, in a small grid or a large one."""
    case = Case((255, 256, 257, 258), num_heads=6, window=200)
    together, _ = attend(device, case)
    for token in range(4):
        alone, _ = attend(device, case, slice(token, token + 1), max_positions=1024)
        np.testing.assert_array_equal(alone[0], together[token])


def test_sequences_have_pages_of_their_own(device: Device) -> None:
    """Three sequences with interleaved pages: each token has the same result as alone."""
    case = Case((300, 5, 70), num_heads=3, num_kv_heads=1, kv_type="q8_0")
    keys, values = case.cache()
    tables = np.random.default_rng(5).permutation(15).reshape(3, 5).astype(np.int32)
    pages = [
        [pack_pages(np.roll(rows, i), case.kv_type, table, 15) for rows in (keys, values)]
        for i, table in enumerate(tables)
    ]
    of_page = np.argsort(tables.ravel()) // 5
    mixed = [
        upload(device, np.stack([pages[s][kind][page] for page, s in enumerate(of_page)]))
        for kind in (0, 1)
    ]

    def run(rows: slice, cache: list[Span], **whose: Any) -> Array:
        queries, positions = case.queries()[rows], np.array(case.positions, np.int32)[rows]
        count = len(positions)
        cache_slice = KvCacheSlice(positions=upload(device, positions), types=case.types, **whose)
        out = empty(device, count * 3 * 64 * 4)
        scratch = empty(device, scratch_bytes(case.shape, count, 320))
        for launch in attention(
            *(upload(device, queries), (cache[0], cache[1]), out, None, scratch),
            cache_slice=cache_slice, shape=case.shape, tokens=count, sinks=None, planes=0,
            max_positions=320,
        ):  # fmt: skip
            device.launch(launch)
        return read(device, out, np.float32, (count, 3 * 64))

    whose = upload(device, np.array([0, 1, 2], np.int32))
    all_tables = upload(device, tables)
    together = run(slice(None), mixed, page_tables=all_tables, sequences=whose, table_stride=5)
    for i, table in enumerate(tables):
        own = [upload(device, each) for each in pages[i]]
        alone = run(slice(i, i + 1), own, page_tables=upload(device, table))
        np.testing.assert_array_equal(alone[0], together[i])


def test_large_scores_do_not_overflow(device: Device) -> None:
    class Loud(Case):
        def queries(self) -> Array:
            return super().queries() * 100

    out, _ = attend(device, Loud((300,)))
    np.testing.assert_allclose(out, Loud((300,)).want(), rtol=1e-3, atol=1e-3)


TILES = [
    Case((0, 70), 8, 1),
    Case((257,), 16, 1, 128, 128, kv_type="q8_0"),
    Case((300, 65), 40, 1, window=100),  # two blocks for a KV head
    Case((90,), 32, 2, 70, 66, soft_cap=2.0),
    Case((129,), 8, 1, 256, 256, has_sinks=True),
    Case((66,), 8, 1, 32, 96, window=24, is_chunked=True, kv_type="q8_0"),
    Case((3, 258), 128, 1, 96, 64, values_in_keys=True),
    Case((80,), 9, 1, 160, 96, kv_type="iq4_nl", value_type="q5_1", hadamard=32),
    Case((64,), 17, 1, 576, 512, values_in_keys=True),  # as in DeepSeek V3
]


@pytest.mark.parametrize("case", TILES, ids=str)
def test_tensor_cores(device: Device, case: Case) -> None:
    """Rounding to f16 moves a score of about 20 by 0.01, and so a value of 1.5 by 0.02."""
    found, wanted = attend(device, case, in_tiles=True)[0], case.want()
    assert np.linalg.norm(found - wanted) < 2e-3 * np.linalg.norm(wanted)
    np.testing.assert_allclose(found, wanted, atol=0.05)


def test_bits_of_tensor_cores_do_not_depend_on_the_launch(device: Device) -> None:
    case = Case((255, 256, 257), num_heads=8, num_kv_heads=1, window=200)
    together, rows = attend(device, case, in_tiles=True, planes=1)
    for token in range(3):
        own = slice(token, token + 1)
        alone, row = attend(device, case, own, max_positions=1024, in_tiles=True, planes=1)
        np.testing.assert_array_equal(alone[0], together[token])
        np.testing.assert_array_equal(row, np.split(rows, 3)[token])
