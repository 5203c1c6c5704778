"""Text that can be shown while tokens arrive.

StreamDecoder turns ids into text, never into half a character. StopFilter finds stop strings, and
holds back text that may become one.
"""

import codecs
from collections.abc import Collection, Sequence

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
        """Returns the rest: U+FFFD for an unfinished character."""
        return self._decoder.decode(b"", final=True)


class StopFilter:
    """Takes pieces and returns the text that is safe to show; `found` is the stop string found."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [s for s in stops if s]
        self._held = ""
        self.found: str | None = None

    @property
    def stopped(self) -> bool:
        """True if a stop string was met."""
        return self.found is not None

    def feed(self, piece: str) -> str:
        """Adds a piece; returns the text that can no longer be part of a stop string."""
        if not self._stops:
            return piece
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.found = min(found, key=lambda each: each[0])
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Returns the text that was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text that begins the stop string."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
