"""Finds the beginning of the answer in a model's output: constraints apply only to the answer."""

from collections.abc import Sequence

from sharpi.constraints.after_reasoning import AfterReasoning
from sharpi.constraints.after_trigger import AfterTrigger
from sharpi.constraints.constraint import Constraint, FiniteConstraint, TokenMask
from sharpi.constraints.mask import mask_of
from sharpi.tokenizer.reasoning import find_markers, opens_reasoning
from sharpi.tokenizer.tokenizer import Tokenizer

_HARMONY_TURN = "<|start|>assistant"
_HARMONY_ANSWER = "<|channel|>final"
_HARMONY_TEXT = "<|message|>"


class Prefixed:
    """Forces the tokens of `prefix` in order, then applies `constraint`."""

    def __init__(
        self, prefix: Sequence[int], constraint: FiniteConstraint, num_tokens: int
    ) -> None:
        self._prefix, self._constraint = list(prefix), constraint
        self._num_tokens = num_tokens

    @property
    def is_finished(self) -> bool:
        """True if only an end token may follow."""
        return not self._prefix and self._constraint.is_finished

    def allowed(self) -> TokenMask | None:
        """Returns the mask of the prefix's next token; after the prefix, the constraint's mask."""
        if self._prefix:
            return mask_of(self._prefix[:1], self._num_tokens)
        return self._constraint.allowed()

    def accept(self, token: int) -> None:
        """Advances by one token: the prefix first, then the constraint."""
        if self._prefix:
            self._prefix.pop(0)
        else:
            self._constraint.accept(token)


def within_answer(constraint: FiniteConstraint, tokenizer: Tokenizer, prompt: str) -> Constraint:
    """Returns a constraint that applies `constraint` to the answer and not to the reasoning.

    The end of `prompt` shows whether the reasoning has begun. In gpt-oss's harmony format, the
    answer is the text of the channel `final`.
    """
    text = tokenizer.id_of(_HARMONY_TEXT)
    if text is not None and prompt.endswith(_HARMONY_TURN):
        inner = Prefixed([text], constraint, tokenizer.vocab_size)
        return AfterTrigger(
            lambda: inner, tokenizer, _HARMONY_ANSWER, is_required=True, repeats=False
        )
    markers = find_markers(tokenizer)
    if markers is None:
        return constraint
    return AfterReasoning(constraint, tokenizer, markers, opens_reasoning(prompt, markers))
