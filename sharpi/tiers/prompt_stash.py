"""StashPlan: room for a prompt's values between layers, while it is computed layer by layer."""

from msgspec import Struct

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.request import TierRequest

_BUDGET_SHARE = 16  # the stash takes at most one part in 16 of a GPU's memory for experts
_FLOAT_BYTES = 4
# Arrays as wide as the residual stream: the stream, a normed copy, and a layer's results.
_STREAMS = 5


class StashPlan(Struct, frozen=True):
    """Pages on the GPU and in page-locked RAM for prompts that are computed layer by layer."""

    max_tokens: int = 0  # tokens of a prompt; 0: batches run one after the other
    page_tokens: int = 1  # tokens per page
    gpu_pages: int = 0
    host_pages: int = 0
    gpu_bytes: int = 0  # bytes of all pages on the GPU
    host_bytes: int = 0  # bytes of all pages in RAM

    @property
    def reason(self) -> str:
        """The reason for its size."""
        return f"what {self.max_tokens} tokens of a prompt carry from layer to layer"


NO_STASH = StashPlan()


def stash_room(model: ModelFacts, request: TierRequest, budget: int) -> int:
    """Returns the bytes of `budget` that are set aside for a stash."""
    page = request.stash_page_tokens * token_bytes(model)
    return int(_worth(model, request, budget) * request.stash_gpu_factor) + page


def prompt_stash(model: ModelFacts, request: TierRequest, budget: int) -> StashPlan:
    """Plans the stash, for prompts whose experts cross the bus.

    It holds whole batches, at least two: with a single one nothing would be gained.
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
    """Returns the bytes that a whole context needs, at most a fixed share of the budget."""
    wanted = -(-request.context_size // request.batch_size)
    share = max(0, budget) // _BUDGET_SHARE
    return min(wanted * request.batch_size * token_bytes(model), share)


def token_bytes(model: ModelFacts) -> int:
    """Returns the most bytes of a token's values between layers, with ids, position and routes."""
    w = model.widths
    routes = w.num_moe_layers * w.num_experts_per_token + w.num_experts_per_token
    values = _STREAMS * w.hidden + 2 * w.rope + w.layer_inputs + routes + 3
    return _FLOAT_BYTES * values
