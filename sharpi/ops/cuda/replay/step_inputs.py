"""What changes from one step to the next: read by the kernels, written before each replay."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cpu.program import IntArray

_INT_BYTES, _FLOAT_BYTES = 4, 4


class StepSizes(NamedTuple):
    """What a step has at most; `num_pages` of one sequence."""

    tokens: int
    outputs: int
    sequences: int
    num_pages: int
    hidden_size: int


class SequenceInputs(NamedTuple):
    """One sequence's tokens `ids` at positions from `position` on; `outputs`: rows of these.

    `pages` of the KV cache cover them; `state`: which of the recurrent layers' is gone on with.
    """

    ids: IntArray
    position: int
    outputs: IntArray
    pages: IntArray
    state: int = 0

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.position + len(self.ids)


class StepInputs:
    """Ids, positions, output rows, whose token each is, states and page tables, copied at once.

    And values from elsewhere. `of_tokens`: the first three, so many of each. `sequences` (T,);
    `starts` (sequences + 1,): each one's first token, and the end; `states` (sequences,);
    `page_tables` (sequences, num_pages). A row of a step is the same sequence's in all.
    """

    def __init__(self, device: Device, sizes: StepSizes) -> None:
        self._device = device
        self.num_pages = sizes.num_pages
        tokens, sequences = sizes.tokens, sizes.sequences
        tables = sequences * sizes.num_pages
        counts = (tokens, tokens, sizes.outputs, tokens, sequences + 1, sequences, tables)
        ends = np.cumsum(counts)
        self.counts_of_tokens = counts[:3]
        self._host: IntArray = np.zeros(int(ends[-1]), np.int32)
        self._views = np.split(self._host, ends[:-1])
        memory = device.allocate(self._host.nbytes)
        self._all = Span(memory, 0, self._host.nbytes)
        self._num_words = int(ends[-2])  # before the page tables
        spans = [
            self._all.part(int(end - count) * _INT_BYTES, count * _INT_BYTES)
            for end, count in zip(ends, counts, strict=True)
        ]
        self.ids, self.positions, self.output_rows, self.sequences = spans[:4]
        self.starts, self.states, self.page_tables = spans[4:]
        self.of_tokens = self._all.part(0, sum(counts[:3]) * _INT_BYTES)
        size = tokens * sizes.hidden_size * _FLOAT_BYTES
        self.incoming = Span(device.allocate(size), 0, size)

    def page_table(self, row: int) -> Span:
        """One sequence's."""
        size = self.num_pages * _INT_BYTES
        return self.page_tables.part(row * size, size)

    def write(self, sequences: Sequence[SequenceInputs]) -> None:
        """The next step: tokens and outputs of all sequences, one after the other."""
        _, _, _, _, starts, _, _ = self._views
        starts[0] = token = output = 0
        for row, each in enumerate(sequences):
            self._write(row, each, token, output)
            token, output = token + len(each.ids), output + len(each.outputs)
            starts[row + 1] = token
        num_words = self._num_words + len(sequences) * self.num_pages
        self._device.upload(self._all.part(0, num_words * _INT_BYTES), self._host[:num_words])

    def _write(self, row: int, each: SequenceInputs, token: int, output: int) -> None:
        """One sequence, from so many tokens and outputs on."""
        ids, positions, rows, sequences, _, states, tables = self._views
        end = token + len(each.ids)
        ids[token:end] = each.ids
        positions[token:end] = range(each.position, each.end)
        sequences[token:end] = row
        rows[output : output + len(each.outputs)] = each.outputs + np.int32(token)
        states[row] = each.state
        first = row * self.num_pages
        tables[first : first + len(each.pages)] = each.pages

    def write_incoming(self, values: npt.NDArray[np.float32]) -> None:
        """What another processor computed, (tokens, hidden)."""
        self._device.upload(self.incoming.part(0, values.nbytes), values)
