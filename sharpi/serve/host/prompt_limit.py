"""PromptLimit tokenizes prompts within bounds: one that cannot fit the context is refused unread.

Tokenizing takes hundreds of bytes of memory for each byte of text. So a text with more bytes than
the context's tokens could spell is refused by its length, and of a long one the tokens are counted
in slices before it is tokenized as a whole.
"""

from sharpi.errors import ContextFullError
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.units import format_bytes

_SLICE = 1 << 16  # characters
_SLACK = 64  # tokens that a cut between two slices may add

_MORE_BYTES = 1 << 20  # of a body, for schemas, tools and names
_ESCAPE = 3  # bytes of JSON for a byte of text, where everything is escaped as \\uXXXX
MOST_BODY_BYTES = 32 << 20


def max_body_bytes(tokenizer: Tokenizer, context_size: int) -> int:
    """Returns the most bytes that a request for this context can need."""
    text = context_size * tokenizer.longest_token * _ESCAPE
    return min(text + _MORE_BYTES, MOST_BODY_BYTES)


class PromptLimit:
    """The limit of one model; `context_size` is None where prompts are shifted to fit."""

    def __init__(self, tokenizer: Tokenizer, context_size: int, shifts: bool = False) -> None:
        self.tokenizer = tokenizer
        self._context_size, self._shifts = context_size, shifts

    @property
    def max_characters(self) -> int:
        """The most characters that the tokens of a context can spell."""
        return self._context_size * self.tokenizer.longest_token

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool = True, mark: str = ""
    ) -> list[int]:
        """Returns the ids of a text; raises ContextFullError if they cannot fit the context."""
        self.check(text)
        return self.tokenizer.encode(text, add_bos=add_bos, parse_special=parse_special, mark=mark)

    def check(self, text: str) -> None:
        """Raises ContextFullError for a text that is certainly too long."""
        if len(text) > self.max_characters:
            raise self._too_long(f"{format_bytes(len(text))} of text")
        if len(text) <= 4 * _SLICE or self._shifts:
            return
        count = 0
        for number, start in enumerate(range(0, len(text), _SLICE)):
            part = text[start : start + _SLICE]
            count += len(self.tokenizer.encode(part, add_bos=False, parse_special=True))
            if count > self._context_size * 1.05 + _SLACK * (number + 1):
                raise self._too_long(f"more than {self._context_size} tokens")

    def _too_long(self, what: str) -> ContextFullError:
        return ContextFullError(
            f"the prompt has {what} and the context {self._context_size} tokens; raise it with -c"
        )
