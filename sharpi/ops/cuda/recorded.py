"""The data types of a step recorded for the GPU: values, calls and the step's shape."""

from collections.abc import Callable, Hashable, Iterable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from sharpi.device.device import AttendShape, Device, Work
from sharpi.device.launch import Launch, Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.recorder_tape import Buffer
from sharpi.ops.cuda.gpu_weights import GpuStates
from sharpi.ops.cuda.launchers.attention.heads import HeadNorm, HeadRope
from sharpi.ops.routed_capacity import experts_at_once, rows_of_batch

MissMode: TypeAlias = Literal["bus", "cpu"]

_ID_BYTES = 4


class StepShape(NamedTuple):
    """The sizes and options of one step."""

    tokens: int
    outputs: int
    positions: int  # an upper bound of the positions that attention reads
    end: int = 0  # the position after the last token of a batch, 0 for single tokens
    largest: bool = False  # the caller only wants the id of the largest logit
    misses: MissMode = "bus"
    batch_index: int = 0  # the index of this batch in a prompt that runs layer by layer
    num_batches: int = 1  # the number of batches of such a prompt
    chunk: int | None = None  # the chunk of experts to compute, None for all
    first: int | None = None  # the index of the first token in such a prompt
    predicts: bool = False  # layers prefetch the next layer's experts, for tokens with outputs
    is_exact: bool = False  # if routed tokens exceed the limit of rows, tokens compute part by part
    has_drafts: bool = False  # recurrent layers store a state after each token of a check
    sequences: int = 1  # if several, each has too few tokens for the library's matmul

    @property
    def is_decode(self) -> bool:
        """True if every sequence has one token; steps of such shapes are captured as graphs."""
        return self.tokens == self.sequences

    def rows(self, kind: Rows) -> int:
        """Returns the number of rows that values of this kind have in the step."""
        if kind is Rows.PREDICTED:
            return self.outputs if self.predicts else 0
        return self.outputs if kind is Rows.OUTPUTS else self.tokens


class Product(NamedTuple):
    """A call of `Device.matmul`, which computes an f16 matmul."""

    x: Span
    weights: Span
    out: Span
    shape: tuple[int, int, int]


class BatchedProduct(NamedTuple):
    """Matmuls of many matrices in f16, all of as many tokens; see `Device.batched_matmul`."""

    x: Span
    weights: Span
    out: Span
    shape: tuple[int, int, int, int]


class Attend(NamedTuple):
    """A call of `Device.attend`, which computes attention of many tokens."""

    q: Span
    keys: Span
    values: Span
    page_table: Span
    out: Span
    shape: AttendShape


class Copy(NamedTuple):
    """A copy from one memory to another; see `Device.copy`."""

    target: Span
    source: Span


class WriteWord(NamedTuple):
    """A write to a word in page-locked memory; see `Device.write_word`."""

    word: Span
    value: int


class AwaitWord(NamedTuple):
    """A wait for a word in page-locked memory; see `Device.await_word`."""

    word: Span
    value: int
    host_work: Work
    layer: int  # the layer whose experts the GPU requests from the host


class SideStream(NamedTuple):
    """Calls on the side stream; `WaitFor` of the same key waits for them."""

    key: Hashable
    calls: tuple["Call", ...]


class WaitFor(NamedTuple):
    """A wait for the side stream's calls of the same key."""

    key: Hashable


Call: TypeAlias = (
    Launch | Product | BatchedProduct | Attend | Copy | WriteWord | AwaitWord | SideStream | WaitFor
)
Calls: TypeAlias = Callable[[StepShape], Iterable[Call]]


class Routes:
    """The memory for the expert ids of a layer's routes, (rows, width) int32.

    `of_step` is for the ids of one step. `of_prompt` is for the ids of all tokens of a prompt.
    """

    def __init__(self, rows: Rows, width: int, of_step: Span) -> None:
        self.rows, self.width, self.of_step = rows, width, of_step
        self.of_prompt: Span | None = None

    def span(self, step: StepShape) -> Span:
        """Returns the memory for the expert ids of a step."""
        if step.first is None:
            return self.of_step
        assert self.of_prompt is not None
        row = self.width * _ID_BYTES
        first = step.first if self.rows is Rows.TOKENS else 0
        return self.of_prompt.part(first * row, step.rows(self.rows) * row)


