"""SlotSettings: how layers use a GPU whose memory does not fit all their experts."""

from collections.abc import Mapping

from msgspec import Struct

from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.launchers.slot_policy import PolicyRules


class SlotSettings(Struct, frozen=True):
    """`first`: what the slots of each layer begin with; a layer without is on the GPU as a whole.

    `num_staging`, `num_early`: experts that are on the GPU for one use, or early, without a slot.
    `num_streamed`: experts of each of two buffers. `is_reached`: whether the GPU can read host
    copies; not those of the layers `computed`, whose missed experts the host computes in any case.
    """

    rules: PolicyRules
    first: Mapping[int, FirstSlots]
    num_staging: int
    num_early: int
    num_streamed: int
    is_reached: bool = True
    computed: frozenset[int] = frozenset()

    def reaches(self, number: int) -> bool:
        """Says if the GPU can read the host copies of a layer's experts."""
        return self.is_reached and number not in self.computed
