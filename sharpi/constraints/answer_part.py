"""Applies constraints to parts of a model's output: reasoning, answer, what follows a trigger."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from sharpi.constraints.constraint import (
    Constraint,
    FiniteConstraint,
    TokenMask,
    all_but,
    allows,
    mask_of,
)
from sharpi.constraints.grammars import Grammars
from sharpi.constraints.marker import MarkerMatcher
from sharpi.tokenizer.reasoning import ReasoningMarkers, find_markers, opens_reasoning
from sharpi.tokenizer.tokenizer import Tokenizer


class AfterReasoning:
    """Applies `constraint` to the tokens after the reasoning, or to all tokens without reasoning.

    `starts_inside`: the prompt ends within the reasoning. Within reasoning, end tokens are
    forbidden.
    """

    def __init__(
        self,
        constraint: Constraint,
        tokenizer: Tokenizer,
        markers: ReasoningMarkers,
        starts_inside: bool,
    ) -> None:
        self._constraint = constraint
        self._num_tokens = tokenizer.vocab_size
        self._closing = MarkerMatcher(tokenizer, markers.closing)
        self._endless = all_but(tokenizer.end_ids, self._num_tokens)
        self._stage: Literal["before", "opening", "inside", "after"] = "before"
        self._opening: Sequence[int] = MarkerMatcher(tokenizer, markers.opening).ids
        if starts_inside:
            self._stage = "inside"

    def allowed(self) -> TokenMask | None:
        """Returns the mask for the stage that the answer is in.

        Before the first token, the mask allows the first token of the opening marker and the tokens
        that the constraint allows. Within reasoning, the mask forbids end tokens and tokens with
        text after the closing marker. After the reasoning, the constraint's mask is returned.
        """
        if self._stage == "after":
            return self._constraint.allowed()
        if self._stage == "inside":
            return self._endless & self._closing.exact()
        marker = mask_of(self._opening[:1], self._num_tokens)
        mask = self._constraint.allowed() if self._stage == "before" else marker
        return None if mask is None else np.bitwise_or(mask, marker)

    def accept(self, token: int) -> None:
        if self._stage == "inside":
            self._stage = "after" if self._closing.feed(token) else "inside"
        elif self._stage == "opening" or (self._stage == "before" and self._opens(token)):
            self._opening = self._opening[1:]
            self._stage = "opening" if self._opening else "inside"
        else:
            self._stage = "after"
            self._constraint.accept(token)

    def _opens(self, token: int) -> bool:
        """Returns whether a token opens reasoning, and is not one that the constraint allows."""
        mask = self._constraint.allowed()
        is_answer = mask is not None and allows(mask, token)
        return token == self._opening[0] and not is_answer


class AfterTrigger:
    """Applies a new constraint from `make` after each `trigger`; other text is unconstrained.

    `includes_trigger`: the constraint's grammar also matches the trigger itself. `repeats`: after
    the constrained part, unconstrained text and further triggers may follow; if False, the answer
    ends with the first constrained part.
    """

    def __init__(
        self,
        make: Callable[[], FiniteConstraint],
        tokenizer: Tokenizer,
        trigger: str,
        *,
        includes_trigger: bool = False,
        repeats: bool = True,
    ) -> None:
        self._make = make
        self._trigger = MarkerMatcher(tokenizer, trigger)
        self._includes_trigger, self._repeats = includes_trigger, repeats
        self._inner: FiniteConstraint | None = None

    def allowed(self) -> TokenMask | None:
        """In unconstrained text, allows all tokens but those with text after a trigger."""
        if self._inner is not None:
            return self._inner.allowed()
        return self._trigger.exact()

    def accept(self, token: int) -> None:
        if self._inner is None:
            if self._trigger.feed(token):
                self._begin()
            return
        self._inner.accept(token)
        if self._repeats and self._inner.is_finished:
            self._inner = None

    def _begin(self) -> None:
        self._inner = self._make()
        for token in self._trigger.ids if self._includes_trigger else ():
            self._inner.accept(token)


HARMONY_TURN = "<|start|>assistant"


def harmony_reasoning(tokenizer: Tokenizer) -> str:
    """Returns a Lark expression of the messages of reasoning before an answer of gpt-oss."""
    channel, message, end, start = (
        f"<[{tokenizer.id_of(f'<|{name}|>')}]>" for name in ("channel", "message", "end", "start")
    )
    return f'({channel} "analysis" {message} /(?s:.*)/ {end} {start} "assistant")*'


def answer_opening(tokenizer: Tokenizer, markers: ReasoningMarkers | None, prompt: str) -> str:
    """Returns a Lark expression of the markers before an answer; "" without any, or after them."""
    texts = () if markers is None else markers.opens_answer
    if not texts or prompt.endswith(texts[-1]):
        return ""
    *optional, last = (
        " ".join(f"<[{id}]>" for id in tokenizer.encode(each, add_bos=False, parse_special=True))
        for each in texts
    )
    return "".join(f"({each})? " for each in optional) + last


def harmony_final(tokenizer: Tokenizer) -> str:
    """Returns a Lark expression of the header of an answer of gpt-oss."""
    return f'<[{tokenizer.id_of("<|channel|>")}]> "final" <[{tokenizer.id_of("<|message|>")}]>'


class InSequence:
    """Applies `first` until it is finished, then `second`."""

    def __init__(self, first: FiniteConstraint, second: FiniteConstraint) -> None:
        self._first, self._second = first, second

    def allowed(self) -> TokenMask | None:
        return self._current.allowed()

    def accept(self, token: int) -> None:
        self._current.accept(token)

    @property
    def _current(self) -> FiniteConstraint:
        return self._second if self._first.is_finished else self._first


def within_answer(
    constraint: FiniteConstraint,
    grammars: Grammars,
    prompt: str,
    markers: ReasoningMarkers | None = None,
) -> Constraint:
    """Returns a constraint of the answer after the reasoning, which `prompt` may have begun."""
    tokenizer = grammars.tokenizer
    if prompt.endswith(HARMONY_TURN) and tokenizer.id_of("<|message|>") is not None:
        head = f"start: {harmony_reasoning(tokenizer)} {harmony_final(tokenizer)}"
        return InSequence(grammars.lark(head), constraint)
    markers = markers or find_markers(tokenizer)
    if markers is None:
        return constraint
    opening = answer_opening(tokenizer, markers, prompt)
    answer = InSequence(grammars.lark(f"start: {opening}"), constraint) if opening else constraint
    return AfterReasoning(answer, tokenizer, markers, opens_reasoning(prompt, markers))


class ConstraintIntersection:
    """Allows the tokens that both constraints allow."""

    def __init__(self, first: Constraint, second: Constraint) -> None:
        self._first, self._second = first, second

    def allowed(self) -> TokenMask | None:
        first, second = self._first.allowed(), self._second.allowed()
        if first is None or second is None:
            return second if first is None else first
        return first & second

    def accept(self, token: int) -> None:
        self._first.accept(token)
        self._second.accept(token)


class ReasoningBudget:
    """Allows all tokens until the reasoning has `budget` tokens, then forces its closing marker.

    Only reasoning at the beginning of an answer is counted. `starts_inside`: the prompt ends within
    the reasoning.
    """

    def __init__(
        self, tokenizer: Tokenizer, markers: ReasoningMarkers, budget: int, starts_inside: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._opening = markers.opening.encode()
        self._closing = MarkerMatcher(tokenizer, markers.closing)
        self._stage: Literal["before", "inside", "after"] = "inside" if starts_inside else "before"
        self._left = budget
        self._start = b""
        self._forced: list[int] = []

    def allowed(self) -> TokenMask | None:
        """Returns the mask of the closing marker's next token if the budget is spent, else None."""
        if self._stage != "inside" or self._left > 0:
            return None
        if not self._forced:
            self._forced = list(self._closing.ids)
        return mask_of(self._forced[:1], self._tokenizer.vocab_size)

    def accept(self, token: int) -> None:
        """Advances the state by one token, and counts it if it is part of the reasoning."""
        if self._stage == "before":
            self._begin(self._tokenizer.token_bytes(token))
        elif self._stage == "inside":
            self._left -= 1
            self._forced = self._forced[1:]
            if self._closing.feed(token):
                self._stage = "after"

    def _begin(self, data: bytes) -> None:
        """Reads bytes at the beginning of the output, to find out whether they open reasoning."""
        self._start = (self._start + data).lstrip()
        if self._start.startswith(self._opening):
            self._stage = "inside"
        elif not self._opening.startswith(self._start):
            self._stage = "after"
