"""Recorder: records a model's step as native operations, while the model's code runs once.

The modules `recorder_*` each record one kind of operations. The result is a `Program`, which is
replayed for every step.
"""

from collections.abc import Callable, Sequence
from ctypes import c_int32, c_void_p

from sharpi.ops.attention_shape import AttentionShape, Chosen
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import ConvolutionParams, DeltaNetParams, Mamba2Params, OpKind
from sharpi.ops.cpu.kv_cache import (
    KV_FORMATS,
    KvCache,
    attention_bytes,
    reads_rows,
    rotation_sizes,
    value_stride,
)
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cpu.recorder_experts import ExpertsRecorder
from sharpi.ops.cpu.recorder_tape import Buffer, Tape
from sharpi.ops.interface import Activation, ExpertSource, FloatArray
from sharpi.ops.recurrent import (
    ConvolutionShape,
    DecayRates,
    DeltaNetShape,
    Mamba2Shape,
    StateLayout,
)


class AttentionRecorder(Tape):
    """Implements the attention of `Ops[Buffer]` over one KV cache."""

    _cache: KvCache

    def attention(
        self,
        q: Buffer,
        k: Buffer | None,
        v: Buffer | None,
        shape: AttentionShape,
        sinks: FloatArray | None = None,
        chosen: Chosen[Buffer] | None = None,
    ) -> Buffer:
        layer = self._layer(shape)
        if k is not None:
            self._store(k, v, layer)
        out = self._buffer(shape.num_heads * shape.value_dim)
        self._add(
            OpKind.ATTENTION, abi.AttentionParams, *([chosen.blocks] if chosen else []),
            out=out, queries=q, cache=layer,
            num_heads=shape.num_heads, window=shape.window, scale=shape.scale,
            soft_cap=shape.soft_cap, is_chunked=shape.is_chunked,
            precision=self._limits.precision_code, sinks=sinks, chosen=self._chosen(chosen),
        )  # fmt: skip
        if self._limits.drops_keys and k is not None:
            self._keep(q, shape, layer)
        return out

    def choose(
        self,
        keys: Callable[[], Buffer],
        queries: Callable[[], tuple[Buffer, Buffer | None]],
        shape: AttentionShape,
    ) -> Chosen[Buffer] | None:
        index, types = shape.index, self._cache.types
        assert index is not None
        of_keys = AttentionShape(
            shape.layer, index.num_heads, 1, index.key_dim, 0, index.scale, values_in_keys=True
        )  # fmt: skip
        layer = self._layer(of_keys, first=attention_bytes(shape, types))
        self._store(keys(), None, layer)
        if index.num_positions >= self._limits.max_positions:
            return None
        q, weights = queries()
        blocks = self._buffer(index.num_choices * index.num_chosen)
        self._add(
            OpKind.CHOOSE, abi.ChooseParams, blocks=blocks, queries=q, weights=weights, cache=layer,
            num_heads=index.num_heads, count=index.num_chosen, block=index.block,
            local=index.num_local, scale=index.scale, precision=self._limits.precision_code,
        )  # fmt: skip
        return Chosen(index, blocks)

    def _chosen(self, chosen: Chosen[Buffer] | None) -> Callable[[], abi.Chosen]:
        """Returns a function that makes the struct for attention."""

        def make() -> abi.Chosen:
            if chosen is None:
                return abi.Chosen()
            index = chosen.shape
            return abi.Chosen(
                blocks=self._at(chosen.blocks), choices=index.num_choices, count=index.num_chosen,
                block=index.block,
            )  # fmt: skip

        return make

    def store(self, k: Buffer, v: Buffer | None, shape: AttentionShape) -> None:
        """Records the storing of keys and values in the KV cache, without attention."""
        self._store(k, v, self._layer(shape))

    def _layer(self, shape: AttentionShape, first: int = 0) -> abi.KvLayerParams:
        """Returns where a layer's keys and values are, which begin at byte `first` of its pages."""
        types, pages = self._cache.types, self._cache.layers[shape.layer]
        key_rotation, value_rotation = rotation_sizes(shape, types)
        return abi.KvLayerParams(
            data=self._data(pages[:, first:]),
            heads=shape.num_kv_heads,
            key_dim=shape.key_dim,
            value_dim=shape.value_dim,
            value_stride=value_stride(shape),
            values_in_keys=shape.values_in_keys,
            key_type=KV_FORMATS[types.keys].code,
            value_type=KV_FORMATS[types.values].code,
            key_rotation=key_rotation,
            value_rotation=value_rotation,
            page_bytes=pages.shape[1],
            in_rows=shape.is_sparse and reads_rows(shape, types),
        )

    def _store(self, k: Buffer, v: Buffer | None, layer: abi.KvLayerParams) -> None:
        self._add(
            OpKind.KV_STORE, abi.KvStoreParams, keys=k, values=v, cache=layer,
            precision=self._limits.precision_code,
        )  # fmt: skip

    def _keep(self, q: Buffer, shape: AttentionShape, layer: abi.KvLayerParams) -> None:
        """Records the choice of keys and values to keep (SnapKV, Li et al., arXiv 2404.14469)."""
        self._add(
            OpKind.KV_KEEP, abi.KvKeepParams, queries=q, cache=layer, num_heads=shape.num_heads,
            precision=self._limits.precision_code, scale=shape.scale, soft_cap=shape.soft_cap,
        )  # fmt: skip


