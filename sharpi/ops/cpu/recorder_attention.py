"""Records attention over the KV cache."""

from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind
from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cpu.kv_cache import KV_TYPE_CODES, KvCache, value_stride
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
        layer = abi.KvLayerParams(
            self._data(self._cache.layers[shape.layer]),
            shape.num_kv_heads,
            shape.key_dim,
            shape.value_dim,
            value_stride(shape),
            shape.values_in_keys,
            KV_TYPE_CODES[self._cache.kv_type],
        )
        if k is not None:
            self._add(
                OpKind.KV_STORE,
                [k] if v is None else [k, v],
                lambda: abi.KvStoreParams(
                    self._at(k), self._at(v), layer, self._limits.precision_code
                ),
            )
        out = self._buffer(shape.num_heads * shape.value_dim)
        return self._add(
            OpKind.ATTENTION,
            [out, q],
            lambda: abi.AttentionParams(
                self._at(q),
                self._at(out),
                layer,
                shape.num_heads,
                shape.window,
                shape.scale,
                shape.soft_cap,
                shape.is_chunked,
                self._limits.precision_code,
                self._data(sinks),
            ),
        )
