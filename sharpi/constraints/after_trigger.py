"""AfterTrigger constrains text only after a trigger, such as the beginning of a tool call."""

from collections.abc import Callable

from sharpi.constraints.constraint import FiniteConstraint, TokenMask
from sharpi.constraints.marker import MarkerWatch
from sharpi.constraints.mask import all_but
from sharpi.tokenizer.tokenizer import Tokenizer


class AfterTrigger:
    """Applies a new constraint from `make` after each `trigger`; other text is unconstrained.

    `includes_trigger`: the constraint's grammar also matches the trigger itself. `is_required`: no
    end token is allowed before the first trigger. `repeats`: after the constrained part,
    unconstrained text and further triggers may follow; if False, the answer ends with the first
    constrained part.
    """

    def __init__(
        self,
        make: Callable[[], FiniteConstraint],
        tokenizer: Tokenizer,
        trigger: str,
        *,
        includes_trigger: bool = False,
        is_required: bool = False,
        repeats: bool = True,
    ) -> None:
        self._make, self._tokenizer = make, tokenizer
        self._trigger = MarkerWatch(tokenizer, trigger)
        self._includes_trigger, self._repeats = includes_trigger, repeats
        ends = tokenizer.end_ids if is_required else ()
        self._free = all_but(ends, tokenizer.vocab_size)
        self._inner: FiniteConstraint | None = None

    def allowed(self) -> TokenMask | None:
        """Returns the mask of the tokens that may come next.

        After a trigger, the constraint's mask is returned. In unconstrained text, the mask allows
        all tokens but those with text after a trigger.
        """
        if self._inner is not None:
            return self._inner.allowed()
        return self._free & self._trigger.exact()

    def accept(self, token: int) -> None:
        """Advances the state by one token of unconstrained text or of the constrained part."""
        if self._inner is None:
            if self._trigger.feed(token):
                self._begin()
            return
        self._inner.accept(token)
        if self._repeats and self._inner.is_finished:
            self._inner = None

    def _begin(self) -> None:
        self._inner = self._make()
        self._free = all_but((), self._tokenizer.vocab_size)
        for token in self._trigger.ids if self._includes_trigger else ():
            self._inner.accept(token)
