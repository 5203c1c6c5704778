"""Divides memory for experts: slots beside a KV cache that may grow, staging buffers, a stash.

There are enough staging buffers that no load overwrites an expert in use. The stash holds the
hidden states of a prompt that is computed layer by layer: all its batches run through one layer
before the next, so that the layer's experts are copied to the GPU only once.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.tiers.facts import LayerFacts, ModelFacts
from sharpi.tiers.settings import PlanRequest

# There are buffers for the experts of two tokens in a layer: those in use, and those being read.
TOKENS = 2
_CHECKED_TOKENS = 2  # with checks of drafts, buffers for the experts of two more tokens
_CHECKED_SHARE = 8  # these use at most an eighth of the memory for slots
_STREAMED_SHARE = 4  # each of a GPU's two stream buffers holds a quarter of a layer's experts
_STREAMS_SHARE = 8  # both together use at most an eighth of a GPU's memory for experts


def num_staging(model: ModelFacts) -> int:
    """Returns the least number of staging buffers of all layers, each for the largest expert."""
    return TOKENS * model.num_experts_per_token


def num_for_checks(model: ModelFacts, layers: Iterable[LayerFacts], free_bytes: int) -> int:
    """Returns the additional buffers for checks of drafts; 0 if `free_bytes` are few."""
    count = _CHECKED_TOKENS * model.num_experts_per_token
    return count if _CHECKED_SHARE * count * _largest(layers) <= free_bytes else 0


def staging_bytes(model: ModelFacts, layers: Iterable[LayerFacts], num_further: int = 0) -> int:
    """Returns the bytes of the staging buffers for these layers; 0 without experts.

    `num_further`: buffers in addition to those of `num_staging`. The buffers of an MTP head, which
    are separate, are included.
    """
    return ((1 + model.has_head) * num_staging(model) + num_further) * _largest(layers)


def staging_reason(model: ModelFacts, num_further: int = 0) -> str:
    """Returns the text in the plan that explains the number of staging buffers."""
    used = model.num_experts_per_token
    reason = f"{used} experts in use without a slot, and {used} read in the meantime"
    return f"{reason}; {num_further} more read ahead for drafts" if num_further else reason


class GpuStaging(Struct, frozen=True):
    """The staging buffers of a GPU by purpose, in experts of the largest size."""

    num_missed: int = 0  # missed experts of one token
    num_early: int = 0  # predicted experts, for two layers
    num_streamed: int = 0  # experts in each of the two buffers that stream a prompt's experts

    @property
    def num_experts(self) -> int:
        """The number of experts that all staging buffers hold together."""
        return self.num_missed + 2 * self.num_early + 2 * self.num_streamed

    @property
    def reason(self) -> str:
        """The text in the plan that explains the size of the staging buffers."""
        return (
            f"{self.num_missed} missed experts of a token, {2 * self.num_early} predicted,"
            f" {2 * self.num_streamed} streamed for a prompt"
        )


NO_STAGING = GpuStaging()


def gpu_staging(model: ModelFacts, layers: Collection[LayerFacts], budget: int) -> GpuStaging:
    """Plans the staging buffers of a GPU; `budget`: bytes for slots and staging together."""
    if not layers:
        return NO_STAGING
    used, most = model.num_experts_per_token, max(layer.num_experts for layer in layers)
    wanted = max(used, -(-most // _STREAMED_SHARE))
    fitting = max(0, budget) // _STREAMS_SHARE // (2 * max(1, _largest(layers)))
    return GpuStaging(used, -(-used // 2), min(wanted, fitting))


def gpu_staging_bytes(staging: GpuStaging, layers: Iterable[LayerFacts]) -> int:
    """Returns the bytes of a GPU's staging buffers, if it has slots for these layers."""
    return staging.num_experts * _largest(layers)


def _largest(layers: Iterable[LayerFacts]) -> int:
    return max((layer.slot_bytes for layer in layers), default=0)


class SlotDemand(NamedTuple):
    """The bytes of one slot of a layer, and the most slots that the layer can use."""

    slot_bytes: int
    most: int


def grant(demands: Mapping[int, SlotDemand], budget: int) -> dict[int, int]:
    """Returns the number of slots by layer index; `budget` is in bytes.

    The order in which slots are added does not depend on the budget. So no layer has fewer slots
    with a larger budget.
    """
    granted = dict.fromkeys(demands, 0)
    for index in _slot_order(demands):
        budget -= demands[index].slot_bytes
        if budget < 0:
            break
        granted[index] += 1
    return granted


