"""Launches the kernels that send items of missed experts to the host, and merge its results.

`addresses` (experts,) is 0 for experts that the host computes. `host_rows` (T * used,) int32 has
each item's index among the items of the host, -1 for items that the GPU computes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from sharpi.device.launch import Kernel, Launch, Span, named
from sharpi.ops.cuda.launchers.experts.experts import GateUpArguments, Items, RoutedSum


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
    return Launch.of(Kernel("slot_wait", "slot_wait_begin"), (1,), 1, (wait.since,), [wait.since])


def end_wait(wait: Wait) -> Launch:
    """Adds the time since `begin_wait` to `wait.waited`."""
    return Launch.of(Kernel("slot_wait", "slot_wait_end"), (1,), 1, wait, [wait.waited])


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
    items: Items,
    addresses: Span,
    x: Span,
    weights: Span | None,
    host_rows: Span,
    for_host: HostItems,
    *,
    columns: int,
) -> Launch:
    """Lists the items that the host is to compute, with their rows of floats x (T, columns).

    The host multiplies inputs by `weights` (T, used); None stands for 1.
    """
    ids, tokens, used = items
    arguments = (ids, addresses, x, weights, host_rows, for_host, used, columns)
    return Launch.of("host_items", (tokens * used,), _BLOCK, arguments, [host_rows, *for_host])


def host_predictions(items: Items, addresses: Span, predicted: Span, *, layer: int) -> Launch:
    """Writes for the host which experts are predicted for a layer and are not on the GPU.

    `items` has the predicted experts, best first. The kernel writes to `predicted`, int32 (2 +
    32,), the number of listed experts, the layer, and each listed expert once, best first.
    """
    ids, tokens, used = items
    arguments = (ids, addresses, predicted, tokens, used, layer)
    return Launch.of("host_predictions", (1,), 32, arguments, [predicted])


def merge(
    values: Span, host_values: Span, host_rows: Span, total: RoutedSum, wait: Wait | None = None
) -> Launch:
    """Computes the sum `total` of values, in order of expert id.

    `values` (T * used, rows) were computed by the GPU, `host_values` (host items, rows) by the
    host. The kernel adds the time since `wait.since` to `wait.waited`.
    """
    t, (ids, tokens, used) = total, total.items
    words = (None, None) if wait is None else wait
    return Launch.of(
        "experts_host_merge",
        (tokens, -(-t.rows // _BLOCK)),
        _BLOCK,
        (
            *(values, host_values, host_rows, ids, t.weights, t.residual, t.out, t.scale),
            *(used, t.rows, *words),
        ),
        [t.out, words[1]],
    )


MAX_PIECES = 3
_CHUNK_BYTES, _MOST_BLOCKS = 16 << 10, 512
_NO_PIECE = (None, None, None, None, np.int64(0), np.int64(0))


class GatherPiece(Struct, frozen=True):
    """One tensor's part of a layer's experts, in host memory and in slots."""

    host_addresses: Span  # (experts,) uint64
    slots: Span
    early: Span | None  # early slots; None without any
    staging: Span | None  # staging buffers; None without any
    stride: int  # bytes from one slot to the next
    num_bytes: int  # bytes to copy
    referenced: tuple[Span, ...]  # all memory to which the host addresses point

    @property
    def arguments(self) -> tuple[Span | np.int64 | None, ...]:
        """The arguments by which the kernel finds the experts and their targets."""
        sizes = np.int64(self.stride), np.int64(self.num_bytes)
        return (self.host_addresses, self.slots, self.early, self.staging, *sizes)


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
    given = [*(piece.arguments for piece in pieces), *[_NO_PIECE] * (MAX_PIECES - len(pieces))]
    chunks = most_loads * sum(-(-piece.num_bytes // _CHUNK_BYTES) for piece in pieces)
    targets = [span for p in pieces for span in (p.slots, p.early, p.staging)]
    waited = [] if wait is None else [wait.copied, wait.waited]
    return Launch.of(
        "gather_experts",
        (max(1, min(_MOST_BLOCKS, chunks)),),
        _BLOCK,
        (loads, *given, experts, num_slots, num_early, wait or (None, None, None)),
        [*targets, *waited],
        referenced=tuple(span for piece in pieces for span in piece.referenced),
    )


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
    before, name = len(gather.arguments), "experts_gather_gate_up"
    entry = gate_up.kernel.entry.replace(gate_up.kernel.file, name)
    return Launch(
        Kernel(name, entry, gate_up.kernel.quant_type),
        grid=(tiles, rows + items, 1),
        block=gate_up.block,
        arguments=(*gather.arguments, *gate_up.arguments),
        writes=gather.writes | {before + place for place in gate_up.writes},
        referenced=gather.referenced + gate_up.referenced,
    )
