"""Launches the kernels that send items of missed experts to the host, and merge its results.

An item is a token with one of its experts. `addresses` (experts,) is 0 for experts that the host
computes. `host_rows` (T * used,) int32 has each item's index among the items of the host, -1 for
items that the GPU computes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from sharpi.device.launch import Argument, Kernel, Launch, Span, named
from sharpi.ops.cuda.launchers.experts.experts import GateUpArguments


class Wait(NamedTuple):
    """Two int64 words that measure waits, in nanoseconds of the GPU's clock."""

    since: Span  # when the current wait began
    waited: Span  # the sum of all waits


class CopyWait(NamedTuple):
    """Words in which the kernel that copies experts records how long the copies took."""

    copied: Span  # int32, 0 between launches
    since: Span | None  # None records only the end
    waited: Span


def begin_wait(wait: Wait) -> Launch:
    """Writes the time at which the stream begins to wait to `wait.since`."""
    return Launch(Kernel("slot_wait", "slot_wait_begin"), (1, 1, 1), 1, (wait.since,), _FIRST)


def end_wait(wait: Wait) -> Launch:
    """Adds the time since `begin_wait` to `wait.waited`."""
    return Launch(Kernel("slot_wait", "slot_wait_end"), (1, 1, 1), 1, tuple(wait), _SECOND)


_FIRST, _SECOND = frozenset({0}), frozenset({1})


PREDICTED_WORDS = 2 + 32  # of `host_predictions`
_BLOCK = 256


class HostItems(NamedTuple):
    """The items for the host, in page-locked memory: their number, then their fields.

    Each item has an expert, an input row and a weight.
    """

    num_items: Span
    experts: Span
    rows: Span
    weights: Span


def host_items(
    ids: Span,
    addresses: Span,
    x: Span,
    weights: Span | None,
    host_rows: Span,
    items: HostItems,
    *,
    tokens: int,
    used: int,
    columns: int,
) -> Launch:
    """Lists the items that the host is to compute, from ids (T, used) and floats x (T, columns).

    The host multiplies inputs by `weights` (T, used); None stands for 1.
    """
    return Launch(
        Kernel("host_items", "host_items"),
        grid=(tokens * used, 1, 1),
        block=_BLOCK,
        arguments=(
            *(ids, addresses, x, weights, host_rows, *items),
            *(np.int32(used), np.int32(columns)),
        ),
        writes=frozenset({4, 5, 6, 7, 8}),
    )


def host_predictions(
    ids: Span, addresses: Span, predicted: Span, *, tokens: int, used: int, layer: int
) -> Launch:
    """Writes for the host which experts are predicted for a layer and are not on the GPU.

    `ids` (T, used) are the predicted experts, best first. The kernel writes to `predicted`, int32
    (2 + 32,), the number of listed experts, the layer, and each listed expert once, best first.
    """
    return Launch(
        Kernel("host_predictions", "host_predictions"),
        grid=(1, 1, 1),
        block=32,
        arguments=(
            *(ids, addresses, predicted, np.int32(tokens), np.int32(used), np.int32(layer)),
        ),
        writes=frozenset({2}),
    )