class RecurrentRecorder(Tape):
    """Implements the recurrent operations of `Ops[Buffer]`, including `split` and `gated`."""

    _states: StateLayout

    def split(self, x: Buffer, widths: Sequence[int], groups: int = 1) -> list[Buffer]:
        outs = [self._buffer(groups * width, x.rows) for width in widths]
        self._add(
            OpKind.SPLIT, abi.SplitParams, *outs, x=x, groups=groups, num_parts=len(outs),
            rows=x.rows, widths=(c_int32 * abi.MAX_PARTS)(*widths),
            outs=lambda: (c_void_p * abi.MAX_PARTS)(*map(self._at, outs)),
        )  # fmt: skip
        return outs

    def gated(self, gate: Buffer, x: Buffer, activation: Activation) -> Buffer:
        return self._add(
            OpKind.GATED, abi.GatedParams, out=self._buffer(x.width, x.rows), gate=gate, x=x,
            width=x.width, activation=activation, rows=x.rows,
        )  # fmt: skip

    def convolve(
        self,
        x: Buffer,
        weight: FloatArray,
        bias: FloatArray | None,
        shape: ConvolutionShape,
        silu: bool,
    ) -> Buffer:
        return self._add(
            OpKind.CONVOLUTION, ConvolutionParams, out=self._buffer(shape.channels), x=x,
            weight=weight, bias=bias, state_offset=self._states.offsets[shape],
            channels=shape.channels, kernel=shape.kernel, silu=silu,
        )  # fmt: skip

    def delta_net(
        self, qkv: Buffer, beta: Buffer, alpha: Buffer, rates: DecayRates, shape: DeltaNetShape
    ) -> Buffer:
        return self._add(
            OpKind.DELTA_NET, DeltaNetParams,
            out=self._buffer(shape.num_value_heads * shape.value_dim), qkv=qkv, beta=beta,
            alpha=alpha, a=rates.a, dt_bias=rates.dt_bias,
            state_offset=self._states.offsets[shape], key_heads=shape.num_key_heads,
            value_heads=shape.num_value_heads, key_dim=shape.key_dim, value_dim=shape.value_dim,
            tiled=shape.head_order == "tiled", epsilon=shape.epsilon, by_key=shape.decays_by_key,
            floor=rates.floor,
        )  # fmt: skip

    def mamba2(
        self, xbc: Buffer, dt: Buffer, rates: DecayRates, skip: FloatArray, shape: Mamba2Shape
    ) -> Buffer:
        return self._add(
            OpKind.MAMBA2, Mamba2Params, out=self._buffer(shape.num_heads * shape.head_dim),
            xbc=xbc, dt=dt, a=rates.a, d=skip, dt_bias=rates.dt_bias,
            state_offset=self._states.offsets[shape], heads=shape.num_heads,
            groups=shape.num_groups, head_dim=shape.head_dim, state_size=shape.state_size,
        )  # fmt: skip


class Recorder(ExpertsRecorder, AttentionRecorder, RecurrentRecorder):
    """Implements all of `Ops` by recording native operations; `finish` returns the program."""

    def __init__(
        self,
        limits: ProgramLimits,
        cache: KvCache,
        source: ExpertSource | None = None,
        *,
        keeps_router_logits: bool = False,
        states: StateLayout | None = None,
    ) -> None:
        super().__init__(limits)
        self._cache = cache
        self._source = source
        self._keeps_router_logits = keeps_router_logits
        self._states = states or StateLayout(())
