"""Room for what a prompt's tokens carry from layer to layer, where they pass layer by layer."""

from msgspec import Struct

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.request import TierRequest

_BUDGET_SHARE = 16  # of a GPU's memory for experts, the stash takes one part in so many
_FLOAT_BYTES = 4
_STREAMS = 5  # values as wide as the residual stream: it, a normed copy, and what a layer adds


class StashPlan(Struct, frozen=True):
    """`max_tokens` pass layer by layer at once, 0 where batches pass one after the other.

    Pages of `page_tokens` tokens, on the GPU and in page-locked RAM; bytes are all of either's.
    """

    max_tokens: int = 0
    page_tokens: int = 1
    gpu_pages: int = 0
    host_pages: int = 0
    gpu_bytes: int = 0
    host_bytes: int = 0

    @property
    def reason(self) -> str:
        """Why there is so much."""
        return f"what {self.max_tokens} tokens of a prompt carry from layer to layer"


NO_STASH = StashPlan()


def stash_room(model: ModelFacts, request: TierRequest, budget: int) -> int:
    """Bytes of `budget` that are worth spending on it, used or not: more where there are more."""
    page = request.stash_page_tokens * token_bytes(model)
    return int(_worth(model, request, budget) * request.stash_gpu_factor) + page


def prompt_stash(model: ModelFacts, request: TierRequest, budget: int) -> StashPlan:
    """What fits the room, where experts cross the bus for a prompt.

    For whole batches, and none for one alone: that is as quick as it is.
    """
    token = token_bytes(model)
    batches = _worth(model, request, budget) // (token * request.batch_size)
    if batches < 2:
        return NO_STASH
    tokens, page = batches * request.batch_size, request.stash_page_tokens
    if not page:
        return StashPlan(tokens, 1, tokens, 0, tokens * token, 0)
    gpu, host = (
        -(-int(tokens * factor) // page)
        for factor in (request.stash_gpu_factor, request.stash_cpu_factor)
    )
    return StashPlan(tokens, page, gpu, host, gpu * page * token, host * page * token)


def _worth(model: ModelFacts, request: TierRequest, budget: int) -> int:
    """Bytes for a whole context, or what a share of the budget is."""
    wanted = -(-request.context_size // request.batch_size)
    share = max(0, budget) // _BUDGET_SHARE
    return min(wanted * request.batch_size * token_bytes(model), share)


def token_bytes(model: ModelFacts) -> int:
    """Bytes that a token carries at most, with its ids, position and routes."""
    w = model.widths
    routes = w.num_moe_layers * w.num_experts_per_token + w.num_experts_per_token
    values = _STREAMS * w.hidden + 2 * w.rope + w.layer_inputs + routes + 3
    return _FLOAT_BYTES * values
