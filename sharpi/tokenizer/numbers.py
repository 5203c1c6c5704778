"""NumberEncoder: text of a model without a vocabulary is its token ids, written as numbers."""

from sharpi.errors import UsageError

_MAX_ID = (1 << 31) - 1


class NumberEncoder:
    """Encodes "17 3 42" as these ids."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids that a text of numbers lists; raises UsageError for any other word."""
        words = text.split()
        if not all(word.isascii() and word.isdigit() and int(word) <= _MAX_ID for word in words):
            raise UsageError(
                "this model has no vocabulary; write token ids instead of words, such as '1 2 3'"
            )
        return [int(word) for word in words]


def spelled_number(token_id: int) -> bytes:
    """Returns the id as `NumberEncoder` reads it, with a space before it."""
    return f" {token_id}".encode()
