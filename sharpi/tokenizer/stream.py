"""StreamDecoder turns token ids into text as they arrive, never into half a character."""

import codecs
from collections.abc import Collection

from sharpi.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes one id at a time, with constant work per token.

    Bytes of an unfinished character wait for the rest; bytes that are not UTF-8 become U+FFFD.
    Control tokens are left out, except those in `shown_ids`. `starts_text`: remove the space that
    SentencePiece puts before a text; leave it False if the stream continues a text.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, starts_text: bool = False, shown_ids: Collection[int] = ()
    ) -> None:
        self._tokenizer, self._shown_ids = tokenizer, shown_ids
        self._drops_space = starts_text and tokenizer.adds_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Returns the text that this token completes, which may be empty."""
        if self._tokenizer.is_hidden(token_id) and token_id not in self._shown_ids:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._drops_space and data:
            data, self._drops_space = data.removeprefix(b" "), False
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Returns what is left: U+FFFD for an unfinished character."""
        return self._decoder.decode(b"", final=True)
