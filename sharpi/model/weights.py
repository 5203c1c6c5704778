"""The model's tensors, found by name, checked against the configuration, and grouped by layer.

Quantised matrices stay views into the mapped file; one-dimensional tensors (norms, biases) are
small and are taken as float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.model.config import ModelConfig
from sharpi.ops.interface import Bank, ExpertBanks, FloatArray, Matrix

SUPPORTED_TYPES = frozenset(
    QuantType[name]
    for name in (
        "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
        "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Projections and norms; `q_norm` and `k_norm` are per head or over the whole width."""

    norm: FloatArray
    q: Matrix
    k: Matrix
    v: Matrix
    output: Matrix
    q_norm: FloatArray | None
    k_norm: FloatArray | None
    post_norm: FloatArray | None


@dataclass(frozen=True, slots=True)
class FeedForwardWeights:
    """A dense feed-forward, or routed experts with an optional shared one and its gate."""

    layer: int
    norm: FloatArray
    post_norm: FloatArray | None
    dense: ExpertBanks | None
    router: Matrix | None
    router_bias: FloatArray | None
    experts: ExpertBanks | None
    shared: ExpertBanks | None
    shared_gate: Matrix | None


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer."""

    attention: AttentionWeights
    feed_forward: FeedForwardWeights


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """All tensors of a model; `unused` names those that no part asked for."""

    embedding: Matrix
    layers: tuple[LayerWeights, ...]
    output_norm: FloatArray
    output: Matrix
    rope_divisors: FloatArray | None
    unused: tuple[str, ...]


def load_weights(file: GgufFile, config: ModelConfig) -> ModelWeights:
    """Groups the file's tensors; raises ModelFileError naming a missing or misshapen one."""
    source = _Source(file)
    hidden = config.hidden_size
    embedding = source.matrix("token_embd", (None, hidden))
    tied = "output.weight" not in file.tensors
    return ModelWeights(
        embedding=embedding,
        layers=tuple(_layer(source, config, i) for i in range(config.num_layers)),
        output_norm=source.vector("output_norm.weight", hidden),
        output=embedding if tied else source.matrix("output", (embedding.rows, hidden)),
        rope_divisors=source.optional_vector("rope_freqs.weight", config.rope_dims // 2),
        unused=source.unused(),
    )


def _layer(source: "_Source", config: ModelConfig, index: int) -> LayerWeights:
    return LayerWeights(_attention(source, config, index), _feed_forward(source, config, index))


def _attention(source: "_Source", config: ModelConfig, index: int) -> AttentionWeights:
    shape, prefix, hidden = config.attention[index], f"blk.{index}.", config.hidden_size
    q_width, k_width = shape.num_heads * shape.key_dim, shape.num_kv_heads * shape.key_dim
    return AttentionWeights(
        norm=source.vector(f"{prefix}attn_norm.weight", hidden),
        q=source.matrix(f"{prefix}attn_q", (q_width, hidden)),
        k=source.matrix(f"{prefix}attn_k", (k_width, hidden)),
        v=source.matrix(f"{prefix}attn_v", (shape.num_kv_heads * shape.value_dim, hidden)),
        output=source.matrix(f"{prefix}attn_output", (hidden, shape.num_heads * shape.value_dim)),
        q_norm=source.optional_vector(f"{prefix}attn_q_norm.weight", shape.key_dim, q_width),
        k_norm=source.optional_vector(f"{prefix}attn_k_norm.weight", shape.key_dim, k_width),
        post_norm=source.optional_vector(f"{prefix}post_attention_norm.weight", hidden),
    )


def _feed_forward(source: "_Source", config: ModelConfig, index: int) -> FeedForwardWeights:
    prefix, hidden = f"blk.{index}.", config.hidden_size
    routed = source.has(f"{prefix}ffn_gate_inp.weight")
    return FeedForwardWeights(
        layer=index,
        norm=source.vector(f"{prefix}ffn_norm.weight", hidden),
        post_norm=source.optional_vector(f"{prefix}post_ffw_norm.weight", hidden),
        dense=None if routed else source.banks(f"{prefix}ffn_%s", hidden, 1),
        router=source.matrix(f"{prefix}ffn_gate_inp", (config.num_experts, hidden))
        if routed
        else None,
        router_bias=source.optional_vector(f"{prefix}exp_probs_b.bias", config.num_experts),
        experts=replace(
            source.banks(f"{prefix}ffn_%s_exps", hidden, config.num_experts), layer=index
        )
        if routed
        else None,
        shared=source.optional_banks(f"{prefix}ffn_%s_shexp", hidden),
        shared_gate=source.optional_matrix(f"{prefix}ffn_gate_inp_shexp", (1, hidden)),
    )


class _Source:
    """Takes tensors from the file and remembers which were taken."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._file.tensors

    def unused(self) -> tuple[str, ...]:
        return tuple(name for name in self._file.tensors if name not in self._taken)

    def _tensor(self, name: str) -> Tensor:
        if name not in self._file.tensors:
            raise ModelFileError(f"{self._file.path}: tensor {name} is missing")
        self._taken.add(name)
        tensor = self._file.tensors[name]
        if tensor.quant_type not in SUPPORTED_TYPES:
            known = ", ".join(sorted(t.name for t in SUPPORTED_TYPES))
            raise UnsupportedModelError(
                f"{self._file.path}: tensor {name} is {tensor.quant_type.name}; sharpi runs {known}"
            )
        return tensor

    def _check(self, tensor: Tensor, expected: Sequence[int | None]) -> None:
        fits = len(tensor.shape) == len(expected) and all(
            want is None or have == want for have, want in zip(tensor.shape, expected, strict=True)
        )
        if not fits:
            want = " x ".join("?" if n is None else str(n) for n in expected)
            have = " x ".join(map(str, tensor.shape))
            raise ModelFileError(f"{self._file.path}: tensor {tensor.name} is {have}, not {want}")

    def vector(self, name: str, *sizes: int) -> FloatArray:
        """A one-dimensional tensor of one of these sizes, as float32."""
        tensor = self._tensor(name)
        if len(tensor.shape) != 1 or tensor.shape[0] not in sizes:
            self._check(tensor, sizes[:1])
        if tensor.quant_type is QuantType.F32:
            return np.frombuffer(tensor.data, np.float32)
        if tensor.quant_type is QuantType.F16:
            return np.frombuffer(tensor.data, np.float16).astype(np.float32)
        if tensor.quant_type is QuantType.BF16:
            return (np.frombuffer(tensor.data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        raise UnsupportedModelError(
            f"{self._file.path}: tensor {name} is {tensor.quant_type.name}; vectors must be floats"
        )

    def optional_vector(self, name: str, *sizes: int) -> FloatArray | None:
        return self.vector(name, *sizes) if self.has(name) else None

    def matrix(self, name: str, shape: tuple[int | None, int]) -> Matrix:
        """`<name>.weight` (rows, columns), with `<name>.bias` when there is one."""
        tensor = self._tensor(f"{name}.weight")
        if shape[0] == 1 and len(tensor.shape) == 1:
            self._check(tensor, shape[1:])
        else:
            self._check(tensor, shape)
        rows = tensor.num_values // shape[1]
        bias = self.optional_vector(f"{name}.bias", rows)
        return Matrix(name, tensor.quant_type, rows, shape[1], tensor.data, bias)

    def optional_matrix(self, name: str, shape: tuple[int | None, int]) -> Matrix | None:
        return self.matrix(name, shape) if self.has(f"{name}.weight") else None

    def banks(self, pattern: str, hidden: int, num_experts: int) -> ExpertBanks:
        """gate and up (width, hidden), down (hidden, width); a leading axis for several experts."""
        gate = self._bank(pattern % "gate", num_experts, (None, hidden))
        up = self._bank(pattern % "up", num_experts, (gate.rows, hidden))
        return ExpertBanks(gate, up, self._bank(pattern % "down", num_experts, (hidden, gate.rows)))

    def optional_banks(self, pattern: str, hidden: int) -> ExpertBanks | None:
        return self.banks(pattern, hidden, 1) if self.has(f"{pattern % 'gate'}.weight") else None

    def _bank(self, name: str, num_experts: int, shape: tuple[int | None, int]) -> Bank:
        tensor = self._tensor(f"{name}.weight")
        stacked = len(tensor.shape) == 3 or num_experts > 1
        self._check(tensor, (num_experts, *shape) if stacked else shape)
        rows, columns = tensor.shape[-2:]
        bias = None
        if self.has(f"{name}.bias"):
            values = self._tensor(f"{name}.bias")
            bias = np.frombuffer(values.data, np.float32).reshape(num_experts, rows)
        return Bank(name, tensor.quant_type, num_experts, rows, columns, tensor.data, bias)
