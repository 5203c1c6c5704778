"""Kimi Delta Attention: a gated delta net in which each key decays by itself.

Source: Kimi Linear (arXiv 2510.26692). Projections of decay and output gate are matrices of low
rank in some models, whole ones in others.
"""

import numpy as np
from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.recurrent import MAX_KEY_DIM, Convolution, read_convolution
from sharpi.model.mixers.rope import Angles
from sharpi.model.norm import Norm, load_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, Matrix, Ops, X
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, RecurrentShape


class KimiDeltaSettings(Struct, frozen=True):
    """The sizes of one layer's heads, and of the convolution of queries, keys and values."""

    shape: DeltaNetShape
    convolution: ConvolutionShape
    hidden_size: int
    norm_epsilon: float
    floor: float  # see DecayRates
    kv_shape: None = None
    rope: None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        return (self.convolution, self.shape)

    def load(self, tensors: TensorSource) -> "KimiDelta":
        """Loads the weights; raises ModelFileError for a missing or misshapen tensor."""
        heads, dim, hidden = self.shape.num_value_heads, self.shape.key_dim, self.hidden_size
        inner = heads * dim
        inputs = {"attn_q": inner, "attn_k": inner, "attn_v": inner}
        if tensors.has("attn_qkv.weight"):
            inputs = {"attn_qkv": 3 * inner}
        return KimiDelta(
            settings=self,
            inputs=tuple(tensors.matrix(name, (rows, hidden)) for name, rows in inputs.items()),
            beta=tensors.matrix("ssm_beta", (heads, hidden)),
            decay=_load_chain(tensors, "ssm_f", inner, hidden),
            gate=_load_chain(tensors, "ssm_g", inner, hidden),
            convolution=Convolution(
                self.convolution, _load_kernels(tensors, self.convolution), None
            ),
            rates=DecayRates(
                -np.abs(tensors.array("ssm_a", (heads,))),
                tensors.vector("ssm_dt.bias", inner),
                self.floor,
            ),
            norm=load_norm(tensors, "ssm_norm", self.norm_epsilon, dim),
            output=tensors.matrix("attn_output", (hidden, inner)),
        )


def _load_kernels(tensors: TensorSource, shape: ConvolutionShape) -> np.ndarray:
    """Loads the kernels of queries, keys and values, (kernel, channels) together."""
    sizes = (shape.channels // 3, shape.kernel)
    parts = [tensors.array(f"ssm_conv1d_{each}.weight", sizes) for each in "qkv"]
    return np.ascontiguousarray(np.concatenate(parts).T)


def _load_chain(tensors: TensorSource, name: str, rows: int, hidden: int) -> tuple[Matrix, ...]:
    """Loads one matrix (rows, hidden), or two whose product is such a matrix."""
    if not tensors.has(f"{name}_b.weight"):
        return (tensors.matrix(f"{name}_a", (rows, hidden)),)
    narrow = tensors.matrix(f"{name}_a", (None, hidden))
    return narrow, tensors.matrix(f"{name}_b", (rows, narrow.rows))


class KimiDelta(Struct, frozen=True):
    """The weights of one layer."""

    settings: KimiDeltaSettings
    inputs: tuple[Matrix, ...]  # of queries, keys and values, together or each
    beta: Matrix
    decay: tuple[Matrix, ...]  # one matrix, or two applied one after the other
    gate: tuple[Matrix, ...]  # the same, for the output
    convolution: Convolution
    rates: DecayRates
    norm: Norm
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns the result before `output`, (num_heads * head_dim,), for h (hidden,)."""
        joined, *others = ops.linear(h, self.inputs)
        for part in others:
            joined = ops.join(joined, part)
        beta, decay, gate = ops.linear(h, [self.beta, self.decay[0], self.gate[0]])
        for matrix in self.decay[1:]:
            (decay,) = ops.linear(decay, [matrix])
        for matrix in self.gate[1:]:
            (gate,) = ops.linear(gate, [matrix])
        joined = self.convolution.apply(ops, joined, silu=True)
        shape = self.settings.shape
        mixed = ops.delta_net(joined, beta, decay, self.rates, shape)
        normed = self.norm.apply(ops, mixed, shape.num_value_heads * shape.value_dim)
        return ops.gated(gate, normed, Activation.SIGMOID)


def read_kimi_delta(
    reader: HyperparameterReader, norm_epsilon: float, layer: int
) -> KimiDeltaSettings:
    """Reads one layer's settings; raises ModelFileError, which names the key at fault."""
    heads = reader.per_layer("attention.head_count")[layer]
    dim = reader.count("kda.head_dim", maximum=MAX_KEY_DIM)
    floor = reader.number("kda.gate_lower_bound", 0.0)
    if floor > 0:
        raise reader.fault(f"{reader.name('kda.gate_lower_bound')} is {floor}, more than 0")
    shape = DeltaNetShape(layer, heads, heads, dim, dim, decays_by_key=True)
    convolution = read_convolution(reader, layer, shape.width)
    return KimiDeltaSettings(shape, convolution, reader.hidden_size, norm_epsilon, floor)
