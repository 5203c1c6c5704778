"""Token ids to text as they come: never half a character."""

import codecs

from sharpi.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Feed ids, get the text that is complete; constant work a token.

    Bytes of an unfinished character wait for the rest; bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """The text that this token completes, maybe none."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def flush(self) -> str:
        """What is left: U+FFFD for an unfinished character."""
        return self._decoder.decode(b"", final=True)
