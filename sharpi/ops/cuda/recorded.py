"""The values and calls of a recording for the GPU."""

from collections.abc import Callable, Hashable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from sharpi.device.device import AttendShape, Work
from sharpi.device.launch import Launch, Span
from sharpi.ops.cpu.abi import Rows
from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cuda.launchers.heads import HeadNorm, HeadRope

MissMode: TypeAlias = Literal["load", "stream", "cpu"]

_ID_BYTES = 4


class StepShape(NamedTuple):
    """The sizes of one step.

    `positions`: those that attention may look at, an upper bound. `end`: the position after the
    last token, where more tokens than one make the step. `largest`: whether only the largest
    logit's id is wanted. `misses`: what is done about experts that are not on the GPU. Where
    batches of a prompt take turns, this is the `turn`-th of `turns` and begins with the prompt's
    `first`-th token; `group`: the chunk of experts that computes, None for all. `predicts`: whether
    layers fetch experts for the next one; only of a token that has an output. `is_exact`: whether
    routed tokens are too many for their rows, and take turns. `sequences` share the step, each with
    fewer tokens than matrix products take.
    """

    tokens: int
    outputs: int
    positions: int
    end: int = 0
    largest: bool = False
    misses: MissMode = "stream"
    turn: int = 0
    turns: int = 1
    group: int | None = None
    first: int | None = None
    predicts: bool = False
    is_exact: bool = False
    sequences: int = 1

    @property
    def is_decode(self) -> bool:
        """True if every sequence has one token; such step shapes come again and again."""
        return self.tokens == self.sequences

    def rows(self, kind: Rows) -> int:
        """Returns the number of rows of a value."""
        if kind is Rows.PREDICTED:
            return int(self.predicts)
        return self.outputs if kind is Rows.OUTPUTS else self.tokens


class Product(NamedTuple):
    """A matrix product that the device's library computes; see `Device.matmul`."""

    x: Span
    weights: Span
    out: Span
    shape: tuple[int, int, int]


class Attend(NamedTuple):
    """Attention of many tokens that the device's library computes; see `Device.attend`."""

    q: Span
    keys: Span
    values: Span
    page_table: Span
    out: Span
    shape: AttendShape


class Copy(NamedTuple):
    """Bytes of one memory into another; see `Device.copy`."""

    target: Span
    source: Span


class WriteWord(NamedTuple):
    """See `Device.write_word`."""

    word: Span
    value: int


class AwaitWord(NamedTuple):
    """See `Device.await_word`; `layer`: of which the host has been asked for experts."""

    word: Span
    value: int
    meanwhile: Work
    layer: int


class SideStream(NamedTuple):
    """Calls beside those that follow; `WaitFor` of the same key waits for them."""

    key: Hashable
    calls: tuple["Call", ...]


class WaitFor(NamedTuple):
    """What follows comes after the calls of the side stream of this key."""

    key: Hashable


Call: TypeAlias = Launch | Product | Attend | Copy | WriteWord | AwaitWord | SideStream | WaitFor
Calls: TypeAlias = Callable[[StepShape], Iterable[Call]]
Later: TypeAlias = Callable[[], Span]


class Routes:
    """The expert ids of a layer, (rows, width) int32.

    `room` is the memory for those of one step, `of_prompt` for those of a whole prompt.
    """

    def __init__(self, rows: Rows, width: int, room: Span) -> None:
        self.rows, self.width, self.room = rows, width, room
        self.of_prompt: Span | None = None

    def span(self, step: StepShape) -> Span:
        """Returns the memory of a step's ids."""
        if step.first is None:
            return self.room
        assert self.of_prompt is not None
        row = self.width * _ID_BYTES
        first = step.first if self.rows is Rows.TOKENS else 0
        return self.of_prompt.part(first * row, step.rows(self.rows) * row)


class PendingHeads(Struct):
    """What is still to be done to each head of a value, on its way into attention."""

    norm: Callable[[], HeadNorm] | None = None
    rope: Callable[[], HeadRope] | None = None
    num_heads: int = 0
    angles: "RecordedTensor | None" = None


class RecordedTensor(Struct):
    """Rows of floats, and the same rounded to 8 bits once an operation asks for that.

    `source`: memory outside the arena that holds the floats. `rounds`: whether the operation that
    makes the value can round it as well. `is_read`: whether anybody takes the floats. `routes`: of
    ids, whose place depends on the step.
    """

    width: int
    rows: Rows
    floats: Buffer | None
    source: Span | None = None
    rounds: bool = False
    is_read: bool = False
    rounded: Buffer | None = None
    pending: PendingHeads | None = None
    routes: Routes | None = None

    def changed(self) -> "RecordedTensor":
        """Returns the value that an operation in place leaves in the same memory."""
        self.is_read = True
        pending, self.pending = self.pending, None
        return RecordedTensor(self.width, self.rows, self.floats, self.source, pending=pending)
