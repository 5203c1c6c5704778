"""StepInputs: the inputs of a step, which are written before each replay and read by kernels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.cuda.kv_cache import WindowFrames
from sharpi.ops.cuda.replay.step_outputs import GpuValues, StepValues

_INT_BYTES, _FLOAT_BYTES = 4, 4
_NO_STATE = -1


class StepSizes(NamedTuple):
    """The limits of a step."""

    tokens: int
    outputs: int
    sequences: int
    num_pages: int  # pages of one sequence
    hidden_size: int


class SequenceInputs(NamedTuple):
    """The inputs of one sequence in a step."""

    ids: IntArray
    position: int  # position of the first of these tokens
    outputs: IntArray  # indices of the tokens whose logits are requested
    pages: IntArray  # the page table, which covers these tokens
    state: int = 0  # the index of the sequence's recurrent state
    states_after: tuple[int, ...] = ()  # the state after each token; empty without drafts

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.position + len(self.ids)


class StepInputs:
    """The inputs of a step on the GPU; all except `incoming` are int32 and uploaded in one copy.

    `ids`, `positions` and `sequences` are (tokens,); `sequences` has the index of each token's
    sequence. `output_rows` (outputs,) has the tokens whose logits are requested. `starts`
    (sequences + 1,) has the index of each sequence's first token, and then the number of tokens.
    `states` (sequences,) has the index of each sequence's recurrent state. `states_after` (tokens,)
    has the index of the state to store after each token of a check; -1 for sequences without
    drafts. `page_tables` is (sequences, num_pages). With `frames`, each of its rows is followed by
    a row of `window_tables`: the frames of the pages in sliding-window layers. `table_stride` is
    the distance between the rows of two sequences. `of_tokens` is the memory of ids, positions and
    output rows together. `incoming` (tokens, hidden) holds float32 values that another processor
    computed.
    """

    def __init__(
        self, device: Device, sizes: StepSizes, frames: WindowFrames | None = None
    ) -> None:
        self._device, self.frames = device, frames
        self.num_pages = sizes.num_pages
        self.table_stride = sizes.num_pages * (1 if frames is None else 2)
        tokens, sequences = sizes.tokens, sizes.sequences
        tables = sequences * self.table_stride
        counts = (tokens, tokens, sizes.outputs, tokens, sequences + 1, sequences, tokens, tables)
        ends = np.cumsum(counts)
        self.counts_of_tokens = counts[:3]
        self._host: IntArray = np.zeros(int(ends[-1]), np.int32)
        self._views = np.split(self._host, ends[:-1])
        memory = device.allocate(self._host.nbytes)
        self._all = Span(memory, 0, self._host.nbytes)
        self._num_words = int(ends[-2])  # words before the page tables
        spans = [
            self._all.part(int(end - count) * _INT_BYTES, count * _INT_BYTES)
            for end, count in zip(ends, counts, strict=True)
        ]
        self.ids, self.positions, self.output_rows, self.sequences = spans[:4]
        self.starts, self.states, self.states_after, self.page_tables = spans[4:]
        offset = 0 if frames is None else sizes.num_pages * _INT_BYTES
        self.window_tables = self.page_tables.part(offset, self.page_tables.num_bytes - offset)
        self.of_tokens = self._all.part(0, sum(counts[:3]) * _INT_BYTES)
        size = tokens * sizes.hidden_size * _FLOAT_BYTES
        self.incoming = Span(device.allocate(size), 0, size)

    @property
    def first(self) -> tuple[Span, Span]:
        """The id and the position of the first token."""
        return self.ids.part(0, _INT_BYTES), self.positions.part(0, _INT_BYTES)

    def tables(self, *, of_windows: bool) -> Span:
        """Returns all page tables; `of_windows`: those of windows, which list frames."""
        return self.window_tables if of_windows else self.page_tables

    def write(self, sequences: Sequence[SequenceInputs]) -> None:
        """Writes the inputs of the next step; the tokens of a sequence are adjacent in it."""
        starts = self._views[4]
        starts[0] = token = output = 0
        for row, each in enumerate(sequences):
            self._write(row, each, token, output)
            token, output = token + len(each.ids), output + len(each.outputs)
            starts[row + 1] = token
        num_words = self._num_words + len(sequences) * self.table_stride
        self._device.upload(self._all.part(0, num_words * _INT_BYTES), self._host[:num_words])

    def _write(self, row: int, each: SequenceInputs, token: int, output: int) -> None:
        """Writes the inputs of sequence `row`, whose first token and output have these indices."""
        ids, positions, rows, sequences, _, states, after, tables = self._views
        end = token + len(each.ids)
        ids[token:end] = each.ids
        positions[token:end] = range(each.position, each.end)
        sequences[token:end] = row
        rows[output : output + len(each.outputs)] = each.outputs + np.int32(token)
        states[row] = each.state
        after[token:end] = each.states_after or _NO_STATE
        first = row * self.table_stride
        tables[first : first + len(each.pages)] = each.pages
        if self.frames is not None:
            frames = tables[first + self.num_pages : first + self.table_stride]
            self.frames.write(frames, each.position, each.end, each.pages)

    def write_incoming(self, values: StepValues) -> None:
        """Writes the values (tokens, hidden) that another processor computed."""
        if isinstance(values, GpuValues):
            values.send(self._device, self.incoming)
            return
        self._device.upload(self.incoming.part(0, values.nbytes), values)
