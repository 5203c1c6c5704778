"""Records the operations of recurrent layers for the GPU; each step names the states it uses."""

from sharpi.ops.cuda.gpu_limits import raise_unsupported
from sharpi.ops.cuda.gpu_weights import GpuStates
from sharpi.ops.cuda.launchers import recurrent
from sharpi.ops.cuda.launchers.recurrent import MAX_KEYS, StateSlice
from sharpi.ops.cuda.recorded import RecordedTensor, StepShape
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.replay.step_inputs import StepInputs
from sharpi.ops.interface import FloatArray
from sharpi.ops.recurrent import (
    ConvolutionShape,
    DecayRates,
    DeltaNetShape,
    Mamba2Shape,
    RecurrentShape,
)


class RecurrentOnGpu:
    """Implements the recurrent operations of `Ops[RecordedTensor]`."""

    _recording: Recording
    _inputs: StepInputs
    _states: GpuStates

    def convolve(
        self,
        x: RecordedTensor,
        weight: FloatArray,
        bias: FloatArray | None,
        shape: ConvolutionShape,
        silu: bool,
    ) -> RecordedTensor:
        rec = self._recording
        rec.weights.register(weight, bias)
        rec.read_floats(x)
        out = rec.value(shape.channels)
        rec.append_launch(
            lambda step: recurrent.convolve(
                rec.of(x), rec.weights.span(weight), rec.weights.optional(bias), rec.of(out),
                self._state_slice(shape, step), shape=shape, tokens=step.tokens, silu=silu,
            )
        )  # fmt: skip
        return out

    def delta_net(
        self,
        qkv: RecordedTensor,
        beta: RecordedTensor,
        alpha: RecordedTensor,
        rates: DecayRates,
        shape: DeltaNetShape,
    ) -> RecordedTensor:
        if shape.key_dim > MAX_KEYS:
            raise_unsupported(f"delta nets with keys of {shape.key_dim} values")
        rec = self._recording
        rec.weights.register(rates.a, rates.dt_bias)
        rec.read_floats(qkv, beta, alpha)
        out = rec.value(shape.num_value_heads * shape.value_dim)
        span = rec.weights.span
        rec.append_launch(
            lambda step: recurrent.delta_net(
                rec.of(qkv), rec.of(beta), rec.of(alpha), span(rates.a), span(rates.dt_bias),
                rec.of(out), self._state_slice(shape, step), shape=shape, tokens=step.tokens,
                floor=rates.floor,
            )
        )  # fmt: skip
        return out

    def mamba2(
        self,
        xbc: RecordedTensor,
        dt: RecordedTensor,
        rates: DecayRates,
        skip: FloatArray,
        shape: Mamba2Shape,
    ) -> RecordedTensor:
        if shape.state_size > MAX_KEYS:
            raise_unsupported(f"Mamba-2 states of {shape.state_size} keys")
        rec = self._recording
        rec.weights.register(rates.a, skip, rates.dt_bias)
        rec.read_floats(xbc, dt)
        out = rec.value(shape.num_heads * shape.head_dim)
        span = rec.weights.span
        rec.append_launch(
            lambda step: recurrent.mamba2(
                rec.of(xbc), rec.of(dt), span(rates.a), span(skip), span(rates.dt_bias),
                rec.of(out), self._state_slice(shape, step), shape=shape, tokens=step.tokens,
            )
        )  # fmt: skip
        return out

    def _state_slice(self, shape: RecurrentShape, step: StepShape) -> StateSlice:
        states, inputs = self._states, self._inputs
        return StateSlice(
            states.memory,
            inputs.states,
            inputs.positions,
            states.num_floats,
            states.offsets[shape],
            inputs.starts if step.sequences > 1 else None,
            step.sequences,
            inputs.states_after if step.has_drafts else None,
        )
