"""SlotSettings: the settings of layers whose experts do not all fit in the GPU's memory."""

from collections.abc import Mapping

from msgspec import Struct

from sharpi.ops.cuda.expert_slots.slot_state import FirstSlots
from sharpi.ops.cuda.launchers.experts.slot_policy import PolicyRules


class SlotSettings(Struct, frozen=True):
    """The slots of all slotted layers; the GPU holds all experts of the other layers."""

    rules: PolicyRules
    first: Mapping[int, FirstSlots]  # the first experts, by layer number
    num_staging: int  # staging buffers, which hold experts for one use
    num_early: int  # early slots, to which predicted experts are prefetched
    num_streamed: int  # experts in each of the two buffers that stream experts for batches
    reads_ram: bool = True  # the GPU can read host copies
    predictor: str = "router"  # predicts the experts to prefetch: router, last-layer or frequency
    computed: frozenset[int] = frozenset()  # layers whose missed experts the CPU always computes

    def reads_host_copies(self, number: int) -> bool:
        """Returns True if the GPU can read the host copies of a layer's experts."""
        return self.reads_ram and number not in self.computed
