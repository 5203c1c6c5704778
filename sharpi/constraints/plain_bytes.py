"""PlainBytes: the smallest vocabulary, for compiling or matching a grammar without a model."""

from typing import ClassVar


class PlainBytes:
    """A vocabulary for llguidance's `TokenizerWrapper`: one token per byte, 255 as end token."""

    eos_token_id = 255
    bos_token_id = None
    tokens: ClassVar = [bytes([byte]) for byte in range(255)] + [b"<end>"]
    special_token_ids: ClassVar = [255]

    def __call__(self, data: bytes) -> list[int]:
        """Returns the token ids of a text: its bytes."""
        return list(data)
