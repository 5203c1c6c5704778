"""RoutedRows: limits the buffer rows for routed tokens, and repeats passes that need more rows."""

from collections.abc import Callable

import numpy as np

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.ops.cuda.gpu_states import GpuStates
from sharpi.ops.cuda.pass_counts import PassCounts
from sharpi.ops.routed_capacity import experts_at_once, rows_of_batch


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
