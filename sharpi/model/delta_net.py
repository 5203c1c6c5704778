"""Gated delta net (Qwen3-Next, Qwen3.5): linear attention with a state that is corrected."""

from dataclasses import dataclass

from sharpi.model.convolution import MAX_KERNEL, Convolution, load_convolution
from sharpi.model.keys import Keys
from sharpi.model.norm import Norm, load_norm
from sharpi.model.rope import Angles
from sharpi.model.spec import ArchitectureSpec
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, Matrix, Ops, X
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, RecurrentShape

MAX_HEAD_DIM = 1024


@dataclass(frozen=True, slots=True)
class DeltaNetSettings:
    """One layer's heads and the convolution of queries, keys and values before them."""

    shape: DeltaNetShape
    convolution: ConvolutionShape
    hidden_size: int
    norm_epsilon: float
    kv_shape: None = None
    rope: None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """What the convolution and the heads carry."""
        return (self.convolution, self.shape)

    def load(self, tensors: TensorSource) -> "DeltaNet":
        """The projections and rates; beta and alpha are one matrix, or one each."""
        shape, hidden = self.shape, self.hidden_size
        heads, values = shape.num_value_heads, shape.num_value_heads * shape.value_dim
        if tensors.has("ssm_ba.weight"):
            gates = [tensors.matrix("ssm_ba", (2 * heads, hidden))]
        else:
            gates = [tensors.matrix(name, (heads, hidden)) for name in ("ssm_beta", "ssm_alpha")]
        return DeltaNet(
            settings=self,
            qkv=tensors.matrix("attn_qkv", (shape.width, hidden)),
            output_gate=tensors.matrix("attn_gate", (values, hidden)),
            gates=tuple(gates),
            convolution=load_convolution(tensors, "ssm_conv1d", self.convolution),
            rates=DecayRates(tensors.vector("ssm_a", heads), tensors.vector("ssm_dt.bias", heads)),
            norm=load_norm(tensors, "ssm_norm", self.norm_epsilon, shape.value_dim),
            output=tensors.matrix("ssm_out", (hidden, values)),
        )


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """The weights; `gates` are beta and alpha, or both in one with the heads of a key together."""

    settings: DeltaNetSettings
    qkv: Matrix
    output_gate: Matrix
    gates: tuple[Matrix, ...]
    convolution: Convolution
    rates: DecayRates
    norm: Norm
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """From h (hidden,): (num_value_heads * value_dim,)."""
        shape = self.settings.shape
        qkv, gate, *gates = ops.linear(h, [self.qkv, self.output_gate, *self.gates])
        if len(gates) == 1:
            shared = shape.num_value_heads // shape.num_key_heads
            gates = ops.split(gates[0], (shared, shared), groups=shape.num_key_heads)
        beta, alpha = gates
        qkv = self.convolution.apply(ops, qkv, silu=True)
        mixed = ops.delta_net(qkv, beta, alpha, self.rates, shape)
        normed = self.norm.apply(ops, mixed, shape.num_value_heads * shape.value_dim)
        return ops.gated(gate, normed, Activation.SILU)


def read_delta_net(
    keys: Keys, spec: ArchitectureSpec, norm_epsilon: float, layer: int
) -> DeltaNetSettings:
    """One layer's settings; raises ModelFileError naming the key at fault."""
    key_heads, heads = (
        keys.count(key, maximum=1 << 12) for key in ("ssm.group_count", "ssm.time_step_rank")
    )
    inner = keys.count("ssm.inner_size", maximum=1 << 20)
    for key, size in (("ssm.group_count", heads % key_heads), ("ssm.inner_size", inner % heads)):
        if size:
            raise keys.fault(
                f"{keys.name(key)} does not fit {keys.name('ssm.time_step_rank')}, {heads}"
            )
    key_dim = keys.count("ssm.state_size", maximum=MAX_HEAD_DIM)
    shape = DeltaNetShape(layer, key_heads, heads, key_dim, inner // heads, spec.delta_net_heads)
    kernel = keys.count("ssm.conv_kernel", maximum=MAX_KERNEL)
    convolution = ConvolutionShape(layer, shape.width, kernel)
    return DeltaNetSettings(shape, convolution, keys.hidden_size, norm_epsilon)
