"""Records the operations of recurrent layers; a step's inputs hold the addresses of states."""

from collections.abc import Sequence
from ctypes import c_int32, c_void_p

from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import ConvolutionParams, DeltaNetParams, Mamba2Params, OpKind
from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cpu.recorder_tape import Tape
from sharpi.ops.interface import Activation, FloatArray
from sharpi.ops.recurrent import ConvolutionShape, DecayRates, DeltaNetShape, Mamba2Shape
from sharpi.ops.state_layout import StateLayout


class RecurrentRecorder(Tape):
    """Implements the recurrent operations of `Ops[Buffer]`, including `split` and `gated`."""

    _states: StateLayout

    def split(self, x: Buffer, widths: Sequence[int], groups: int = 1) -> list[Buffer]:
        outs = [self._buffer(groups * width, x.rows) for width in widths]
        self._add(
            OpKind.SPLIT,
            [x, *outs],
            lambda: abi.SplitParams(
                x=self._at(x), groups=groups, num_parts=len(outs), rows=x.rows,
                widths=(c_int32 * abi.MAX_PARTS)(*widths),
                outs=(c_void_p * abi.MAX_PARTS)(*(self._at(out) for out in outs)),
            ),
        )  # fmt: skip
        return outs

    def gated(self, gate: Buffer, x: Buffer, activation: Activation) -> Buffer:
        out = self._buffer(x.width, x.rows)
        return self._add(
            OpKind.GATED,
            [out, gate, x],
            lambda: abi.GatedParams(
                gate=self._at(gate),
                x=self._at(x),
                out=self._at(out),
                width=x.width,
                activation=activation,
                rows=x.rows,
            ),
        )

    def convolve(
        self,
        x: Buffer,
        weight: FloatArray,
        bias: FloatArray | None,
        shape: ConvolutionShape,
        *,
        silu: bool,
    ) -> Buffer:
        out = self._buffer(shape.channels)
        return self._add(
            OpKind.CONVOLUTION,
            [out, x],
            lambda: ConvolutionParams(
                x=self._at(x), weight=self._data(weight), bias=self._data(bias), out=self._at(out),
                state_offset=self._states.offsets[shape], channels=shape.channels,
                kernel=shape.kernel, silu=silu,
            ),
        )  # fmt: skip

    def delta_net(
        self, qkv: Buffer, beta: Buffer, alpha: Buffer, rates: DecayRates, shape: DeltaNetShape
    ) -> Buffer:
        out = self._buffer(shape.num_value_heads * shape.value_dim)
        return self._add(
            OpKind.DELTA_NET,
            [out, qkv, beta, alpha],
            lambda: DeltaNetParams(
                qkv=self._at(qkv), beta=self._at(beta), alpha=self._at(alpha),
                a=self._data(rates.a), dt_bias=self._data(rates.dt_bias), out=self._at(out),
                state_offset=self._states.offsets[shape], key_heads=shape.num_key_heads,
                value_heads=shape.num_value_heads, key_dim=shape.key_dim, value_dim=shape.value_dim,
                tiled=shape.head_order == "tiled", epsilon=shape.epsilon,
            ),
        )  # fmt: skip

    def mamba2(
        self, xbc: Buffer, dt: Buffer, rates: DecayRates, skip: FloatArray, shape: Mamba2Shape
    ) -> Buffer:
        out = self._buffer(shape.num_heads * shape.head_dim)
        return self._add(
            OpKind.MAMBA2,
            [out, xbc, dt],
            lambda: Mamba2Params(
                xbc=self._at(xbc), dt=self._at(dt), a=self._data(rates.a), d=self._data(skip),
                dt_bias=self._data(rates.dt_bias), out=self._at(out),
                state_offset=self._states.offsets[shape], heads=shape.num_heads,
                groups=shape.num_groups, head_dim=shape.head_dim, state_size=shape.state_size,
            ),
        )  # fmt: skip
