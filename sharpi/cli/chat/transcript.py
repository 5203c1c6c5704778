"""Keeps the tokens of a conversation, so that a longer text reuses the ids of its beginning.

A text has many tokenizations, and a model does not always generate the one that the tokenizer would
choose. Tokenizing the full text again for every answer would often produce other ids than the model
chose, which do not match the KV cache. So only the new text is tokenized, and answers keep the ids
that the model generated. A segment ends where a template wrote a marker or the model stopped, so no
word is split. If a template rewrites earlier messages (several drop old reasoning), the segments
before the first change are still reused.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sharpi.cli.chat.prompt import opening_ids

if TYPE_CHECKING:
    from sharpi.tokenizer.tokenizer import Tokenizer

FindIds = Callable[[str], list[int]]  # returns the ids of an answer; empty if they are unknown


class Transcript:
    """Stores segments of (text, ids), which together are what the KV cache holds."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._segments: list[tuple[str, list[int]]] = []

    def ids_of(self, text: str) -> list[int]:
        """Returns the ids of the whole `text`, with stored ids for its known segments."""
        position = self._drop_what_differs(text)
        rest = text[position:]
        if rest:
            self._segments.append(self._encoded(rest, is_opening=position == 0))
        return [token for _, ids in self._segments for token in ids]

    def num_known(self, text: str) -> int:
        """Returns how many stored tokens `text` begins with; drops all stored tokens after them."""
        self._drop_what_differs(text)
        return sum(len(ids) for _, ids in self._segments)

    def recall(self, text: str, answers: Iterable[str], find: FindIds) -> None:
        """Stores the ids that the model generated for earlier `answers` in `text`.

        `find` looks them up, so that a conversation saved as text has its original ids again.
        """
        at = position = self._drop_what_differs(text)
        begin = 0
        for answer in answers:
            start = text.find(answer, begin)
            if start < 0 or not answer:
                return
            begin = start + len(answer)
            if start >= position and (ids := find(answer)) and self._text_of(ids) == answer:
                if start > at:
                    self._segments.append(self._encoded(text[at:start], is_opening=at == 0))
                self._segments.append((answer, ids))
                at = begin

    def _encoded(self, text: str, *, is_opening: bool) -> tuple[str, list[int]]:
        return text, self._encode(text, is_opening=is_opening)

    def add_answer(self, text: str, ids: list[int]) -> None:
        """Stores the tokens that the model generated, if they decode to exactly `text`.

        They do not if a stop string was cut off or the last character is incomplete. Then `ids_of`
        tokenizes the answer like any other text.
        """
        if ids and self._text_of(ids) == text:
            self._segments.append((text, list(ids)))

    def _text_of(self, ids: list[int]) -> str:
        """Decodes `ids` as streaming does, which keeps a leading space."""
        from sharpi.tokenizer.stream import StreamDecoder

        decoder = StreamDecoder(self._tokenizer)
        return "".join(map(decoder.feed, ids)) + decoder.flush()

    def _drop_what_differs(self, text: str) -> int:
        """Drops all segments but those that `text` begins with; returns their total characters."""
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
