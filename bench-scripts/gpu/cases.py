"""The cases that kernels.py times: each kernel of a decode step with the sizes of a real model.

The launches of a case together read more bytes than the GPU's cache holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from gpu.arena import Arena, activations, allocate, kv_pages, make_arena, upload

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cuda.launchers.attention.attention import attention, scratch_bytes
from sharpi.ops.cuda.launchers.attention.heads import KvCacheSlice
from sharpi.ops.cuda.launchers.elementwise import unary
from sharpi.ops.cuda.launchers.experts import experts
from sharpi.ops.cuda.launchers.experts.route import route
from sharpi.ops.cuda.launchers.matvec import MatvecPart, matvec
from sharpi.ops.cuda.launchers.rms_norm import rms_norm
from sharpi.ops.cuda.matvec_layout import activation_bytes, reads_floats
from sharpi.ops.cuda.recorder.attention_calls import TILED_HEADS
from sharpi.ops.interface import Activation, Router, Unary
from sharpi.settings import KvType, KvTypes

_FLOAT, _INT = 4, 4
_PLANES = 1  # int8 activations, as large models use
_KV_TYPES: tuple[KvType, ...] = ("f16", "q8_0", "q5_1", "q4_0")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model and of the measurements; the defaults are those of Qwen3-30B-A3B."""

    hidden: int = 2048
    expert_hidden: int = 768
    experts: int = 128
    used: int = 8
    heads: int = 32
    kv_heads: int = 4
    head_dim: int = 128
    output_rows: int = 32768
    contexts: tuple[int, ...] = (512, 4096, 32768)
    batches: tuple[int, ...] = (1, 8)
    arena_bytes: int = 512 << 20  # bytes of weights that the launches of a case read
    max_kv_layers: int = 48


@dataclass(frozen=True, slots=True)
class Case:
    """Launches of one kernel that differ only in the addresses that they read."""

    kernel: str
    shape: str
    tokens: int
    num_bytes: int  # read by one launch; 0: too little for a rate
    launches: list[Launch] = field(repr=False)
    quant_type: str = ""
    launches_of_one: int = 1  # the launches of one execution of the operation


def expert_cases(device: Device, quant_type: QuantType, s: Sizes) -> Iterator[Case]:
    """Yields cases of the chosen experts: gate and up with the activation, down with the sum."""
    most = s.used * max(s.batches)
    wide = make_arena(device, quant_type, s.expert_hidden, s.hidden, s.arena_bytes, 2 * most)
    for tokens in s.batches:
        yield _gate_up(device, wide, tokens, s)
    del wide
    tall = make_arena(device, quant_type, s.hidden, s.expert_hidden, s.arena_bytes, most)
    for tokens in s.batches:
        yield _down(device, tall, tokens, s)


