"""Attention that prepares its heads and merges its spans gives the bits of three launches."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from device_arrays import empty, read, upload
from kv_pages import PAGE, pack_pages
from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cuda.launchers.attention.attention import (
    attention,
    scratch_bytes,
    with_heads,
    with_merge,
)
from sharpi.ops.cuda.launchers.attention.heads import (
    HeadGroup,
    HeadNorm,
    HeadRope,
    KvCacheSlice,
    heads,
)
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.settings import KvTypes

POSITIONS = (3, 300, 517)  # of three sequences, in one, two and three spans
Array = npt.NDArray[Any]


class Case(Struct, frozen=True):
    """The shape of the heads."""

    num_heads: int = 8
    num_kv_heads: int = 2
    dim: int = 64
    window: int = 0
    types: KvTypes = KvTypes()
    has_norm: bool = True
    stores: bool = True  # the layer has keys and values of its own
    interleaved: bool = False
    in_tiles: bool = False  # on tensor cores
    hadamard: int = 0  # the block in which heads are transformed


CASES = [
    Case(),
    Case(num_heads=8, num_kv_heads=1, dim=128, types=KvTypes("q8_0", "q8_0")),
    Case(num_heads=2, num_kv_heads=2, window=100, interleaved=True, has_norm=False),
    Case(stores=False),
    Case(num_heads=16, in_tiles=True),
    Case(num_heads=6, types=KvTypes("q4_0", "q5_0"), hadamard=64),
    Case(num_heads=16, dim=96, types=KvTypes("iq4_nl", "q5_1"), hadamard=32, in_tiles=True),
    Case(
        num_heads=8,
        num_kv_heads=1,
        dim=128,
        window=100,
        types=KvTypes("q8_0", "q8_0"),
        in_tiles=True,
    ),
]


@cache
def stored(case: Case) -> tuple[Array, list[Array]]:
    """Returns the page tables of the sequences, and the pages of keys and values before."""
    rng, count = np.random.default_rng(3), len(POSITIONS)
    pages_each = -(-(max(POSITIONS) + 1) // PAGE)
    tables = rng.permutation(count * pages_each).astype(np.int32)
    shape = len(tables) * PAGE, case.num_kv_heads, case.dim
    caches = [rng.normal(0, 1.5, shape).astype(np.float32) for _ in "kv"]
    kinds = case.types.keys, case.types.values
    packed = [
        pack_pages(rows, kind, tables, len(tables))
        for rows, kind in zip(caches, kinds, strict=True)
    ]
    return tables, packed


class World:
    """The memory of one attention; `launches` are those of three kernels."""

    def __init__(self, device: Device, case: Case) -> None:
        self.device, self.case = device, case
        rng, count, c = np.random.default_rng(4), len(POSITIONS), case
        tables, pages = stored(case)
        kinds = c.types.keys, c.types.values
        self.pages = [upload(device, each) for each in pages]
        sizes = (c.num_heads, c.num_kv_heads, c.num_kv_heads)
        rows = [rng.normal(0, 2, (count, heads, c.dim)).astype(np.float32) for heads in sizes]
        spans = [upload(device, each) for each in rows]
        weight = upload(device, rng.uniform(0.5, 2, c.dim).astype(np.float32))
        angles = upload(device, rng.normal(0, 1, (count, 2, c.dim // 2)).astype(np.float32))
        norm = HeadNorm(weight, 1e-6) if c.has_norm else None
        rope = HeadRope(angles, c.dim // 2, c.interleaved)
        q, k, v = (
            HeadGroup(x, n, c.dim, hadamard=c.hadamard) for x, n in zip(spans, sizes, strict=True)
        )
        groups = [replace(q, norm=norm, rope=rope)]
        if c.stores:
            groups += [
                replace(k, norm=norm, rope=rope, pages=self.pages[0], kv_type=kinds[0]),
                replace(v, pages=self.pages[1], kv_type=kinds[1]),
            ]
        cache_slice = KvCacheSlice(
            upload(device, tables), upload(device, np.array(POSITIONS, np.int32)), c.types,
            upload(device, np.arange(count, dtype=np.int32)), len(tables) // count,
        )  # fmt: skip
        shape = AttentionShape(
            0, c.num_heads, c.num_kv_heads, c.dim, c.dim, c.dim**-0.5, c.window
        )  # fmt: skip
        scratch = empty(device, scratch_bytes(shape, count, 1024))
        self.out = empty(device, 4 * count * c.num_heads * c.dim)
        self.quantised = empty(device, count * activation_bytes(c.num_heads * c.dim, 1))
        self.launches: tuple[Launch, Launch, Launch] = (
            heads(groups, tokens=count, cache_slice=cache_slice),
            *attention(
                spans[0], (self.pages[0], self.pages[1]), self.out, self.quantised, scratch,
                cache_slice=cache_slice, shape=shape, tokens=count, planes=1, max_positions=1024,
                sinks=None, hadamard=c.hadamard, in_tiles=c.in_tiles,
            ),
        )  # fmt: skip

    def results(self) -> list[bytes]:
        """The bytes of the values, of the quantised rows and of the KV cache."""
        spans: tuple[Span, ...] = (self.out, self.quantised, *self.pages)
        return [read(self.device, s, np.uint8, (s.num_bytes,)).tobytes() for s in spans]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_launch_has_the_bits_of_three(case: Case, device: Device) -> None:
    apart, together = World(device, case), World(device, case)
    for launch in apart.launches:
        device.launch(launch)
    counters = upload(device, np.zeros(len(POSITIONS) * case.num_kv_heads, np.int32))
    prepared = with_heads(*together.launches[:2])
    assert prepared is not None
    folded = with_merge(prepared, together.launches[2], counters)
    assert folded is not None
    for _ in range(1 if case.stores else 2):
        device.launch(folded)
    assert together.results() == apart.results()
    assert not read(device, counters, np.int32, (counters.num_bytes // 4,)).any()


def test_heads_of_something_else_are_left(device: Device) -> None:
    one, other = World(device, CASES[0]), World(device, CASES[0])
    assert with_heads(other.launches[0], one.launches[1]) is None
    assert with_merge(one.launches[1], other.launches[2], one.out) is None
    assert with_merge(one.launches[1], one.launches[2], one.out.part(0, 20)) is None
    large = World(device, Case(num_heads=8, num_kv_heads=1, dim=256))
    assert with_heads(*large.launches[:2]) is None
