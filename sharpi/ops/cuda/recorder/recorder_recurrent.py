"""Records the operations of recurrent layers for the GPU; each step names the states it uses.

Many tokens of one sequence are computed in chunks, if a head's state has few enough keys.
"""

from collections.abc import Iterable

from sharpi.device.launch import Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cuda.gpu_states import GpuStates
from sharpi.ops.cuda.launchers import recurrent, recurrent_chunks
from sharpi.ops.cuda.launchers.recurrent import MAX_KEYS, StateSlice
from sharpi.ops.cuda.launchers.recurrent_chunks import prepared_bytes, supports_chunks
from sharpi.ops.cuda.recorded import Call, RecordedTensor, StepShape
from sharpi.ops.cuda.recorder.f16_matmul import PRODUCT_TOKENS, is_product
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.cuda.replay.step_inputs import StepInputs
from sharpi.ops.cuda.unsupported import raise_unsupported
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
        *,
        silu: bool,
    ) -> RecordedTensor:
        rec = self._recording
        rec.weights.register(weight)
        if bias is not None:
            rec.weights.register(bias)
        rec.read_floats(x)
        out = rec.value(shape.channels)

        def calls(step: StepShape) -> Iterable[Call]:
            yield recurrent.convolve(
                rec.of(x),
                rec.weights.span(weight),
                rec.weights.optional(bias),
                rec.of(out),
                self._state_slice(shape, step),
                shape=shape,
                tokens=step.tokens,
                silu=silu,
            )

        rec.append(calls)
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
        for array in (rates.a, rates.dt_bias):
            rec.weights.register(array)
        rec.read_floats(qkv, beta, alpha)
        out = rec.value(shape.num_value_heads * shape.value_dim)
        prepared = self._chunks(shape)

        def calls(step: StepShape) -> Iterable[Call]:
            inputs = rec.of(qkv), rec.of(beta), rec.of(alpha)
            rates_of_heads = rec.weights.span(rates.a), rec.weights.span(rates.dt_bias)
            rows, state_slice = self._rows(prepared, step), self._state_slice(shape, step)
            given = (*inputs, *rates_of_heads, rec.of(out))
            if rows is None:
                yield recurrent.delta_net(*given, state_slice, shape=shape, tokens=step.tokens)
                return
            yield from recurrent_chunks.delta_net(
                *given, rows, state_slice, shape=shape, tokens=step.tokens
            )

        rec.append(calls)
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
        for array in (rates.a, skip, rates.dt_bias):
            rec.weights.register(array)
        rec.read_floats(xbc, dt)
        out = rec.value(shape.num_heads * shape.head_dim)

        prepared = self._chunks(shape)

        def calls(step: StepShape) -> Iterable[Call]:
            span = rec.weights.span
            rates_of_heads = span(rates.a), span(skip), span(rates.dt_bias)
            rows, state_slice = self._rows(prepared, step), self._state_slice(shape, step)
            given = (rec.of(xbc), rec.of(dt), *rates_of_heads, rec.of(out))
            if rows is None:
                yield recurrent.mamba2(*given, state_slice, shape=shape, tokens=step.tokens)
                return
            yield from recurrent_chunks.mamba2(
                *given, rows, state_slice, shape=shape, tokens=step.tokens
            )

        rec.append(calls)
        return out

    def _chunks(self, shape: DeltaNetShape | Mamba2Shape) -> Buffer | None:
        """Returns the scratch buffer of the chunk kernels; None if no step computes in chunks."""
        rec = self._recording
        is_off = "recurrent-chunks" in rec.disabled or not supports_chunks(shape)
        tokens = rec.capacity(Rows.TOKENS)
        if is_off or tokens < PRODUCT_TOKENS:
            return None
        return rec.buffer(prepared_bytes(shape, tokens))

    def _rows(self, prepared: Buffer | None, step: StepShape) -> Span | None:
        """Returns `prepared` if this step computes in chunks, and otherwise None.

        Few tokens are computed one by one, because their results must have the same bits as in
        steps of one token. So is a check of drafts, which needs the state after each token.
        """
        is_chunked = is_product(step.tokens, step) and not step.has_drafts
        return self._recording.at(prepared) if is_chunked else None

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
