"""Text for a model without a vocabulary: its token ids, written as numbers."""

from sharpi.errors import UsageError

_MAX_ID = (1 << 31) - 1


class NumberEncoder:
    """ "17 3 42" to ids; what is not a number is refused."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text of numbers; raises UsageError, as there are no words."""
        words = text.split()
        if not all(word.isascii() and word.isdigit() and int(word) <= _MAX_ID for word in words):
            raise UsageError(
                "this model has no vocabulary; write token ids instead of words, such as '1 2 3'"
            )
        return [int(word) for word in words]


def spelled_number(token_id: int) -> bytes:
    """The id as `NumberEncoder` reads it, parted from the one before."""
    return f" {token_id}".encode()
