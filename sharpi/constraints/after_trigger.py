"""AfterTrigger leaves text free until a trigger appears, such as the start of a tool call."""

from collections.abc import Callable

from sharpi.constraints.constraint import FiniteConstraint, TokenMask
from sharpi.constraints.marker import MarkerWatch
from sharpi.constraints.mask import all_but
from sharpi.tokenizer.tokenizer import Tokenizer


class AfterTrigger:
    """Applies a new constraint from `make` after each `trigger`; text is free again where it ends.

    `includes_trigger`: the grammar also describes the trigger. `is_required`: the answer cannot end
    before the first trigger. `repeats`: after the grammar, free text and further triggers may
    follow; if False, the answer ends with the first grammar.
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

        After a trigger it is the grammar's. In free text it has all tokens that do not extend
        beyond a trigger.
        """
        if self._inner is not None:
            return self._inner.allowed()
        return self._free & self._trigger.exact()

    def accept(self, token: int) -> None:
        """Advances by a token of text or of the grammar."""
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
