"""Launches the kernel that copies experts into slots, from a list that another kernel wrote."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from sharpi.device.launch import Argument, Kernel, Launch, Span
from sharpi.ops.cuda.launchers.waits import CopyWait

MAX_PIECES = 3
_BLOCK, _CHUNK_BYTES, _MOST_BLOCKS = 256, 16 << 10, 512
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
