"""Belady's optimal policy with bypass: no policy without prefetching can have more hits."""

import numpy as np

from sharpi.experts.native.native_policy import native_trace, policy_library
from sharpi.experts.policy_settings import Counts
from sharpi.experts.trace.trace_steps import Steps


def replay_optimum(steps: Steps, num_experts: int, slots: tuple[int, ...]) -> list[Counts]:
    """Returns each layer's counts for the optimal policy; `slots` (layers,) are slots by layer.

    It keeps the experts that are used again soonest.
    """
    trace = native_trace(steps, num_experts)
    per_layer = np.array(slots, np.int32)
    counts = np.empty((len(slots), len(Counts._fields)), np.int64)
    status = policy_library().sharpi_optimum_replay(
        trace, per_layer.ctypes.data, counts.ctypes.data
    )
    if status < 0:
        raise MemoryError("no memory to replay the trace")
    return [Counts(*row) for row in counts.tolist()]
