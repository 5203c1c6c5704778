"""GpuGrowth: grows a GPU's KV cache on demand, into memory freed from expert slots."""

from collections.abc import Iterable, Mapping

from sharpi.engine.backends.model_part import Segment
from sharpi.errors import DeviceError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cuda.expert_slots.slotted_layers import SlottedLayers
from sharpi.ops.cuda.kv_cache import GpuKvCache
from sharpi.tiers.plan import KvGrowth


class GpuGrowth:
    """Grows the KV cache to at most `num_pages`; appends to `notes` how many slots are left."""

    def __init__(
        self,
        growth: KvGrowth,
        cache: GpuKvCache,
        layers: SlottedLayers,
        num_pages: int,
        notes: list[str],
    ) -> None:
        self._growth, self._cache, self._layers = growth, cache, layers
        self._num_pages, self._notes = num_pages, notes

    def lacks(self, num_pages: int) -> bool:
        """Returns True if the KV cache has fewer pages than `num_pages`."""
        return num_pages > self._cache.num_pages

    def grow(self, num_pages: int) -> None:
        """Grows the KV cache to `num_pages`, or to twice its size if that is more.

        Call it between steps, after forgetting captured graphs, which hold memory. Raises
        DeviceError if there is no room even without slots, as when other programs have taken the
        GPU's memory. The KV cache keeps its contents in that case.
        """
        cache = self._cache
        target = min(self._num_pages, max(num_pages, 2 * cache.num_pages))
        freed = cache.bytes_of(self._num_pages) - cache.bytes_of(target)
        before = self._num_slots
        self._grow(target, self._growth.slots_beside(freed))
        self._notes.append(
            f"the KV cache has grown to {target * PAGE_POSITIONS:,} positions: {self._num_slots} of"
            f" {before} slots per layer are left"
        )

    @property
    def _num_slots(self) -> int:
        return max(self._layers.num_slots(number) for number in self._layers.numbers)

    def _grow(self, num_pages: int, slots: Mapping[int, int]) -> None:
        """Grows the KV cache; if it does not fit, halves the number of slots until it does."""
        slots = {number: slots[number] for number in self._layers.numbers}
        self._layers.shrink(slots)
        while True:
            try:
                return self._cache.grow(num_pages)
            except DeviceError:
                if not any(slots.values()):
                    raise
            slots = {number: count // 2 for number, count in slots.items()}
            self._layers.shrink(slots)


def pages_of(segments: Iterable[Segment]) -> int:
    """Returns the least size of a KV cache, in pages, that includes all pages of these segments."""
    return 1 + max((int(each.pages.max()) for each in segments if each.pages.size), default=-1)
