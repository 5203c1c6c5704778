"""GrammarConstraint: one answer on its way through a grammar."""

from llguidance import LLMatcher

from sharpi.constraints.constraint import TokenMask
from sharpi.constraints.grammar_error import worded
from sharpi.constraints.mask import empty_mask
from sharpi.errors import GrammarError


class GrammarConstraint:
    """Wraps llguidance's matcher, which has no exceptions of its own but an error state."""

    def __init__(self, matcher: LLMatcher, num_tokens: int) -> None:
        self._matcher = matcher
        self._mask = empty_mask(num_tokens)
        self._is_fresh = False

    @property
    def may_end(self) -> bool:
        """Whether what came so far is a whole of the grammar."""
        return bool(self._matcher.is_accepting())

    @property
    def is_finished(self) -> bool:
        """Whether nothing but an end token may come."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> TokenMask:
        """The tokens that continue the grammar; raises GrammarError where that grew too complex."""
        if not self._is_fresh:
            self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
            self._check()
            self._is_fresh = True
        return self._mask

    def accept(self, token: int) -> None:
        """Goes on by a token; raises GrammarError for one that was not allowed."""
        self._matcher.consume_token(token)
        self._check()
        self._is_fresh = False

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(worded(self._matcher.get_error()))
