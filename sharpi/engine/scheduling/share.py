"""Share: a request's tokens in a step."""

from collections.abc import Sequence
from typing import NamedTuple

from sharpi.engine.backends.model_part import Segment
from sharpi.engine.scheduling.request import Request


class Share(NamedTuple):
    """A request's tokens in a step; `is_prompt` unless it decodes.

    A decoding request may have `drafts`, to be checked after its newest token.
    """

    request: Request
    num_tokens: int
    is_prompt: bool
    drafts: tuple[int, ...] = ()

    def segment(self) -> Segment:
        """Builds the request's part of the step."""
        if self.drafts:
            return self.request.checking_segment(self.drafts)
        return self.request.segment(self.num_tokens)


def takes_largest(shares: Sequence[Share]) -> bool:
    """True if the step is one greedy request's next token, so that no logits are copied back.

    A GPU's recorded step finds the largest logit of one output only. With several requests in a
    step, all logits are copied back.
    """
    request, num_tokens, is_prompt, drafts = shares[0]
    is_alone = len(shares) == num_tokens == 1 and not is_prompt and not drafts
    return is_alone and request.generation_state.takes_largest
