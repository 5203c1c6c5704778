"""The tokens behind a conversation's text, kept so that a longer text keeps the ids it began with.

Tokenising the whole text of every turn anew would often give other ids for an answer than the
model chose (a text has many tokenisations, and a model need not pick the tokeniser's), and all
from there on would fall out of the KV cache. So the text is remembered in segments with their ids:
what a turn adds is tokenised alone, and the model's answers keep the model's ids. A segment ends
where a template wrote a marker or the model stopped, so no word is cut. Where a template rewrites
earlier turns (several drop old reasoning), the segments before that place still count.
"""

from typing import TYPE_CHECKING

from sharpi.cli.chat.prompt import opening_ids

if TYPE_CHECKING:
    from sharpi.tokenizer.tokenizer import Tokenizer


class Transcript:
    """Segments of (text, ids); the concatenation of both sides is what the KV cache has seen."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._segments: list[tuple[str, list[int]]] = []

    def ids_of(self, text: str) -> list[int]:
        """Ids of the whole `text`, with those of every remembered segment that it starts with."""
        position = self._drop_what_differs(text)
        rest = text[position:]
        if rest:
            self._segments.append((rest, self._encode(rest, is_opening=position == 0)))
        return [token for _, ids in self._segments for token in ids]

    def add_answer(self, text: str, ids: list[int]) -> None:
        """Remember the model's own tokens, if they say exactly `text`.

        They do not when a stop string was cut off or the last character is incomplete; then the
        next turn tokenises the answer like any other text.
        """
        if ids and self._said_by(ids) == text:
            self._segments.append((text, list(ids)))

    def _said_by(self, ids: list[int]) -> str:
        """What was streamed for `ids`; unlike that of a whole text, it may begin with a blank."""
        from sharpi.tokenizer.stream import StreamDecoder

        decoder = StreamDecoder(self._tokenizer)
        return "".join(map(decoder.feed, ids)) + decoder.flush()

    def _drop_what_differs(self, text: str) -> int:
        """Keep the segments that `text` starts with; returns the number of characters they hold."""
        position = 0
        for count, (segment, _) in enumerate(self._segments):
            if not text.startswith(segment, position):
                del self._segments[count:]
                break
            position += len(segment)
        return position

    def _encode(self, text: str, *, is_opening: bool) -> list[int]:
        if is_opening:
            return opening_ids(self._tokenizer, text)
        return self._tokenizer.encode(text, add_bos=False, parse_special=True)
