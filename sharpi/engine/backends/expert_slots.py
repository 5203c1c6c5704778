"""ExpertSlots: slots in RAM, the policy that fills them, and the feed that gives steps experts."""

from collections.abc import Sequence

from msgspec.structs import replace

from sharpi.experts.native.feed import ExpertFeed
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore, StoreSettings
from sharpi.experts.native.store_abi import StoreLayout
from sharpi.experts.policy_settings import PolicySettings


class ExpertSlots:
    """The `policy`, `store` and `feed` of the slots in RAM; a token uses `used` experts of a layer.

    `settings` has the most slots of each layer. `open` raises ModelFileError if a file cannot be
    opened, MemoryError if the slots do not fit.
    """

    policy: NativePolicy
    store: ExpertStore
    feed: ExpertFeed

    def __init__(
        self, layout: StoreLayout, settings: StoreSettings, used: int, predictor: str | None = None
    ) -> None:
        self._layout, self._settings = layout, settings
        self._used, self._predictor = used, predictor

    def open(self, settings: PolicySettings, slots: Sequence[int]) -> None:
        """Allocates `slots`, and starts to read the experts that the policy puts there first."""
        self.policy = NativePolicy(settings)
        try:
            for layer, count in enumerate(slots):
                if count < settings.slots[layer]:
                    self.policy.resize(layer, count)
            own = replace(self._settings, slots=tuple(slots))
            self.store = ExpertStore(self._layout, own, self.policy)
        except BaseException:
            self.policy.close()
            raise
        self.feed = ExpertFeed(self.store, self._predictor, self._used)
        self.store.start()

    def close(self) -> None:
        """Ends the reads and frees the slots."""
        self.feed.close()
        self.store.close()
        self.policy.close()
