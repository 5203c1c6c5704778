"""The short convolution of LFM2: a gated input, a convolution over few tokens, a gated output."""

from msgspec import Struct

from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.mixers.convolution import MAX_KERNEL, Convolution, load_convolution
from sharpi.model.mixers.rope import Angles
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, Matrix, Ops, X
from sharpi.ops.recurrent import ConvolutionShape, RecurrentShape


class ShortConvolutionSettings(Struct, frozen=True):
    """The shape of one layer's convolution; it has one channel per value of the hidden state."""

    shape: ConvolutionShape
    kv_shape: None = None
    rope: None = None

    @property
    def state_shapes(self) -> tuple[RecurrentShape, ...]:
        """The shape of the convolution's state, which holds the last gated inputs."""
        return (self.shape,)

    def load(self, tensors: TensorSource) -> "ShortConvolution":
        """Loads the input projection, the convolution and the output projection."""
        hidden = self.shape.channels
        gate, out_gate, x = tensors.rows("shortconv.in_proj", (hidden, hidden, hidden), hidden)
        return ShortConvolution(
            gate=gate,
            out_gate=out_gate,
            x=x,
            convolution=load_convolution(tensors, "shortconv.conv", self.shape),
            output=tensors.matrix("shortconv.out_proj", (hidden, hidden)),
        )


class ShortConvolution(Struct, frozen=True):
    """Computes out_gate(h) * convolution(gate(h) * x(h)); the gates have no activation function."""

    gate: Matrix
    out_gate: Matrix
    x: Matrix
    convolution: Convolution
    output: Matrix

    def mix(self, ops: Ops[X], h: X, angles: Angles[X]) -> X:
        """Returns the result before `output`, (hidden,), for h (hidden,)."""
        gate, out_gate, x = ops.linear(h, [self.gate, self.out_gate, self.x])
        mixed = self.convolution.apply(ops, ops.gated(gate, x, Activation.IDENTITY), silu=False)
        return ops.gated(out_gate, mixed, Activation.IDENTITY)


def read_short_convolution(reader: HyperparameterReader, layer: int) -> ShortConvolutionSettings:
    """Reads one layer's settings; raises ModelFileError, which names the key at fault."""
    kernel = reader.count("shortconv.l_cache", maximum=MAX_KERNEL)
    return ShortConvolutionSettings(ConvolutionShape(layer, reader.hidden_size, kernel))
