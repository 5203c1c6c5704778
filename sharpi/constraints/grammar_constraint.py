"""GrammarConstraint follows one answer through a grammar, with llguidance's matcher."""

from collections.abc import Sequence

from llguidance import LLMatcher

from sharpi.constraints.constraint import TokenMask, empty_mask
from sharpi.constraints.trial import short_message
from sharpi.errors import GrammarError

MAX_DIGITS = 40  # in a row; integers of 128 bits have 39
_DIGITS = frozenset(b"0123456789")
_QUOTE, _BACKSLASH = b'"\\'


class DigitLimit:
    """Follows JSON text, and forbids more digits outside of strings after MAX_DIGITS in a row.

    `tokens`: the bytes of each token. `digits`: the mask of the tokens that begin with a digit.
    """

    def __init__(self, tokens: Sequence[bytes], digits: TokenMask) -> None:
        self._tokens, self._digits = tokens, digits
        self._num_digits = 0
        self._in_string = self._is_escaped = False

    def limit(self, mask: TokenMask) -> None:
        """Removes tokens that begin with a digit from a mask, unless no others are in it."""
        if self._num_digits >= MAX_DIGITS and (mask & ~self._digits).any():
            mask &= ~self._digits

    def accept(self, token: int) -> None:
        """Reads the text of the next token."""
        for byte in self._tokens[token]:
            is_digit = byte in _DIGITS and not self._in_string
            self._num_digits = self._num_digits + 1 if is_digit else 0
            if byte == _QUOTE and not self._is_escaped:
                self._in_string = not self._in_string
            self._is_escaped = self._in_string and byte == _BACKSLASH and not self._is_escaped


class GrammarConstraint:
    """Wraps llguidance's matcher and raises GrammarError where the matcher sets an error state.

    `unenforced`: the keywords of the JSON schema that the answer need not satisfy.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        num_tokens: int,
        *,
        unenforced: tuple[str, ...] = (),
        digits: DigitLimit | None = None,
    ) -> None:
        self._matcher, self._digits = matcher, digits
        self.unenforced = unenforced
        self._mask = empty_mask(num_tokens)
        self._is_fresh = False

    @property
    def note(self) -> str:
        """Names what is not enforced, on one line; empty if everything is."""
        names = ", ".join(self.unenforced)
        return f"not enforced in the JSON schema: {names}" if names else ""

    @property
    def may_end(self) -> bool:
        """True if the text so far is a sentence of the grammar, so that the answer may end."""
        return bool(self._matcher.is_accepting())

    @property
    def is_finished(self) -> bool:
        """True if only an end token may follow."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> TokenMask:
        """Returns the mask of tokens that continue the grammar; raises GrammarError at limits."""
        if not self._is_fresh:
            self._matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
            self._check()
            if self._digits is not None:
                self._digits.limit(self._mask)
            self._is_fresh = True
        return self._mask

    def accept(self, token: int) -> None:
        """Advances the state by one token; raises GrammarError if it was not allowed."""
        self._matcher.consume_token(token)
        self._check()
        if self._digits is not None:
            self._digits.accept(token)
        self._is_fresh = False

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarError(short_message(self._matcher.get_error()))
