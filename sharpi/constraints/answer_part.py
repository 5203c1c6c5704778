"""Where in a model's output its answer begins, which is what a constraint is meant for."""

from sharpi.constraints.after_reasoning import AfterReasoning
from sharpi.constraints.after_trigger import AfterTrigger
from sharpi.constraints.constraint import Constraint, FiniteConstraint
from sharpi.constraints.prefixed import Prefixed
from sharpi.tokenizer.reasoning import find_markers, opens_reasoning
from sharpi.tokenizer.tokenizer import Tokenizer

_HARMONY_TURN = "<|start|>assistant"
_HARMONY_ANSWER = "<|channel|>final"
_HARMONY_TEXT = "<|message|>"


def within_answer(constraint: FiniteConstraint, tokenizer: Tokenizer, prompt: str) -> Constraint:
    """The constraint from where reasoning after `prompt` has closed, if there is any.

    In gpt-oss's harmony the answer is the text of the channel `final`.
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
