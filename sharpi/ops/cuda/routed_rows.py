"""RoutedRows: a fixed number of rows for routed tokens, and what is done where it was too small."""

import math
from collections.abc import Callable

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.gpu_states import GpuStates
from sharpi.ops.cuda.pass_counts import PassCounts

_SPARE = 2  # experts pass in groups that fill one part in so many of the rows, if evenly used


class RoutedRows:
    """`factor` times tokens * experts per token; nothing is asked of the GPU before a pass ends.

    Experts compute in groups. A group with more tokens than there are rows drops what is beyond
    them and raises a flag, which is read with the pass's outputs: then the pass is run once more,
    in which each group takes as few tokens at a time as certainly fit.
    """

    def __init__(
        self, device: Device, factor: float, states: GpuStates, counts: PassCounts
    ) -> None:
        self._device, self._factor, self._states, self._counts = device, factor, states, counts
        self.is_over = Span(device.allocate(4), 0, 4)

    def rows(self, tokens: int, used: int, least: int) -> int:
        """Rows for a batch of so many tokens, at most all they need; `least`: tokens with all."""
        return used * min(tokens, max(least, math.ceil(tokens * self._factor)))

    def experts_at_once(self, num_experts: int) -> int:
        """Experts of a group."""
        return max(1, int(num_experts * self._factor / _SPARE))

    def guard(self, run: Callable[[bool], None], state: int) -> None:
        """run(False) with the limit; where that was too small run(True) after it, without.

        Keys and values are written again; the recurrent `state` is taken back before.
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
