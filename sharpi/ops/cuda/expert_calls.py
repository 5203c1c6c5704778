"""Feed-forwards of a recording: experts one token at a time, or grouped by expert for many."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.abi import Rows
from sharpi.ops.buffers import Buffer
from sharpi.ops.cuda import experts, experts_grouped, group_routes
from sharpi.ops.cuda.activations import activation_bytes
from sharpi.ops.cuda.card_banks import CardBanks
from sharpi.ops.cuda.experts import BankPart
from sharpi.ops.cuda.linear_calls import FLOAT_TYPES
from sharpi.ops.cuda.recording import FLOAT_BYTES, Recording
from sharpi.ops.cuda.values import Call, Extent, Value
from sharpi.ops.interface import Activation, ExpertBanks

GROUPED_TOKENS = 9  # from here on tokens that share an expert read it together
_INT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Route:
    """Who computes for a token, (tokens, used); `ids` and `weights` are buffers of 4-byte values."""

    ids: Callable[[], Span]
    used: int


@dataclass(frozen=True, slots=True)
class FeedForward:
    """What is computed: `ids` None is expert 0 for every token, `weights` None is 1."""

    banks: ExpertBanks
    activation: Activation
    ids: Value | None
    weights: Value | None
    residual: Value | None
    scale: float

    @property
    def used(self) -> int:
        """Experts of a token."""
        return 1 if self.ids is None else self.ids.width


@dataclass(frozen=True, slots=True)
class Scratch:
    """Buffers between the two halves, and the lists that group items by expert."""

    hidden: Buffer
    pair: Buffer | None
    offsets: Buffer
    items: Buffer
    parts: Buffer


def feed_forward(recording: Recording, banks: CardBanks, x: Value, what: FeedForward) -> Value:
    """Appends residual + scale * sum of weight * down(act(gate x) * up x): (hidden,)."""
    b, planes = what.banks, recording.planes
    parts = tuple(banks.want(bank, b.layer) for bank in (b.gate, b.up, b.down))
    for bank in (b.gate, b.up):
        if _planes(bank.quant_type, planes):
            recording.rounded(x)
        else:
            recording.floats(x)
    for value in (what.ids, what.weights, what.residual):
        if value is not None:
            recording.floats(value)
    out = recording.value(b.down.rows, x.rows)
    scratch = _scratch(recording, x.rows, what)
    operation = _FeedForward(recording, x, what, parts, out, scratch)
    recording.append(operation.calls)
    return out


def _planes(quant_type: QuantType, planes: int) -> int:
    return 0 if quant_type in FLOAT_TYPES else planes


def _scratch(recording: Recording, rows: Rows, what: FeedForward) -> Scratch:
    b, most = what.banks, recording.capacity(rows)
    items = most * what.used
    floats = items * b.gate.rows * FLOAT_BYTES
    planes = _planes(b.down.quant_type, recording.planes)
    rounded = items * activation_bytes(b.down.columns, planes)
    pair = None
    if b.gate.quant_type != b.up.quant_type:
        pair = recording.buffer(2 * floats)
    is_grouped = most >= GROUPED_TOKENS
    return Scratch(
        hidden=recording.buffer(rounded if planes else floats),
        pair=pair,
        offsets=recording.buffer((b.gate.num_experts + 1) * _INT_BYTES if is_grouped else 0),
        items=recording.buffer(items * _INT_BYTES if is_grouped else 0),
        parts=recording.buffer(items * b.down.rows * FLOAT_BYTES if is_grouped else 0),
    )


@dataclass(frozen=True, slots=True)
class _FeedForward:
    recording: Recording
    x: Value
    what: FeedForward
    parts: tuple[Callable[[], BankPart], ...]
    out: Value
    scratch: Scratch