def merge(
    values: Span,
    items: Span,
    host_rows: Span,
    ids: Span,
    weights: Span | None,
    out: Span,
    *,
    tokens: int,
    used: int,
    rows: int,
    residual: Span | None,
    scale: float,
    wait: Wait | None = None,
) -> Launch:
    """Computes out (T, rows) = residual + scale * sum of weight * value, in order of expert id.

    `values` (T * used, rows) were computed by the GPU, `items` (host items, rows) by the host. The
    kernel adds the time since `wait.since` to `wait.waited`.
    """
    return Launch(
        Kernel("experts_host_merge", "experts_host_merge"),
        grid=(tokens, -(-rows // _BLOCK), 1),
        block=_BLOCK,
        arguments=(
            *(values, items, host_rows, ids, weights, residual, out),
            *(np.float32(scale), np.int32(used), np.int32(rows)),
            *((None, None) if wait is None else wait),
        ),
        writes=frozenset({6, 11}),
    )


MAX_PIECES = 3
_CHUNK_BYTES, _MOST_BLOCKS = 16 << 10, 512
_WAIT_WRITES = {22, 24}
_NO_PIECE: tuple[Argument, ...] = (None, None, None, None, np.int64(0), np.int64(0))


class GatherPiece(Struct, frozen=True):
    """One tensor's part of a layer's experts, in host memory and in slots."""

    host_addresses: Span  # (experts,) uint64
    slots: Span
    early: Span | None  # early slots; None without any
    staging: Span | None  # staging buffers; None without any
    stride: int  # bytes from one slot to the next
    num_bytes: int  # bytes to copy
    referenced: tuple[Span, ...]  # all memory to which the host addresses point


def gather_experts(
    loads: Span,
    pieces: Sequence[GatherPiece],
    *,
    experts: int,
    num_slots: int,
    num_early: int,
    most_loads: int,
    wait: CopyWait | None = None,
) -> Launch:
    """Copies all tensors of the experts listed in `loads` (kernels/cuda/slots/slot_state.cuh).

    `num_slots` is the number of allocated slots. `most_loads`, the most experts that may be listed,
    only sets the size of the grid. The kernel adds the time of the copies to `wait`, unless the
    list is empty.
    """
    given = [_arguments(piece) for piece in pieces]
    given += [_NO_PIECE] * (MAX_PIECES - len(pieces))
    chunks = most_loads * sum(-(-piece.num_bytes // _CHUNK_BYTES) for piece in pieces)
    written = {1 + 6 * i + j for i in range(len(pieces)) for j in (1, 2, 3)}
    return Launch(
        Kernel("gather_experts", "gather_experts"),
        grid=(max(1, min(_MOST_BLOCKS, chunks)), 1, 1),
        block=_BLOCK,
        arguments=(
            loads,
            *(argument for arguments in given for argument in arguments),
            *(np.int32(experts), np.int32(num_slots), np.int32(num_early)),
            *((None, None, None) if wait is None else wait),
        ),
        writes=frozenset(written | _WAIT_WRITES),
        referenced=tuple(span for piece in pieces for span in piece.referenced),
    )


def _arguments(piece: GatherPiece) -> tuple[Argument, ...]:
    sizes = np.int64(piece.stride), np.int64(piece.num_bytes)
    return (piece.host_addresses, piece.slots, piece.early, piece.staging, *sizes)


_COPYING = 32  # blocks that copy, or one row of the grid; an estimate that no GPU has confirmed
_MOST_COPYING = 4095  # GatherWait counts them in 12 bits


def with_gather(gather: Launch, gate_up: Launch) -> Launch | None:
    """Returns one launch that replaces `gather`, the copies to slots, and `gate_up` of one token.

    Returns None if `gate_up` has several tokens, or if `gather` is a prefetch, which records no
    start time.
    """
    given = named(GateUpArguments, gate_up.arguments)
    since = gather.arguments[CopyWait._fields.index("since") - len(CopyWait._fields)]
    tiles, items, _ = gate_up.grid
    rows = max(1, _COPYING // tiles)
    is_of_token = given.ids is not None and items == given.used
    if not is_of_token or since is None or rows * tiles > _MOST_COPYING:
        return None
    before = len(gather.arguments)
    return Launch(
        _kernel(gate_up.kernel),
        grid=(tiles, rows + items, 1),
        block=gate_up.block,
        arguments=(*gather.arguments, *gate_up.arguments),
        writes=gather.writes | {before + place for place in gate_up.writes},
        referenced=gather.referenced + gate_up.referenced,
    )


def _kernel(gate_up: Kernel) -> Kernel:
    name = "experts_gather_gate_up"
    return Kernel(name, gate_up.entry.replace(gate_up.file, name), gate_up.quant_type)
