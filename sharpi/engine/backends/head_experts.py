"""The experts of an MTP head in a model that exceeds RAM: some in slots, the others on disk."""

from msgspec.structs import replace

from sharpi.experts.native.feed import ExpertFeed
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore, StoreSettings
from sharpi.experts.native.store_layout import LayerLayout, read_layout
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.tiers.expert_memory import TOKENS
from sharpi.tiers.plan import TierPlan


class HeadExperts:
    """The slots of the MTP head's layer, as planned; `close` ends the reads.

    Raises ModelFileError if a file cannot be opened, MemoryError if the slots do not fit.
    """

    def __init__(self, file: GgufFile, model: ModelConfig, plan: TierPlan) -> None:
        layer, used = model.num_layers, model.num_experts_per_token
        whole = read_layout(file, layer + 1)
        layout = replace(whole, layers=(*(LayerLayout(),) * layer, whole.layers[layer]))
        slots = (*(0,) * layer, plan.layers[layer].ram_slots)
        policy = PolicySettings(PolicyKind.SLRU, model.num_experts, used, slots)
        self._policy = NativePolicy(policy)
        settings = StoreSettings(slots, TOKENS * used, used * layout.largest_slot)
        self._store = ExpertStore(layout, settings, self._policy)
        self.feed = ExpertFeed(self._store, None, used)
        self._store.start()

    def begin_step(self, num_tokens: int) -> None:
        """Begins a step of the head."""
        self.feed.begin_step(may_predict=False, is_prompt=num_tokens > 1)

    def end_step(self) -> None:
        """Ends a step; raises ModelFileError if an expert could not be read."""
        self.feed.check_step()

    def close(self) -> None:
        """Ends the reads and frees the slots."""
        self.feed.close()
        self._store.close()
        self._policy.close()
