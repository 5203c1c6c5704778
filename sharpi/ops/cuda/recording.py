"""A step being recorded for the GPU: its calls, as functions of the sizes, and their buffers."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Memory, Span
from sharpi.errors import UnsupportedModelError
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.buffers import Buffer, assign_offsets
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cuda.gpu_weights import GpuWeights
from sharpi.ops.cuda.launchers import heads, quantise
from sharpi.ops.cuda.launchers.activations import PLANES, activation_bytes
from sharpi.ops.cuda.launchers.heads import HeadGroup
from sharpi.ops.cuda.recorded import Calls, PendingHeads, RecordedTensor, StepShape
from sharpi.ops.cuda.routed_rows import RoutedRows

FLOAT_BYTES = 4
_BLOCK = 32


class Stage(Struct, frozen=True):
    """Operations at which the batches of a prompt take turns, one batch after the other.

    `layer`: whose experts they are, None for others. `enters`, `leaves`: what they read of what was
    before, and what is read later. `sums`: what experts leave, which may grow group by group.
    """

    operations: list[Calls]
    layer: int | None
    enters: list[Buffer]
    leaves: list[Buffer]
    sums: list[Buffer]


class Recording:
    """Buffers live from the operation that makes them to the last that reads them.

    `routed`: the limit of rows for routed tokens, None without one.
    """

    def __init__(
        self,
        device: Device,
        limits: ProgramLimits,
        weights: GpuWeights,
        routed: RoutedRows | None = None,
    ) -> None:
        self.device, self.limits, self.weights = device, limits, weights
        self.routed = routed
        self.planes = PLANES[limits.precision]
        self._buffers: list[Buffer] = []
        self._operations: list[Calls] = []
        self._appended = self._operations
        self._arena: Memory | None = None
        self._experts: dict[int, int] = {}

    def capacity(self, rows: Rows) -> int:
        """Rows that a value may have."""
        if rows is Rows.PREDICTED:
            return 1
        return self.limits.max_outputs if rows is Rows.OUTPUTS else self.limits.max_tokens

    def value(
        self, width: int, rows: Rows = Rows.TOKENS, *, rounds: bool = False
    ) -> RecordedTensor:
        """A new value, made by the operation that is appended next."""
        return RecordedTensor(width, rows, self._rows(rows, width * FLOAT_BYTES), rounds=rounds)

    def _rows(self, rows: Rows, row_bytes: int) -> Buffer:
        buffer = self.buffer(self.capacity(rows) * row_bytes)
        buffer.rows, buffer.row_bytes = rows, row_bytes
        return buffer

    def buffer(self, num_bytes: int) -> Buffer:
        """Memory that the next operation is the first to use."""
        now = len(self._operations)
        buffer = Buffer(num_bytes, 0, Rows.TOKENS, now, now)
        self._buffers.append(buffer)
        return buffer

    def append(self, calls: Calls) -> None:
        """Adds an operation; called with the sizes of each step to come."""
        self._appended.append(calls)

    @contextmanager
    def apart(self) -> Iterator[list[Calls]]:
        """What is appended meanwhile goes into a list that an operation to come is to start."""
        operations, self._appended = self._appended, []
        try:
            yield self._appended
        finally:
            self._appended = operations

    def append_experts(self, layer: int, calls: Calls) -> None:
        """Adds an operation before and after which other tokens may have their turn."""
        self._experts[len(self._operations)] = layer
        self.append(calls)

    @property
    def stages(self) -> list[Stage]:
        """All operations: those of experts by themselves, and what is between them."""
        cuts = [0, *(at for i in self._experts for at in (i, i + 1)), len(self._operations)]
        return [self._stage(begin, end) for begin, end in pairwise(cuts)]

    def _stage(self, begin: int, end: int) -> Stage:
        leaves, layer = self._live(end), self._experts.get(begin)
        sums = [each for each in leaves if each.first == begin] if layer is not None else []
        return Stage(self._operations[begin:end], layer, self._live(begin), leaves, sums)

    def _live(self, cut: int) -> list[Buffer]:
        """What the operations from the cut on read of those before it; prompts predict nothing."""
        values = (each for each in self._buffers if each.rows is not Rows.PREDICTED)
        return [each for each in values if each.first < cut <= each.last]

    def floats(self, *values: RecordedTensor) -> None:
        """Says that the next operation reads these floats; their heads are done by then."""
        for value in values:
            self._settle(value)
        for value in values:
            self._touch(value.floats)
            value.is_read = True

    def hold(self, *values: RecordedTensor) -> None:
        """Says that the next operation needs the memory of these, in all their forms."""
        self.floats(*values)
        for value in values:
            self._touch(value.rounded)

    def rounded(self, value: RecordedTensor) -> RecordedTensor:
        """Says that the next operation reads the rounded rows, and sees that they are made."""
        self._settle(value)
        if value.width % _BLOCK:
            raise UnsupportedModelError(f"rows of {value.width} values cannot be rounded by 32")
        row = activation_bytes(value.width, self.planes)
        if value.rounded is None and value.rounds and value.floats is not None:
            value.rounded = self._rows(value.rows, row)
            value.rounded.first = value.floats.first
        elif value.rounded is None:
            self.floats(value)
            value.rounded = self._rows(value.rows, row)
            self.append(lambda step: self.round(value, step))
        self._touch(value.rounded)
        return value

    def round(self, value: RecordedTensor, step: StepShape) -> Iterator[Launch]:
        """Rounds the floats of a value, where anybody wants that."""
        target = self.at(value.rounded)
        if target is not None:
            yield quantise.quantise(
                self.of(value),
                target,
                tokens=step.rows(value.rows),
                columns=value.width,
                planes=self.planes,
            )

    def _settle(self, value: RecordedTensor) -> None:
        """Does what is pending to the heads in place."""
        if value.pending is None:
            return
        pending = self.take_pending(value)
        assert pending is not None
        num_heads = pending.num_heads

        def calls(step: StepShape) -> Iterator[Launch]:
            group = head_group(self, value, pending, num_heads)
            yield heads.heads([group], tokens=step.rows(value.rows))

        self.append(calls)

    def take_pending(self, value: RecordedTensor) -> PendingHeads | None:
        """What the next operation has to do to a value's heads itself."""
        pending, value.pending = value.pending, None
        self.floats(value)
        if pending is not None and pending.angles is not None:
            self.floats(pending.angles)
        return pending

    def _touch(self, buffer: Buffer | None) -> None:
        if buffer is not None:
            buffer.last = len(self._operations)

    def of(self, value: RecordedTensor) -> Span:
        """Where the floats of a value are."""
        span = value.source if value.floats is None else self.at(value.floats)
        assert span is not None
        return span

    def rounded_of(self, value: RecordedTensor) -> Span:
        """Where its rounded rows are."""
        span = self.at(value.rounded)
        assert span is not None
        return span

    def rows_of(self, value: RecordedTensor, first: int, count: int) -> Span:
        """Some rows of a value's floats."""
        row = value.width * FLOAT_BYTES
        return self.of(value).part(first * row, count * row)

    def rounded_rows_of(self, value: RecordedTensor, first: int, count: int) -> Span:
        """Some rows of a value as it was rounded."""
        row = activation_bytes(value.width, self.planes)
        return self.rounded_of(value).part(first * row, count * row)

    def wanted(self, value: RecordedTensor) -> Span | None:
        """The same, None where nobody reads them."""
        return self.of(value) if value.is_read else None

    def at(self, buffer: Buffer | None) -> Span | None:
        """Where a buffer is."""
        if buffer is None:
            return None
        assert self._arena is not None
        return Span(self._arena, buffer.offset, buffer.num_bytes)

    def finish(self) -> list[Calls]:
        """Places the buffers and copies the weights; the calls may be made from now on."""
        size = assign_offsets(self._buffers)
        self._arena = self.device.allocate(size)
        self.weights.load()
        return self._operations

    def keep(self, value: RecordedTensor) -> None:
        """Saves the floats from being written over after the last operation that reads them."""
        self.floats(value)
        assert value.floats is not None
        value.floats.kept = True

    def all_spans(self, buffers: Iterable[Buffer | None]) -> list[Span]:
        """Where buffers are that exist."""
        return [span for span in map(self.at, buffers) if span is not None]


def head_group(
    recording: Recording, value: RecordedTensor, pending: PendingHeads | None, num_heads: int
) -> HeadGroup:
    """A value's heads with what is to be done to them, in place."""
    norm = None if pending is None or pending.norm is None else pending.norm()
    rope = None if pending is None or pending.rope is None else pending.rope()
    return HeadGroup(recording.of(value), num_heads, value.width // num_heads, norm, rope)
