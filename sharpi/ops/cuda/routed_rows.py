"""RoutedRows: limits the rows for routed tokens; a pass that exceeds the limit is repeated."""

from collections.abc import Callable

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.gpu_states import GpuStates
from sharpi.ops.cuda.pass_counts import PassCounts
from sharpi.ops.routed_capacity import experts_at_once, rows_of_batch


class RoutedRows:
    """Limits the rows to `factor` times tokens * experts per token, without waiting within a pass.

    Experts compute in groups. A group with more routed tokens than rows drops the rest and sets a
    flag, which the host reads after the pass. The pass is then repeated, and each group takes only
    so many tokens at a time that they fit in any case.
    """

    def __init__(
        self, device: Device, factor: float, states: GpuStates, counts: PassCounts
    ) -> None:
        self._device, self._factor, self._states, self._counts = device, factor, states, counts
        self.is_over = Span(device.allocate(4), 0, 4)

    def rows(self, tokens: int, used: int) -> int:
        """Returns the rows for a batch of `tokens`."""
        return rows_of_batch(self._factor, tokens, used)

    def experts_at_once(self, num_experts: int) -> int:
        """Returns the number of experts in a group."""
        return experts_at_once(self._factor, num_experts)

    def guard(self, run: Callable[[bool], None], state: int) -> None:
        """Calls run(False), then run(True) if a group had more routed tokens than rows.

        The first run drops the excess. The second one takes fewer tokens at a time and drops none.
        It overwrites keys and values; the recurrent `state` is restored before it.
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