def _gate_up(device: Device, arena: Arena, tokens: int, s: Sizes) -> Case:
    planes = 0 if reads_floats(arena.quant_type, _PLANES) else _PLANES
    x = activations(device, tokens, s.hidden, planes)
    gate, up = (arena.stacked(device, first, 2) for first in (0, 1))
    items = tokens * s.used
    hidden = allocate(
        device, items * max(_FLOAT * s.expert_hidden, activation_bytes(s.expert_hidden, 1))
    )
    launches = [
        experts.gate_up(
            x, experts.Items(ids, tokens, s.used), gate, up, hidden,
            activation=Activation.SILU, planes=planes, hidden_planes=planes,
        )
        for ids in _rotating_ids(device, arena.count // 2, items)
    ]  # fmt: skip
    shape = f"2 x {s.used} of {s.expert_hidden} x {s.hidden}"
    num_bytes = 2 * items * arena.matrix_bytes
    return Case("experts gate_up", shape, tokens, num_bytes, launches, arena.quant_type.name)


def _down(device: Device, arena: Arena, tokens: int, s: Sizes) -> Case:
    planes = 0 if reads_floats(arena.quant_type, _PLANES) else _PLANES
    items = tokens * s.used
    hidden = activations(device, items, s.expert_hidden, planes)
    weights = upload(device, np.full((tokens, s.used), 1 / s.used, np.float32))
    stacked, out = arena.stacked(device, 0, 1), allocate(device, _FLOAT * tokens * s.hidden)
    launches = [
        experts.down(
            hidden, stacked,
            experts.RoutedSum(experts.Items(ids, tokens, s.used), s.hidden, out, weights),
            planes=planes,
        )
        for ids in _rotating_ids(device, arena.count, items)
    ]  # fmt: skip
    shape = f"{s.used} of {s.hidden} x {s.expert_hidden}"
    return Case(
        "experts down", shape, tokens, items * arena.matrix_bytes, launches, arena.quant_type.name
    )


def _rotating_ids(device: Device, num_experts: int, items: int) -> list[Span]:
    """Returns the expert ids of each launch; together the launches use each expert once.

    `items`: the number of ids of a launch.
    """
    turns = max(1, num_experts // items)
    order = np.random.default_rng(3).permutation(num_experts)[: turns * items].astype(np.int32)
    ids = upload(device, order)
    return [ids.part(turn * items * _INT, items * _INT) for turn in range(turns)]


def dense_cases(device: Device, quant_type: QuantType, s: Sizes) -> Iterator[Case]:
    """Yields cases of the dense matrices: those of attention, and the output."""
    wide = s.heads * s.head_dim
    for rows, columns in ((wide, s.hidden), (s.hidden, wide), (s.output_rows, s.hidden)):
        arena = make_arena(device, quant_type, rows, columns, s.arena_bytes, 1)
        for tokens in s.batches:
            yield _matvec(device, arena, tokens)


def _matvec(device: Device, arena: Arena, tokens: int) -> Case:
    planes = 0 if reads_floats(arena.quant_type, _PLANES) else _PLANES
    x = activations(device, tokens, arena.columns, planes)
    out = allocate(device, _FLOAT * tokens * arena.rows)
    shape = arena.quant_type, arena.rows, arena.columns
    parts = [MatvecPart(arena.matrix(i), None, out, *shape) for i in range(arena.count)]
    launches = [matvec(x, [part], tokens=tokens, planes=planes) for part in parts]
    text = f"{arena.rows} x {arena.columns}"
    return Case("matvec", text, tokens, arena.matrix_bytes, launches, arena.quant_type.name)


def attention_cases(device: Device, s: Sizes) -> Iterator[Case]:
    """Yields cases of attention of one token, by KV type and number of positions."""
    for kv_type in _KV_TYPES:
        for context in s.contexts:
            yield _attention(device, kv_type, context, s)


def _attention(device: Device, kv_type: KvType, context: int, s: Sizes) -> Case:
    pages = -(-context // 64)
    keys = kv_pages(device, kv_type, pages, s.kv_heads, s.head_dim)
    layers = max(1, min(s.max_kv_layers, s.arena_bytes // (2 * keys.num_bytes)))
    caches = [keys] + [
        kv_pages(device, kv_type, pages, s.kv_heads, s.head_dim) for _ in range(2 * layers - 1)
    ]
    width = s.heads * s.head_dim
    q, out = activations(device, 1, width, 0), allocate(device, _FLOAT * width)
    quantised = allocate(device, activation_bytes(width, _PLANES))
    most = 256
    while most < context:
        most *= 2
    dim = s.head_dim
    shape = AttentionShape(0, s.heads, s.kv_heads, dim, dim, dim**-0.5)
    scratch = allocate(device, scratch_bytes(shape, 1, most))
    table = upload(device, np.arange(pages, dtype=np.int32))
    positions = upload(device, np.array([context - 1], np.int32))
    types = KvTypes(kv_type, kv_type)
    launches = [
        launch
        for layer in range(layers)
        for launch in attention(
            q, (caches[2 * layer], caches[2 * layer + 1]), out, quantised, scratch,
            cache_slice=KvCacheSlice(table, positions, types), shape=shape, tokens=1, sinks=None,
            planes=_PLANES, max_positions=most, hadamard=0 if kv_type == "f16" else s.head_dim,
            in_tiles=s.heads // s.kv_heads >= TILED_HEADS,
        )
    ]  # fmt: skip
    num_bytes = 2 * keys.num_bytes * context // (64 * pages)
    return Case("attention", f"{context} positions", 1, num_bytes, launches, kv_type, 2)


def small_cases(device: Device, s: Sizes) -> Iterator[Case]:
    """Yields cases of small kernels; the first of them measures the cost of a launch."""
    one = upload(device, np.zeros(1, np.float32))
    yield Case("smallest", "1 value", 1, 0, [unary(one, Unary.SIGMOID, count=1)])
    router = make_arena(device, QuantType.F32, s.experts, s.hidden, s.arena_bytes, 1)
    for tokens in s.batches:
        yield _matvec(device, router, tokens)
        yield _rms_norm(device, tokens, s)
        yield _route(device, tokens, s)


def _rms_norm(device: Device, tokens: int, s: Sizes) -> Case:
    x = activations(device, tokens, s.hidden, 0)
    weight = upload(device, np.ones(s.hidden, np.float32))
    quantised = allocate(device, tokens * activation_bytes(s.hidden, _PLANES))
    launch = rms_norm(
        x, weight, None, quantised,
        tokens=tokens, width=s.hidden, groups=1, weight_per_group=False, epsilon=1e-6,
        planes=_PLANES,
    )  # fmt: skip
    return Case("rms_norm", f"{s.hidden} values", tokens, 0, [launch])


def _route(device: Device, tokens: int, s: Sizes) -> Case:
    logits = activations(device, tokens, s.experts, 0)
    ids, weights = (allocate(device, 4 * tokens * s.used) for _ in range(2))
    launch = route(logits, None, ids, weights, Router(s.experts, s.used), tokens=tokens)
    return Case("route", f"{s.used} of {s.experts}", tokens, 0, [launch])
