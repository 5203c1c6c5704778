"""StashPlan: memory for the hidden states of a prompt that is computed layer by layer.

Such a prompt runs all its batches through one layer before the next, so that the layer's experts
are copied to the GPU only once.
"""

from msgspec import Struct

from sharpi.tiers.facts import ModelFacts
from sharpi.tiers.settings import PlanRequest

_BUDGET_SHARE = 16  # the stash uses at most a 16th of a GPU's memory for experts
_FLOAT_BYTES = 4
# Arrays as wide as the residual stream: the stream, a normed copy, and a layer's results.
_STREAMS = 5


class StashPlan(Struct, frozen=True):
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
    """Returns the bytes of `budget` that are reserved for a stash.

    `budget`: the bytes of a GPU for experts.
    """
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
    share = max(0, budget) // _BUDGET_SHARE
    return min(wanted * request.settings.batch_size * token_bytes(model), share)


def token_bytes(model: ModelFacts) -> int:
    """Returns the bytes per token in the stash: hidden states, id, position and routes."""
    w = model.widths
    routes = w.num_moe_layers * w.num_experts_per_token + w.num_experts_per_token
    values = _STREAMS * w.hidden + 2 * w.rope + w.layer_inputs + routes + 3
    return _FLOAT_BYTES * values
