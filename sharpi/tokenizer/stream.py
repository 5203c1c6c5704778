"""Streaming of text while tokens arrive.

StreamDecoder decodes token ids to complete characters. StopFilter finds stop strings, and holds
back text that may be the start of one.
"""

import codecs
from collections.abc import Collection, Sequence
from typing import Literal

from sharpi.tokenizer.reasoning import unfinished
from sharpi.tokenizer.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes one token id at a time, with constant work per token.

    Bytes of an incomplete character are held back; bytes that are not UTF-8 become U+FFFD. Control
    tokens are left out, except those in `shown_ids`. `starts_text`: whether the stream begins a
    text, so that the space that SentencePiece puts before a text is removed.
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
        """Ends the stream; returns U+FFFD for an incomplete character, or an empty string."""
        return self._decoder.decode(b"", final=True)


class StopFilter:
    """Finds stop strings in streamed text and holds back text that may be the start of one.

    `reasoning`: the markers around reasoning before the answer, in which stop strings do not act;
    the first is empty if the text begins within reasoning. `found`: the stop string that was found;
    None before that.
    """

    def __init__(self, stops: Sequence[str], reasoning: tuple[str, str] | None = None) -> None:
        self._stops = [s for s in stops if s]
        self._before = _BeforeAnswer(*reasoning) if reasoning and self._stops else None
        self._held = ""
        self.found: str | None = None

    def feed(self, piece: str) -> str:
        """Adds text; returns what is no part of a stop string, or all before one that is found."""
        if not self._stops:
            return piece
        passed = ""
        if self._before is not None:
            passed, piece = self._before.feed(piece)
        return passed + self._search(piece)

    def _search(self, piece: str) -> str:
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.found = min(found, key=lambda each: each[0])
            self._held = ""
            return text[:at]
        keep = unfinished(text, self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Ends the stream and returns the text that was held back."""
        held, self._held = self._held, ""
        return held if self._before is None else self._before.flush() + held


class _BeforeAnswer:
    """Lets the reasoning before an answer pass, with its markers and the white space after it."""

    def __init__(self, opening: str, closing: str) -> None:
        self._opening, self._closing = opening, closing
        self._awaits: Literal["opening", "closing", "text", "nothing"] = "opening"
        self._held = ""

    def feed(self, piece: str) -> tuple[str, str]:
        """Adds text; returns what precedes the answer, and then the answer's own text."""
        self._held += piece
        passed = ""
        if self._awaits == "opening":
            text = self._held.lstrip()
            if len(text) < len(self._opening) and self._opening.startswith(text):
                return "", ""
            self._awaits = "closing" if text.startswith(self._opening) else "nothing"
        if self._awaits == "closing":
            passed = self._reasoning()
        if self._awaits == "text":
            text = self._held.lstrip()
            passed += self._held[: len(self._held) - len(text)]
            self._held, self._awaits = text, "nothing" if text else "text"
        return (passed, self.flush()) if self._awaits == "nothing" else (passed, "")

    def flush(self) -> str:
        """Ends the text and returns what was held back."""
        held, self._held = self._held, ""
        return held

    def _reasoning(self) -> str:
        """Takes the reasoning that is held, and the marker that closes it once it has come."""
        before, marker, after = self._held.partition(self._closing)
        if marker:
            self._held, self._awaits = after, "text"
            return before + marker
        certain = len(before) - unfinished(before, [self._closing])
        self._held = before[certain:]
        return before[:certain]