def _slot_order(demands: Mapping[int, SlotDemand]) -> Iterable[int]:
    for number in range(max((demand.most for demand in demands.values()), default=0)):
        yield from (index for index, demand in demands.items() if number < demand.most)


LEAST_PAGES = 2048 // PAGE_POSITIONS
_FIRST_SHARE = 4  # the cache begins with a quarter of all pages


class KvGrowth(Struct, frozen=True, rename={"demands": "wants"}):
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


TOKENS_WORTH_OF_SLOTS = 2


def recommended_slots(layer: LayerFacts, model: ModelFacts) -> int:
    """Returns a layer's recommended slots: one token then does not evict another's."""
    return min(TOKENS_WORTH_OF_SLOTS * model.num_experts_per_token, layer.num_experts)


def slot_demands(layers: Mapping[int, LayerFacts], limit: int | None) -> dict[int, SlotDemand]:
    """Returns the slots that layers can use, at most `limit`; none if their size is unknown."""
    return {
        i: SlotDemand(
            layer.slot_bytes,
            0 if layer.expert_bytes is None else min(limit or layer.num_experts, layer.num_experts),
        )
        for i, layer in layers.items()
    }


def slots_bytes(demands: Mapping[int, SlotDemand], slots: Mapping[int, int]) -> int:
    """Returns the bytes of these numbers of slots."""
    return sum(demands[i].slot_bytes * count for i, count in slots.items())


_STASH_SHARE = 16  # the stash uses at most a 16th of a GPU's memory for experts
_FLOAT_BYTES = 4
# Arrays as wide as the residual stream: the stream, a normed copy, and a layer's results.
_STREAMS = 5


class StashPlan(Struct, frozen=True, rename={"gpu_pages": "card_pages", "gpu_bytes": "card_bytes"}):
    """The numbers and sizes of the stash's pages, on the GPU and in page-locked RAM."""

    max_tokens: int = 0  # tokens of a prompt; 0 if prompts are not computed layer by layer
    page_tokens: int = 1  # tokens per page
    gpu_pages: int = 0
    host_pages: int = 0
    gpu_bytes: int = 0  # bytes of all pages on the GPU
    host_bytes: int = 0  # bytes of all pages in RAM

    @property
    def reason(self) -> str:
        """The text in the plan that explains the size of the stash."""
        return f"what {self.max_tokens} tokens of a prompt carry from layer to layer"


NO_STASH = StashPlan()


def max_stash_bytes(model: ModelFacts, request: PlanRequest, budget: int) -> int:
    """Returns the bytes for a stash, of the `budget` bytes of a GPU for experts."""
    experts, worth = request.config.experts, _worth(model, request, budget)
    if not experts.paged_stash:
        return worth
    return int(worth * experts.stash_gpu_factor) + experts.stash_page_tokens * token_bytes(model)


def prompt_stash(model: ModelFacts, request: PlanRequest, budget: int) -> StashPlan:
    """Plans the stash, for prompts whose experts are copied over the bus.

    It holds complete batches, at least two, as with a single one nothing would be gained. `budget`:
    the bytes of a GPU for experts.
    """
    token = token_bytes(model)
    batches = _worth(model, request, budget) // (token * request.settings.batch_size)
    if batches < 2:
        return NO_STASH
    tokens, experts = batches * request.settings.batch_size, request.config.experts
    page = experts.stash_page_tokens
    if not experts.paged_stash:
        return StashPlan(tokens, 1, tokens, 0, tokens * token, 0)
    gpu, host = (
        -(-int(tokens * factor) // page)
        for factor in (experts.stash_gpu_factor, experts.stash_cpu_factor)
    )
    return StashPlan(tokens, page, gpu, host, gpu * page * token, host * page * token)


def _worth(model: ModelFacts, request: PlanRequest, budget: int) -> int:
    """Returns the bytes for all tokens of a context, but at most a fixed share of the budget."""
    wanted = -(-request.settings.context_size // request.settings.batch_size)
    share = max(0, budget) // _STASH_SHARE
    return min(wanted * request.settings.batch_size * token_bytes(model), share)


def token_bytes(model: ModelFacts) -> int:
    """Returns the bytes per token in the stash: hidden states, id, position and routes."""
    w = model.widths
    routes = w.num_moe_layers * w.num_experts_per_token + w.num_experts_per_token
    values = _STREAMS * w.hidden + 2 * w.rope + w.layer_inputs + routes + 3
    return _FLOAT_BYTES * values
