"""PromptProgram: runs a prompt's batches layer by layer if the GPU does not hold all experts.

All batches compute a slotted layer before any of them computes the next layer, so that an expert
crosses the bus once per prompt. If the missing experts of a layer do not fit in one buffer, they
are copied in chunks. All batches compute with a chunk before the next one is used, and add its
results to the tokens' sums. The intermediate values of batches are kept in a stash. The batches
update KV cache and recurrent states in order, so results are bit-identical to those of batches that
run one after the other.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.recorded import Calls, MissMode, StepShape
from sharpi.ops.cuda.recording import Stage
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.ops.cuda.replay.step_inputs import SequenceInputs, StepInputs


class PromptInputs:
    """The ids, positions, output rows, and frames of windows, of up to `max_batches` batches."""

    def __init__(self, device: Device, inputs: StepInputs, max_batches: int) -> None:
        self._device, self._inputs = device, inputs
        self._counts = inputs.counts_of_tokens
        self._num_pages = 0 if inputs.frames is None else inputs.num_pages
        row = sum(self._counts) + self._num_pages
        self._host: IntArray = np.zeros((max_batches, row), np.int32)
        self._all = Span(device.allocate(self._host.nbytes), 0, self._host.nbytes)

    def write(self, batches: Sequence[SequenceInputs]) -> None:
        """Copies ids, positions, output rows and frames of all batches to the GPU at once."""
        tokens, frames = self._counts[0], self._inputs.frames
        for row, each in zip(self._host, batches, strict=False):
            row[: len(each.ids)] = each.ids
            row[tokens : tokens + len(each.ids)] = range(each.position, each.end)
            row[2 * tokens : 2 * tokens + len(each.outputs)] = each.outputs
            if frames is not None:
                frames.write(row[sum(self._counts) :], each.position, each.end, each.pages)
        used = self._host[: len(batches)]
        self._device.upload(self._all.part(0, used.nbytes), used)

    def select(self, index: int) -> None:
        """Copies the inputs of batch `index` to the memory of `StepInputs`, for the next step."""
        at = index * self._host.shape[1] * self._host.itemsize
        target = self._inputs.of_tokens
        self._device.copy(target, self._all.part(at, target.num_bytes))
        if self._num_pages:
            size = self._num_pages * self._host.itemsize
            table = self._inputs.window_tables.part(0, size)
            self._device.copy(table, self._all.part(at + target.num_bytes, size))


class StashSizes(Struct, frozen=True):
    """The sizes of a stash: its page size and numbers of pages."""

    max_tokens: int  # the most tokens of a prompt
    page_tokens: int
    gpu_pages: int
    host_pages: int = 0  # pages in page-locked memory

    def holds(self, tokens: int) -> bool:
        """Returns True if there are pages for `tokens` tokens."""
        pages = -(-tokens // self.page_tokens)
        return tokens <= self.max_tokens and pages <= self.gpu_pages + self.host_pages

    def spilled_pages(self, tokens: int) -> int:
        """Returns the number of pages in RAM that `tokens` tokens use."""
        return max(0, -(-tokens // self.page_tokens) - self.gpu_pages)


class PromptStash:
    """The memory of a stash, divided into arrays with one row per token.

    Array i stores one intermediate value, in rows of `array_bytes[i]` bytes.
    """

    def __init__(self, device: Device, array_bytes: Sequence[int], sizes: StashSizes) -> None:
        self._array_bytes = tuple(array_bytes)
        self._gpu_tokens = sizes.gpu_pages * sizes.page_tokens
        self._host_tokens = sizes.host_pages * sizes.page_tokens
        size = sum(array_bytes) * self._gpu_tokens
        self._gpu = Span(device.allocate(size), 0, size)
        self._host = self._gpu.part(0, 0)
        if sizes.host_pages:
            size = sum(array_bytes) * self._host_tokens
            self._host = Span(device.mapped(size)[0], 0, size)

    def row_pairs(
        self, array: int, first: int, rows: Span, row_bytes: int
    ) -> Iterator[tuple[Span, Span]]:
        """Yields pairs of spans, between which rows are copied: part of `rows`, part of the array.

        `rows` belong to the tokens from `first` on. There are two pairs if some of these tokens are
        in GPU pages and others in host pages.
        """
        count = rows.num_bytes // row_bytes
        on_gpu = min(count, max(0, self._gpu_tokens - first))
        parts = (
            (self._gpu, self._gpu_tokens, first, 0, on_gpu),
            (self._host, self._host_tokens, first + on_gpu - self._gpu_tokens, on_gpu, count),
        )
        for pool, tokens, token, begin, end in parts:
            if begin < end:
                size = (end - begin) * row_bytes
                at = sum(self._array_bytes[:array]) * tokens + token * self._array_bytes[array]
                yield rows.part(begin * row_bytes, size), pool.part(at, size)


# Pairs of an array of the stash and the buffer whose rows are in it.
StashedBuffers = tuple[tuple[int, Buffer], ...]


class _Pass(Struct, frozen=True):
    """Operations that every batch of a prompt runs before any batch runs the next pass."""

    operations: Sequence[Calls]
    live_in: StashedBuffers  # buffers that are copied from the stash before the operations
    live_out: StashedBuffers  # buffers that are copied to the stash after the operations
    chunk: int | None = None  # the chunk of experts to compute, None for all
    is_last: bool = True  # the last chunk of a layer


class _Batch(NamedTuple):
    """One batch of a prompt."""

    first: int  # the index of its first token in the prompt
    step: StepShape
    inputs: SequenceInputs


class PromptProgram:
    """Runs a `GpuProgram` layer by layer on prompts of up to `sizes.max_tokens` tokens.

    `slotted` are the layers whose experts pass through buffers.
    """

    def __init__(self, program: GpuProgram, slotted: SlottedLayers, sizes: StashSizes) -> None:
        self._program, self._slotted, self.sizes = program, slotted, sizes
        self._device = program.recording.device
        self._stages = program.recording.stages
        self._batch = program.recording.limits.max_tokens
        self._stash = PromptStash(self._device, array_bytes(self._stages), sizes)
        batches = -(-sizes.max_tokens // self._batch)
        self._inputs = PromptInputs(self._device, program.inputs, batches)
        program.outputs.allocate_prompt_routes(sizes.max_tokens)
        self._num_tokens = 0
        self._results: list[npt.NDArray[np.float32]] = []  # of each batch
        self._hidden: list[npt.NDArray[np.float32]] = []  # of each batch, if they are kept

    def run(
        self,
        prompt: SequenceInputs,
        incoming: npt.NDArray[np.float32] | None = None,
        *,
        misses: MissMode = "bus",
    ) -> npt.NDArray[np.float32]:
        """Runs a prompt and returns the requested logits, as `GpuProgram.run` does.

        All requested outputs must be in the last batch. A program without the output layer returns
        the hidden states of all tokens, (tokens, hidden).
        """
        batches = self._batches(prompt, misses)
        last = batches[-1].first
        assert all(row >= last for row in prompt.outputs), "outputs of an earlier batch"
        self._num_tokens = len(prompt.ids)
        self._program.inputs.write([batches[0].inputs])
        self._inputs.write([batch.inputs for batch in batches])
        routed, run = self._program.recording.routed, partial(self._run, batches, incoming)
        if routed is None:
            run(False)
        else:
            routed.rerun_if_over(run, prompt.state)
        if not self._program.has_output:
            return np.concatenate(self._results)
        return self._program.read_logits(len(prompt.outputs))

    def _run(
        self,
        batches: Sequence[_Batch],
        incoming: npt.NDArray[np.float32] | None,
        is_exact: bool,
    ) -> None:
        batches = [each._replace(step=each.step._replace(is_exact=is_exact)) for each in batches]
        self._slotted.begin(batches[-1].step._replace(tokens=self._num_tokens))
        self._results, self._hidden = [], []
        passes = self._passes()
        for each in passes:
            for index, batch in enumerate(batches):
                if incoming is not None and each is passes[0]:
                    end = batch.first + batch.step.tokens
                    self._program.inputs.write_incoming(incoming[batch.first : end])
                self._run_batch(each, index, batch)
                if each is passes[-1]:
                    self._read(batch.step.tokens)

    def _read(self, tokens: int) -> None:
        if not self._program.has_output:
            self._results.append(self._program.read_logits(tokens))
        if self._program.keeps_hidden:
            self._hidden.append(self._program.read_hidden(tokens))

    def _batches(self, prompt: SequenceInputs, misses: MissMode) -> list[_Batch]:
        ids, outputs = prompt.ids, prompt.outputs
        starts = range(0, len(ids), self._batch)
        num_batches = sum(len(ids) - first > 1 for first in starts)
        batches = []
        for index, first in enumerate(starts):
            rows = outputs[outputs >= first] - first if first == starts[-1] else outputs[:0]
            some, position = ids[first : first + self._batch], prompt.position + first
            step = self._program.step(len(some), len(rows), position)._replace(
                misses=misses, batch_index=index, num_batches=num_batches, first=first
            )
            inputs = prompt._replace(ids=some, position=position, outputs=rows)
            batches.append(_Batch(first, step, inputs))
        return batches

    def _passes(self) -> list[_Pass]:
        """Returns the current prompt's passes: one for each chunk of a layer's experts."""
        passes: list[_Pass] = []
        for stage in self._stages:
            live_in, live_out = tuple(enumerate(stage.live_in)), tuple(enumerate(stage.live_out))
            if stage.layer is None:
                passes.append(_Pass(stage.operations, live_in, live_out))
                continue
            num_chunks = self._slotted.prefill_access.num_chunks(stage.layer)
            if num_chunks == 1:
                before = passes.pop()
                operations = [*before.operations, *stage.operations]
                passes.append(_Pass(operations, before.live_in, live_out))
            else:
                passes += _passes_of_chunks(stage, num_chunks)
        return passes

    def _run_batch(self, each: _Pass, index: int, batch: _Batch) -> None:
        if batch.step.tokens == 1 and not each.is_last:
            return
        chunk = None if batch.step.tokens == 1 else each.chunk
        self._inputs.select(index)
        for rows, stashed in self._row_pairs(each.live_in, batch):
            self._device.copy(rows, stashed)
        self._program.step_replay.start(each.operations, batch.step._replace(chunk=chunk))
        for rows, stashed in self._row_pairs(each.live_out, batch):
            self._device.copy(stashed, rows)

    def _row_pairs(self, buffers: StashedBuffers, batch: _Batch) -> Iterator[tuple[Span, Span]]:
        """Yields pairs of spans: rows of a batch in a buffer, and the same rows in the stash."""
        for array, buffer in buffers:
            span = self._program.recording.at(buffer)
            assert span is not None
            rows = span.part(0, batch.step.rows(buffer.rows) * buffer.row_bytes)
            yield from self._stash.row_pairs(array, batch.first, rows, buffer.row_bytes)

    @property
    def hidden(self) -> npt.NDArray[np.float32]:
        """The last prompt's hidden states of all tokens, (tokens, hidden), if they are kept."""
        return np.concatenate(self._hidden)

    @property
    def routes(self) -> list[IntArray]:
        """The last prompt's expert ids, (rows, used) for each MoE layer."""
        return self._program.outputs.read_prompt_routes(self._num_tokens)

    @property
    def router_logits(self) -> list[npt.NDArray[np.float32]]:
        """An empty list: prompts whose router logits are kept are not run layer by layer."""
        return []


def _passes_of_chunks(stage: Stage, num_chunks: int) -> Iterator[_Pass]:
    live_in, last = tuple(enumerate(stage.live_in)), num_chunks - 1
    sums = tuple(enumerate(stage.sums, len(live_in)))
    for chunk in range(num_chunks):
        live_out = tuple(enumerate(stage.live_out)) if chunk == last else sums
        chunk_live_in = (*live_in, *sums) if chunk else live_in
        yield _Pass(stage.operations, chunk_live_in, live_out, chunk, chunk == last)


def array_bytes(stages: Sequence[Stage]) -> list[int]:
    """Returns the bytes that one token needs in each array of the stash: the largest row of it."""
    sizes: list[int] = []
    for stage in stages:
        for array, buffer in enumerate([*stage.live_in, *stage.sums]):
            sizes += [0] * (array + 1 - len(sizes))
            assert buffer.row_bytes or buffer.rows is Rows.OUTPUTS, "no rows to keep"
            sizes[array] = max(sizes[array], buffer.row_bytes)
    return sizes
