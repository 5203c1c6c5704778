"""NumberEncoder: for models without a vocabulary, text is a list of token ids as numbers."""

from sharpi.errors import UsageError

_MAX_ID = (1 << 31) - 1


class NumberEncoder:
    """Encodes text that lists token ids, such as "17 3 42"."""

    def encode(self, text: str) -> list[int]:
        """Returns the token ids listed in the text; raises UsageError for any other word."""
        words = text.split()
        if not all(word.isascii() and word.isdigit() and int(word) <= _MAX_ID for word in words):
            raise UsageError(
                "this model has no vocabulary; write token ids instead of words, such as '1 2 3'"
            )
        return [int(word) for word in words]


def number_bytes(token_id: int) -> bytes:
    """Returns a token id as text that `NumberEncoder` reads, with a leading space."""
    return f" {token_id}".encode()
