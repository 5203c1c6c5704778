"""Writes a file of random bytes with the layout of a model's experts, for tests without a model.

The bytes are written to the disk, because reading a sparse file's holes does not access the disk.
"""

import os
from pathlib import Path

import numpy as np

from sharpi.experts.native.store_layout import LayerLayout, PieceLayout, StoreLayout
from sharpi.system.direct_read import ALIGNMENT

_NUM_PIECES = 3  # gate, up, down
_CHUNK_BYTES = 16 << 20
LEAST_EXPERT_BYTES = _NUM_PIECES * ALIGNMENT


def round_expert_bytes(num_bytes: float) -> int:
    """Rounds an expert's size down so that each of its three matrices has aligned disk blocks.

    Each matrix has at least one block.
    """
    return max(1, int(num_bytes) // LEAST_EXPERT_BYTES) * LEAST_EXPERT_BYTES


def write_experts(path: Path, num_layers: int, num_experts: int, expert_bytes: int) -> StoreLayout:
    """Writes the file and returns its layout; raises OSError, for example if the disk is full."""
    write_random(path, num_layers * num_experts * expert_bytes)
    size = expert_bytes // _NUM_PIECES
    starts = range(0, num_layers * _NUM_PIECES * num_experts * size, num_experts * size)
    pieces = [PieceLayout(0, start, size) for start in starts]
    layers = (
        LayerLayout(num_experts, tuple(pieces[first : first + _NUM_PIECES]))
        for first in range(0, len(pieces), _NUM_PIECES)
    )
    return StoreLayout((path,), tuple(layers))


def write_random(path: Path, num_bytes: int) -> None:
    """Writes a file of `num_bytes` random bytes and syncs it to the disk."""
    chunk = np.random.default_rng(0).bytes(min(num_bytes, _CHUNK_BYTES))
    with path.open("wb") as file:
        for begin in range(0, num_bytes, _CHUNK_BYTES):
            file.write(chunk[: num_bytes - begin])
        file.flush()
        os.fsync(file.fileno())
