"""KvGrowth: a GPU's KV cache that begins small and grows into the memory of expert slots."""

from collections.abc import Mapping

from msgspec import Struct

from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.tiers.slot_grants import SlotDemand, grant

LEAST_PAGES = 2048 // PAGE_POSITIONS
_FIRST_SHARE = 4  # the cache begins with a quarter of all pages


class KvGrowth(Struct, frozen=True):
    """The sizes of a growing KV cache, and of the slots that it displaces."""

    first_pages: int  # pages allocated at the start
    last_bytes: int  # bytes for slots once the cache has its full size
    demands: Mapping[int, SlotDemand]  # by layer, the slots wanted at the start

    def slots_beside(self, freed_bytes: int) -> dict[int, int]:
        """Returns the slots by layer while the cache is `freed_bytes` below its full size."""
        return grant(self.demands, self.last_bytes + freed_bytes)

    def note(self, num_pages: int) -> str:
        """Returns a note for the user; the full cache has `num_pages` pages."""
        now = max(demand.most for demand in self.demands.values())
        last = max(self.slots_beside(0).values())
        first, most = self.first_pages * PAGE_POSITIONS, num_pages * PAGE_POSITIONS
        return (
            f"the KV cache begins with {first:,} of {most:,} positions; growing further takes"
            f" slots back, up to {now - last} of the {now} that a layer has"
        )


def first_pages(num_pages: int) -> int:
    """Returns the number of pages at the start of a cache that grows to `num_pages`."""
    return min(num_pages, max(LEAST_PAGES, -(-num_pages // _FIRST_SHARE)))
