"""KeptInputs: the arrays of a step that map positions to KV slots where heads have dropped keys."""

import numpy as np

from sharpi.engine.backends.model_part import Segment
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.program import IntArray, int_pointer
from sharpi.tiers.settings import EngineSettings


class KeptInputs:
    """The arrays of `abi.Step` that only steps with dropped keys and values need."""

    def __init__(self, settings: EngineSettings) -> None:
        self._slots = np.zeros(settings.batch_size, np.int32)
        self._num_kept = np.zeros(settings.num_parallel, np.int32)
        self._pages = np.zeros((settings.num_parallel, settings.pages_per_sequence), np.int32)

    def join(self, step: abi.Step) -> None:
        """Points `step` to the arrays."""
        step.slots = int_pointer(self._slots)
        step.num_kept = int_pointer(self._num_kept)
        step.kept_table = int_pointer(self._pages)

    def write(self, row: int, tokens: slice, positions: IntArray, segment: Segment) -> None:
        """Writes a segment, whose tokens have `positions` (tokens,), as sequence `row`."""
        self._slots[tokens] = positions - segment.num_dropped
        self._num_kept[row] = segment.num_kept
        if segment.kept_pages is not None:
            self._pages[row, : len(segment.kept_pages)] = segment.kept_pages
