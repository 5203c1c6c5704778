"""Recording: a step's operations for the GPU, as functions that return calls for a step shape."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from msgspec import Struct

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Memory, Span
from sharpi.errors import UnsupportedModelError
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cpu.recorder_tape import Buffer, assign_offsets
from sharpi.ops.cuda.features import GpuFeatures
from sharpi.ops.cuda.gpu_weights import GpuWeights
from sharpi.ops.cuda.launchers.attention import heads
from sharpi.ops.cuda.launchers.attention.heads import HeadGroup
from sharpi.ops.cuda.launchers.elementwise import quantise
from sharpi.ops.cuda.matvec_layout import PLANES, activation_bytes
from sharpi.ops.cuda.recorded import Calls, PendingHeads, RecordedTensor, RoutedRows, StepShape

FLOAT_BYTES = 4
_BLOCK = 32


class Stage(Struct, frozen=True):
    """Consecutive operations of a step, for a prompt that runs layer by layer.

    All batches of the prompt run a stage before any of them runs the next stage.
    """

    operations: list[Calls]
    layer: int | None  # the layer, if the operations are its experts; otherwise None
    live_in: list[Buffer]  # written before the stage, and read in it or later
    live_out: list[Buffer]  # written in the stage or before, and read later
    sums: list[Buffer]  # the sums of experts, to which chunks may add one after the other


class Recording:
    """The operations recorded so far, and their buffers.

    A buffer is live from the operation that writes it to the last one that reads it. `routed`
    limits the rows for routed tokens; None sets no limit. `features` are those that are in use; one
    may be dropped later.
    """

    def __init__(
        self,
        device: Device,
        limits: ProgramLimits,
        weights: GpuWeights,
        routed: RoutedRows | None = None,
        features: GpuFeatures | None = None,
    ) -> None:
        self.device, self.limits, self.weights = device, limits, weights
        self.routed = routed
        self.features = features or GpuFeatures()
        self.planes = PLANES[limits.precision]
        self._buffers: list[Buffer] = []
        self._operations: list[Calls] = []
        self._appended = self._operations
        self._arena: Memory | None = None
        self._experts: dict[int, int] = {}

    def capacity(self, rows: Rows) -> int:
        """Returns the maximum number of rows of a value."""
        return self.limits.max_tokens if rows is Rows.TOKENS else self.limits.max_outputs

    def value(
        self, width: int, rows: Rows = Rows.TOKENS, *, can_quantise: bool = False
    ) -> RecordedTensor:
        """Creates a value, which the next operation to be appended computes."""
        return RecordedTensor(
            width, rows, self._rows(rows, width * FLOAT_BYTES), can_quantise=can_quantise
        )

    def _rows(self, rows: Rows, row_bytes: int) -> Buffer:
        buffer = self.buffer(self.capacity(rows) * row_bytes)
        buffer.rows, buffer.row_bytes = rows, row_bytes
        return buffer

    def buffer(self, num_bytes: int) -> Buffer:
        """Creates a buffer, which is live from the next appended operation on."""
        now = len(self._operations)
        buffer = Buffer(num_bytes, 0, Rows.TOKENS, now, now)
        self._buffers.append(buffer)
        return buffer

    def append(self, calls: Calls) -> None:
        """Appends an operation, which each step later calls with its shape."""
        self._appended.append(calls)

    def append_launch(self, make: Callable[[StepShape], Launch]) -> None:
        """Appends an operation of one launch, which `make` returns for a step's shape."""
        self.append(lambda step: [make(step)])

    @contextmanager
    def record_separately(self) -> Iterator[list[Calls]]:
        """Within the `with` block, appends operations to the list that it yields.

        These operations are not part of the recording; a later operation has to run them.
        """
        operations, self._appended = self._appended, []
        try:
            yield self._appended
        finally:
            self._appended = operations

    def append_experts(self, layer: int, calls: Calls) -> None:
        """Appends an operation that computes a layer's experts, as a separate stage."""
        self._experts[len(self._operations)] = layer
        self.append(calls)

    @property
    def stages(self) -> list[Stage]:
        """All operations in stages: one per layer's experts, and one for the operations between."""
        cuts = [0, *(at for i in self._experts for at in (i, i + 1)), len(self._operations)]
        return [self._stage(begin, end) for begin, end in pairwise(cuts)]

    def _stage(self, begin: int, end: int) -> Stage:
        live_out, layer = self._live(end), self._experts.get(begin)
        sums = [each for each in live_out if each.first == begin] if layer is not None else []
        return Stage(self._operations[begin:end], layer, self._live(begin), live_out, sums)

    def _live(self, cut: int) -> list[Buffer]:
        """Returns the buffers written before operation `cut` and read later; not predictions."""
        values = (each for each in self._buffers if each.rows is not Rows.PREDICTED)
        return [each for each in values if each.first < cut <= each.last]

    def read_floats(self, *values: RecordedTensor) -> None:
        """Declares that these floats are read next; appends pending norms and RoPE of heads."""
        for value in values:
            self._apply_pending(value)
        for value in values:
            self._mark_used(value.floats)
            value.is_read = True

    def read_all_forms(self, *values: RecordedTensor) -> None:
        """Declares that the next operation uses the floats and quantised rows of these values."""
        self.read_floats(*values)
        for value in values:
            self._mark_used(value.quantised)

    def read_quantised(self, value: RecordedTensor) -> RecordedTensor:
        """Declares that the next operation reads the quantised rows of a value; returns the value.

        If needed, appends the operation that quantises the rows. Raises UnsupportedModelError for a
        width that is not a multiple of 32.
        """
        self._apply_pending(value)
        if value.width % _BLOCK:
            raise UnsupportedModelError(f"rows of {value.width} values are not whole blocks of 32")
        row = activation_bytes(value.width, self.planes)
        if value.quantised is None and value.can_quantise and value.floats is not None:
            value.quantised = self._rows(value.rows, row)
            value.quantised.first = value.floats.first
        elif value.quantised is None:
            self.read_floats(value)
            value.quantised = self._rows(value.rows, row)
            self.append(lambda step: self.quantise_if_read(value, step))
        self._mark_used(value.quantised)
        return value

    def quantise_if_read(self, value: RecordedTensor, step: StepShape) -> Iterator[Launch]:
        """Yields the launch that quantises a value, if an operation reads its quantised rows."""
        target = self.at(value.quantised)
        if target is not None:
            rows = step.rows(value.rows)
            x = self.of(value)
            yield quantise(x, target, tokens=rows, columns=value.width, planes=self.planes)

    def _apply_pending(self, value: RecordedTensor) -> None:
        """Appends the pending norm and RoPE of a value's heads, in place."""
        if value.pending is None:
            return
        pending = self.take_pending(value)
        assert pending is not None
        if pending.angles is not None:
            self.extend_lifetime(pending.angles.floats)
        self.append_launch(
            lambda step: heads.heads(
                [head_group(self, value, pending, pending.num_heads)], tokens=step.rows(value.rows)
            )
        )

    def take_pending(self, value: RecordedTensor) -> PendingHeads | None:
        """Takes a value's pending norm and RoPE for the next operation to apply; None without."""
        pending, value.pending = value.pending, None
        self.read_floats(value)
        if pending is not None and pending.angles is not None:
            self.read_floats(pending.angles)
        return pending

    def extend_lifetime(self, *buffers: Buffer | None) -> None:
        """Declares that nothing may be written over these before the operation after the next one.

        The next operation reads them. Its launch can then be folded with that of the one after it.
        """
        for buffer in buffers:
            if buffer is not None:
                buffer.last = len(self._operations) + 1

    def _mark_used(self, buffer: Buffer | None) -> None:
        if buffer is not None:
            buffer.last = len(self._operations)

    def of(self, value: RecordedTensor) -> Span:
        """Returns the memory of a value's floats."""
        span = value.source if value.floats is None else self.at(value.floats)
        assert span is not None
        return span

    def quantised_of(self, value: RecordedTensor) -> Span:
        """Returns the memory of a value's quantised rows."""
        span = self.at(value.quantised)
        assert span is not None
        return span

    def rows_of(self, value: RecordedTensor, first: int, count: int) -> Span:
        """Returns the memory of `count` rows of a value's floats, from row `first` on."""
        row = value.width * FLOAT_BYTES
        return self.of(value).part(first * row, count * row)

    def quantised_rows_of(self, value: RecordedTensor, first: int, count: int) -> Span:
        """Returns the memory of `count` quantised rows of a value, from row `first` on."""
        row = activation_bytes(value.width, self.planes)
        return self.quantised_of(value).part(first * row, count * row)

    def floats_if_read(self, value: RecordedTensor) -> Span | None:
        """Returns the memory of a value's floats, None where no operation reads them."""
        return self.of(value) if value.is_read else None

    def at(self, buffer: Buffer | None) -> Span | None:
        """Returns the memory of a buffer, None for None."""
        if buffer is None:
            return None
        assert self._arena is not None
        return Span(self._arena, buffer.offset, buffer.num_bytes)

    def finish(self) -> list[Calls]:
        """Allocates the buffers, loads the weights, and returns the operations."""
        size = assign_offsets(self._buffers)
        self._arena = self.device.allocate(size)
        self.weights.load()
        return self._operations

    def keep(self, value: RecordedTensor) -> None:
        """Keeps the floats of a value: their memory is not reused after the last operation."""
        self.read_floats(value)
        assert value.floats is not None
        value.floats.kept = True

    def all_spans(self, buffers: Iterable[Buffer | None]) -> list[Span]:
        """Returns the memory of those buffers that are not None."""
        return [span for span in map(self.at, buffers) if span is not None]


def head_group(
    recording: Recording, value: RecordedTensor, pending: PendingHeads | None, num_heads: int
) -> HeadGroup:
    """Returns the head group of a value, with the pending norm and RoPE to apply in place."""
    norm = None if pending is None or pending.norm is None else pending.norm()
    rope = None if pending is None or pending.rope is None else pending.rope()
    return HeadGroup(recording.of(value), num_heads, value.width // num_heads, norm, rope)
