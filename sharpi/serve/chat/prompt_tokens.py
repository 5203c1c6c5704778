"""Encodes prompts: within bounds, with the ids of earlier turns, and without forged turns.

PromptLimit refuses a prompt that cannot fit the context before tokenizing it. Tokenizing takes
hundreds of bytes of memory for each byte of text. So a text with more bytes than the context's
tokens could spell is refused for its length. The tokens of other long texts are counted in slices
first.

PromptMemory keeps the tokens of conversations, so that a longer one reuses their ids. A text has
many tokenizations, and a model does not always generate the one that the tokenizer would choose. If
its answers were tokenized again in the next turn, their ids would often not match the KV cache.

PlainContents prevents texts of users and tools from forging a turn. A chat template joins all
messages into one text, in which control tokens are parsed. If a message spells a control token,
PlainContents puts a noncharacter into that spelling. It is removed after control tokens have been
parsed.
"""

import re
import threading
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from sharpi.errors import ContextFullError
from sharpi.serve.chat.chat_call import Message
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.units import format_bytes

MARK = "\ufdd0"  # a noncharacter, which appears in no text
_OF_OTHERS = ("user", "tool")  # roles whose texts come from elsewhere
_MAX_TEXTS = 256
_MAX_CHARACTERS = 4 << 20
_SLICE = 1 << 16  # characters of a message after which other threads get to run
_COUNTED = 1 << 16  # characters of a prompt whose tokens are counted together
_SLACK = 64  # the most tokens that a cut between two slices adds


class PromptLimit:
    """Encodes prompts for a context of `context_size` tokens.

    With `shifts`, a prompt that is too long loses its beginning later, so long texts are not
    counted here.
    """

    def __init__(self, tokenizer: Tokenizer, context_size: int, shifts: bool = False) -> None:
        self.tokenizer = tokenizer
        self._context_size, self._shifts = context_size, shifts

    @property
    def max_characters(self) -> int:
        """The most characters that the tokens of a context can spell."""
        return self._context_size * self.tokenizer.longest_token

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool = True, mark: str = ""
    ) -> list[int]:
        """Returns the ids of a text; raises ContextFullError if they cannot fit the context."""
        self.check(text)
        return self.tokenizer.encode(text, add_bos=add_bos, parse_special=parse_special, mark=mark)

    def check(self, text: str) -> None:
        """Raises ContextFullError for a text that is certainly too long."""
        if len(text) > self.max_characters:
            raise self._too_long(f"{format_bytes(len(text))} of text")
        if len(text) <= 4 * _COUNTED or self._shifts:
            return
        count = 0
        for number, start in enumerate(range(0, len(text), _COUNTED)):
            part = text[start : start + _COUNTED]
            count += len(self.tokenizer.encode(part, add_bos=False, parse_special=True))
            if count > self._context_size * 1.05 + _SLACK * (number + 1):
                raise self._too_long(f"more than {self._context_size} tokens")

    def _too_long(self, what: str) -> ContextFullError:
        return ContextFullError(
            f"the prompt has {what} and the context {self._context_size} tokens; raise it with -c"
        )


class PromptMemory:
    """Stores prompts with their answers, as text and as ids; drops the oldest first.

    Any thread may use it.
    """

    def __init__(self, limit: PromptLimit) -> None:
        self._tokenizer, self._limit = limit.tokenizer, limit
        self._ids: dict[str, array[int]] = {}
        self._num_characters = 0
        self._lock = threading.Lock()

    def ids_of(self, text: str) -> list[int]:
        """Returns the ids of a prompt with its control tokens, and stored ids for its beginning.

        Raises ContextFullError for a text that cannot fit the context.
        """
        known = self._longest_beginning(text)
        if known is None:
            add_bos = self._tokenizer.add_bos
            return self._limit.encode(text, add_bos=add_bos, mark=MARK)
        rest = text[len(known[0]) :]
        return [*known[1], *self._limit.encode(rest, add_bos=False, mark=MARK)]

    def remember(
        self,
        prompt: str,
        prompt_ids: Sequence[int],
        answer: str,
        answer_ids: Sequence[int],
        end_token: int,
    ) -> None:
        """Stores an answer that ended by `end_token`, if its tokens spell exactly its text.

        If the text leaves out a control token, the ids spell more, and nothing is stored.
        """
        if self._bytes_of(answer_ids) != answer.encode():
            return
        text = prompt + answer + self._tokenizer.token_text(end_token)
        with self._lock:
            self._forget(text)
            self._ids[text] = array("i", [*prompt_ids, *answer_ids, end_token])
            self._num_characters += len(text)
            while len(self._ids) > _MAX_TEXTS or self._num_characters > _MAX_CHARACTERS:
                self._forget(next(iter(self._ids)))

    def _bytes_of(self, ids: Sequence[int]) -> bytes:
        """Returns the bytes of an answer, without the leading space that SentencePiece adds."""
        data = b"".join(map(self._tokenizer.token_bytes, ids))
        return data.removeprefix(b" ") if self._tokenizer.adds_space else data

    def _longest_beginning(self, text: str) -> tuple[str, "array[int]"] | None:
        """Returns the longest stored beginning of the text and marks it as used."""
        with self._lock:
            found = max(
                (each for each in self._ids if text.startswith(each)), key=len, default=None
            )
            if found is None:
                return None
            ids = self._ids[found] = self._ids.pop(found)
            return found, ids

    def _forget(self, text: str) -> None:
        if self._ids.pop(text, None) is not None:
            self._num_characters -= len(text)


class PlainContents:
    """Inserts marks into texts that spell control tokens, which are then encoded as plain text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = [text for text in tokenizer.control_texts if len(text) > 1]
        self._spelled = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._longest = max(map(len, texts), default=0)

    def marked(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages, with marks in the texts of users and tools that need them."""
        return [self._marked(message) for message in messages]

    def _marked(self, message: Message) -> Message:
        content: Any = message.get("content")
        if message["role"] not in _OF_OTHERS or not isinstance(content, str):
            return message
        return {**message, "content": "".join(self._pieces(content.replace(MARK, "")))}

    def _pieces(self, content: str) -> Iterator[str]:
        """Yields the text, with a mark after the first character of each control token."""
        copied = 0
        for start in self._starts(content):
            yield content[copied : start + 1] + MARK
            copied = start + 1
        yield content[copied:]

    def _starts(self, content: str) -> Iterator[int]:
        """Yields the positions at which control tokens start, searching overlapping slices."""
        if self._spelled is None:
            return
        searched = 0
        for end in range(_SLICE, len(content) + _SLICE, _SLICE):
            for found in self._spelled.finditer(content, searched, end + self._longest - 1):
                if found.start() < end:
                    yield found.start()
                    searched = found.end()
            searched = max(searched, end)
