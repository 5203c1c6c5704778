"""Records attention, with the norm and RoPE of heads and the writes to the KV cache."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from sharpi.device.device import AttendShape
from sharpi.device.launch import Span
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, rotation_sizes
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.kv_cache import GpuKvCache, types_of
from sharpi.ops.cuda.launchers.attention import attention, heads
from sharpi.ops.cuda.launchers.attention import tiled_attention as tiles
from sharpi.ops.cuda.launchers.attention.heads import KvCacheSlice
from sharpi.ops.cuda.recorded import Attend, Call, PendingHeads, RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.f16_matmul import is_product, uses_library
from sharpi.ops.cuda.recording import Recording, head_group
from sharpi.ops.cuda.replay.step_inputs import StepInputs
from sharpi.ops.interface import FloatArray
from sharpi.settings import F16_TYPES

FUSED_BYTES = 256 << 20  # the most keys and values that the library's attention may gather
TILED_HEADS = 8  # query heads per KV head; with fewer, most rows of a tensor core would be empty
_FUSED_DIM = 256
_SCRATCH_BYTES = 32 << 20  # for partial results; more tokens are computed part by part
_INT_BYTES = 4


def attend(
    recording: Recording,
    cache: GpuKvCache,
    inputs: StepInputs,
    qkv: tuple[RecordedTensor, RecordedTensor | None, RecordedTensor | None],
    shape: AttentionShape,
    sinks: FloatArray | None = None,
) -> RecordedTensor:
    """Appends the storing of k and v in the KV cache, and attention; returns attention's result.

    A row of the result is (num_heads * value_dim,). If k and v are None, attention reads the keys
    and values that an earlier layer stored. If only v is None, the values are part of the keys.
    """
    recording.weights.register(sinks)
    pending = [None if each is None else recording.take_pending(each) for each in qkv]
    can_quantise = recording.planes > 0
    out = recording.value(shape.num_heads * shape.value_dim, qkv[0].rows, can_quantise=can_quantise)
    at_once = _tokens_at_once(shape, recording)
    scratch = recording.buffer(
        attention.scratch_bytes(shape, at_once, recording.limits.max_positions)
    )
    transforms = rotation_sizes(shape, cache.types)
    is_new = transforms[0] > 0 and not qkv[0].is_transformed
    qkv[0].is_transformed |= is_new
    operation = _Attention(
        recording, cache, inputs, qkv, (pending[0], pending[1], pending[2]),
        shape, out, scratch, at_once, sinks, transforms, is_new,
    )  # fmt: skip
    recording.append(operation.calls)
    return out


def _tokens_at_once(shape: AttentionShape, recording: Recording) -> int:
    one = attention.scratch_bytes(shape, 1, recording.limits.max_positions)
    return max(1, min(recording.limits.max_tokens, _SCRATCH_BYTES // one))


class _Attention(Struct, frozen=True):
    recording: Recording
    cache: GpuKvCache
    inputs: StepInputs
    qkv: tuple[RecordedTensor, RecordedTensor | None, RecordedTensor | None]
    pending: tuple[PendingHeads | None, PendingHeads | None, PendingHeads | None]
    shape: AttentionShape
    out: RecordedTensor
    scratch: Buffer
    at_once: int
    sinks: FloatArray | None
    transforms: tuple[int, int]  # the sizes of the Hadamard transforms of keys and of values
    transforms_queries: bool  # False if an earlier layer has already transformed these queries

    def calls(self, step: StepShape) -> Iterator[Call]:
        s, layer = self.shape, self.cache.layers[self.shape.layer]
        q, k, v = self.qkv
        groups = []
        if self.pending[0] is not None or self.transforms_queries:
            group = head_group(self.recording, q, self.pending[0], s.num_heads)
            groups.append(
                replace(group, hadamard=self.transforms[0] if self.transforms_queries else 0)
            )
        stored = (k, self.pending[1], layer.keys), (v, self.pending[2], layer.values)
        kinds = self.cache.types.keys, self.cache.types.values
        for (value, pending, pages), size, kind in zip(stored, self.transforms, kinds, strict=True):
            if value is not None and pages is not None:
                group = head_group(self.recording, value, pending, s.num_kv_heads)
                groups.append(replace(group, pages=pages, hadamard=size, kv_type=kind))
        if groups:
            yield heads.heads(groups, tokens=step.tokens, cache_slice=self._cache_slice(step))
        if layer.values is not None and self._is_fused(step):
            yield self._fused(step, layer.keys, layer.values)
            yield from self.recording.quantise_if_read(self.out, step)
            return
        if self._is_tiled(step):
            yield self._tiles(step)
            yield from self.recording.quantise_if_read(self.out, step)
            return
        for first in range(0, step.tokens, self.at_once):
            count = min(self.at_once, step.tokens - first)
            yield from self._attend(first, count, step)

    def _is_fused(self, step: StepShape) -> bool:
        """Returns True if `Device.attend` computes this attention; False for few tokens."""
        s = self.shape
        is_plain = self.sinks is None and not s.soft_cap
        sees_all = not s.window or step.end <= s.window
        fits = step.end * s.num_kv_heads * (s.key_dim + s.value_dim) * 2 <= FUSED_BYTES
        is_known = self.cache.types == F16_TYPES and s.key_dim <= _FUSED_DIM
        is_on = self.recording.features.has("fused-attention")
        if not (is_on and is_plain and sees_all and fits and is_known):
            return False
        is_large = uses_library(self.recording, step.tokens, step)
        return is_large and self.recording.device.attends(self._attend_shape(step))

    def _is_tiled(self, step: StepShape) -> bool:
        """Returns True if tensor cores compute this attention, as they do for prompts."""
        return self._may_be_tiled and is_product(step.tokens, step)

    @property
    def _may_be_tiled(self) -> bool:
        """True unless activations stay floats, for which f16 is not exact enough."""
        s = self.shape
        fits = s.key_dim <= tiles.MAX_KEY_DIM and s.value_dim <= tiles.MAX_VALUE_DIM
        is_enabled = self.recording.planes > 0 and self.recording.features.has("tensor-cores")
        return is_enabled and fits

    def _tiles(self, step: StepShape) -> Call:
        rec, layer = self.recording, self.cache.layers[self.shape.layer]
        return tiles.tiled_attention(
            rec.of(self.qkv[0]), layer, rec.of(self.out), cache_slice=self._cache_slice(step),
            shape=self.shape, tokens=step.tokens, sinks=rec.weights.optional(self.sinks),
            hadamard=self.transforms[1],
        )  # fmt: skip

    def _attend_shape(self, step: StepShape) -> AttendShape:
        s = self.shape
        sizes = (s.num_heads, s.num_kv_heads, s.key_dim, s.value_dim)
        return AttendShape(step.tokens, step.end, *sizes, s.scale, PAGE_POSITIONS)

    def _fused(self, step: StepShape, keys: Span, values: Span) -> Call:
        q, out = self.recording.of(self.qkv[0]), self.recording.of(self.out)
        shape, size = self._attend_shape(step), self.inputs.num_pages * _INT_BYTES
        table = self._tables.part(0, size)
        return Attend(q, keys, values, table, out, shape)

    @property
    def _tables(self) -> Span:
        return self.inputs.tables(of_windows=self.cache.in_frames(self.shape.layer))

    def _cache_slice(self, step: StepShape, first: int = 0) -> KvCacheSlice:
        """Returns the page tables and positions of the step's tokens from index `first` on."""
        inputs, rows = self.inputs, (first * _INT_BYTES, (step.tokens - first) * _INT_BYTES)
        return KvCacheSlice(
            self._tables,
            inputs.positions.part(*rows),
            types_of(self.shape, self.cache.types),
            inputs.sequences.part(*rows) if step.sequences > 1 else None,
            inputs.table_stride,
        )

    def _attend(self, first: int, count: int, step: StepShape) -> tuple[Call, Call]:
        s, rec, out = self.shape, self.recording, self.out
        scratch = rec.at(self.scratch)
        assert scratch is not None
        return attention.attention(
            rec.rows_of(self.qkv[0], first, count), self.cache.layers[s.layer],
            rec.rows_of(out, first, count) if out.is_read else None,
            rec.quantised_rows_of(out, first, count) if out.quantised else None,
            scratch, cache_slice=self._cache_slice(step, first), shape=s, tokens=count,
            sinks=rec.weights.optional(self.sinks), planes=rec.planes,
            max_positions=step.positions, hadamard=self.transforms[1],
            in_tiles=self._may_be_tiled and s.num_heads // s.num_kv_heads >= TILED_HEADS,
        )  # fmt: skip
