"""Recorder: records a model's step as native operations, while the model's code runs once.

The modules `recorder_*` each record one kind of operations. The result is a `Program`, which is
replayed for every step.
"""

from sharpi.ops.cpu.kv_cache import KvCache
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cpu.recorder_attention import AttentionRecorder
from sharpi.ops.cpu.recorder_experts import ExpertsRecorder
from sharpi.ops.cpu.recorder_recurrent import RecurrentRecorder
from sharpi.ops.interface import ExpertSource
from sharpi.ops.state_layout import StateLayout


class Recorder(ExpertsRecorder, AttentionRecorder, RecurrentRecorder):
    """Implements all of `Ops` by recording native operations; `finish` returns the program."""

    def __init__(
        self,
        limits: ProgramLimits,
        cache: KvCache,
        source: ExpertSource | None = None,
        *,
        keeps_router_logits: bool = False,
        states: StateLayout | None = None,
    ) -> None:
        super().__init__(limits)
        self._cache = cache
        self._source = source
        self._keeps_router_logits = keeps_router_logits
        self._states = states or StateLayout(())
