"""Records attention over the KV cache."""

from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind
from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cpu.kv_cache import KV_FORMATS, KvCache, rotation_sizes, value_stride
from sharpi.ops.cpu.recorder_tape import Tape
from sharpi.ops.interface import AttentionShape, FloatArray


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
    ) -> Buffer:
        layer = self._layer(shape)
        if k is not None:
            self._store(k, v, layer)
        out = self._buffer(shape.num_heads * shape.value_dim)
        self._add(
            OpKind.ATTENTION,
            [out, q],
            lambda: abi.AttentionParams(
                queries=self._at(q),
                out=self._at(out),
                cache=layer,
                num_heads=shape.num_heads,
                window=shape.window,
                scale=shape.scale,
                soft_cap=shape.soft_cap,
                is_chunked=shape.is_chunked,
                precision=self._limits.precision_code,
                sinks=self._data(sinks),
            ),
        )
        if self._limits.drops_keys and k is not None:
            self._keep(q, shape, layer)
        return out

    def store(self, k: Buffer, v: Buffer | None, shape: AttentionShape) -> None:
        """Records the storing of keys and values in the KV cache, without attention."""
        self._store(k, v, self._layer(shape))

    def _layer(self, shape: AttentionShape) -> abi.KvLayerParams:
        types = self._cache.types
        key_rotation, value_rotation = rotation_sizes(shape, types)
        return abi.KvLayerParams(
            data=self._data(self._cache.layers[shape.layer]),
            heads=shape.num_kv_heads,
            key_dim=shape.key_dim,
            value_dim=shape.value_dim,
            value_stride=value_stride(shape),
            values_in_keys=shape.values_in_keys,
            key_type=KV_FORMATS[types.keys].code,
            value_type=KV_FORMATS[types.values].code,
            key_rotation=key_rotation,
            value_rotation=value_rotation,
        )

    def _store(self, k: Buffer, v: Buffer | None, layer: abi.KvLayerParams) -> None:
        self._add(
            OpKind.KV_STORE,
            [k] if v is None else [k, v],
            lambda: abi.KvStoreParams(
                keys=self._at(k),
                values=self._at(v),
                cache=layer,
                precision=self._limits.precision_code,
            ),
        )

    def _keep(self, q: Buffer, shape: AttentionShape, layer: abi.KvLayerParams) -> None:
        """Records the operation by which SnapKV chooses the keys and values to keep.

        See Li et al., arXiv 2404.14469.
        """
        self._add(
            OpKind.KV_KEEP,
            [q],
            lambda: abi.KvKeepParams(
                queries=self._at(q),
                cache=layer,
                num_heads=shape.num_heads,
                precision=self._limits.precision_code,
                scale=shape.scale,
                soft_cap=shape.soft_cap,
            ),
        )