class PendingHeads(Struct):
    """The norm and RoPE of a value's heads, which are recorded but not yet launched.

    The attention launch can apply them. For any other operation they are first applied in place.
    """

    norm: Callable[[], HeadNorm] | None = None
    rope: Callable[[], HeadRope] | None = None
    num_heads: int = 0
    angles: "RecordedTensor | None" = None


class RecordedTensor(Struct):
    """A value of a recording: rows of floats, and quantised rows if an operation reads them."""

    width: int
    rows: Rows
    floats: Buffer | None
    source: Span | None = None  # memory outside the arena that holds the floats
    can_quantise: bool = False  # the operation that computes the value can also quantise it
    is_read: bool = False  # an operation reads the floats
    # An earlier layer's attention has transformed these queries in place.
    is_transformed: bool = False
    quantised: Buffer | None = None
    pending: PendingHeads | None = None
    routes: Routes | None = None  # for expert ids: their memory, which depends on the step

    def changed(self) -> "RecordedTensor":
        """Returns the value that an in-place operation leaves in the same memory."""
        self.is_read = True
        pending, self.pending = self.pending, None
        return RecordedTensor(self.width, self.rows, self.floats, self.source, pending=pending)


class PassCounts(Struct):
    """Counts of prefills by how they were computed.

    A pass is one run of a batch, or of a prompt, through the layers.
    """

    by_layer: int = 0  # prompts whose batches ran each layer in turn
    spilled_pages: int = 0  # pages of the stash that were in RAM
    # Prompts too long for the stash, which ran in batches one after the other.
    stash_overflows: int = 0
    limited: int = 0  # passes with a limit on the rows for routed tokens
    reruns: int = 0  # passes that were repeated because the limit was too small

    @property
    def notes(self) -> tuple[str, ...]:
        """The counts as lines for the user."""
        counts = {
            "prompts computed layer by layer": self.by_layer,
            "stash pages that were in RAM between layers": self.spilled_pages,
            "prompts too long for the stash": self.stash_overflows,
        }
        notes = [f"{what}: {count}" for what, count in counts.items() if count]
        if self.limited:
            notes.append(
                f"passes with a limit of routed tokens: {self.limited},"
                f" repeated because it was too small: {self.reruns}"
            )
        return tuple(notes)


class RoutedRows:
    """Limits the buffer rows for routed tokens to a share of tokens * experts per token.

    `factor` is the share. Experts are computed in groups. If a group has more routed tokens than
    rows, the kernel drops some and sets a flag, which the host reads after the pass. The pass is
    then repeated with so few tokens at a time that none is dropped.
    """

    def __init__(
        self, device: Device, factor: float, states: GpuStates, counts: PassCounts
    ) -> None:
        self._device, self._factor, self._states, self._counts = device, factor, states, counts
        self.is_over = Span(device.allocate(4), 0, 4)

    def rows(self, tokens: int, used: int) -> int:
        """Returns the number of buffer rows for `tokens` tokens with `used` experts per token."""
        return rows_of_batch(self._factor, tokens, used)

    def experts_at_once(self, num_experts: int) -> int:
        """Returns the number of experts in a group."""
        return experts_at_once(self._factor, num_experts)

    def rerun_if_over(self, run: Callable[[bool], None], state: int) -> None:
        """Calls run(False), then run(True) if the first run dropped routed tokens.

        `run(True)` must compute fewer tokens at a time, so that none is dropped. It overwrites the
        keys and values of the first run. The recurrent state with index `state` is restored before.
        """
        self._counts.limited += 1
        self._device.upload(self.is_over, np.zeros(1, np.int32))
        self._states.save(state)
        run(False)
        if self._is_over():
            self._counts.reruns += 1
            self._states.restore(state)
            run(True)

    def _is_over(self) -> bool:
        flag = np.zeros(1, np.int32)
        self._device.download(self.is_over, flag)
        return bool(flag[0])
