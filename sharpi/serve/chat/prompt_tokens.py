"""Tokenizes prompts: limits their length, reuses ids of earlier answers, and escapes messages.

PromptLimit refuses a prompt that cannot fit the context before tokenizing it, because tokenizing
takes hundreds of bytes of memory for each byte of text. A text with more characters than the
context's tokens can decode to is refused at once. In other long texts, the tokens are counted in
slices first.

PromptMemory stores the tokens of conversations, so that a longer conversation reuses their ids. A
text has many tokenizations, and a model does not always generate the one that the tokenizer would
choose. If answers were tokenized again, their ids would often not match the KV cache.

PlainContents prevents texts of users and tools from imitating other roles. A chat template joins
all messages into one text, in which control tokens are parsed. If a message contains the text of a
control token, PlainContents inserts a noncharacter into it. The noncharacter is removed after
control tokens have been parsed.
"""

import re
import threading
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from sharpi.errors import ContextFullError, too_long_prompt
from sharpi.serve.chat.chat_call import Message
from sharpi.serve.http.errors import raise_invalid
from sharpi.tokenizer.tokenizer import Tokenizer

MARK = "\ufdd0"  # a noncharacter, which appears in no text
_OF_OTHERS = ("user", "tool")  # roles with untrusted texts
_MAX_TEXTS = 256
_MAX_CHARACTERS = 4 << 20
_SLICE = 1 << 16  # characters of a message that are searched at once, without releasing the GIL
_COUNTED = 1 << 16  # characters of a prompt whose tokens are counted together
_SLACK = 64  # the most tokens that a cut between two slices adds


class PromptLimit:
    """Tokenizes prompts for a context of `context_size` tokens, and refuses longer ones.

    With `shifts`, the engine cuts the beginning of a long prompt later, so tokens are not counted
    here.
    """

    def __init__(self, tokenizer: Tokenizer, context_size: int, shifts: bool = False) -> None:
        self.tokenizer = tokenizer
        self._context_size, self._shifts = context_size, shifts

    @property
    def max_characters(self) -> int:
        """The most characters that a context full of the longest tokens can decode to."""
        return self._context_size * self.tokenizer.longest_token

    def encode(
        self, text: str, *, add_bos: bool, parse_special: bool = True, mark: str = ""
    ) -> list[int]:
        """Tokenizes a text, without its `mark`; raises ContextFullError if it cannot fit."""
        self.check(text)
        return self.tokenizer.encode(text, add_bos=add_bos, parse_special=parse_special, mark=mark)

    def check(self, text: str) -> None:
        """Raises ContextFullError for a text that certainly has more tokens than the context."""
        if len(text) > self.max_characters:
            raise self._too_long(len(text) // self.tokenizer.longest_token)
        if len(text) <= 4 * _COUNTED or self._shifts:
            return
        count = 0
        for number, start in enumerate(range(0, len(text), _COUNTED)):
            part = text[start : start + _COUNTED]
            count += len(self.tokenizer.encode(part, add_bos=False, parse_special=True))
            if count > self._context_size * 1.05 + _SLACK * (number + 1):
                raise self._too_long(self._context_size + 1)

    def _too_long(self, num_at_least: int) -> ContextFullError:
        return too_long_prompt(f"at least {num_at_least}", self._context_size, "raise it with -c")


MAX_PROMPTS = 128
_PROMPT_FORMS = "must be a string, a list of strings, of ids, or of lists of ids"


def prompts_of(value: Any, limit: PromptLimit) -> list[tuple[str, list[int]]]:
    """Returns text and ids of each prompt, a text or ids and texts; raises ApiError."""
    is_one = not isinstance(value, list) or any(isinstance(each, int) for each in value)
    values = [value] if is_one else value
    if not values:
        raise_invalid("prompt", _PROMPT_FORMS)
    if len(values) > MAX_PROMPTS:
        raise_invalid("prompt", f"must have {MAX_PROMPTS} prompts at most")
    return [_prompt(each, limit) for each in values]


def _prompt(value: Any, limit: PromptLimit) -> tuple[str, list[int]]:
    tokenizer, ids = limit.tokenizer, list[int]()
    for number, part in enumerate(value if isinstance(value, list) else [value]):
        if isinstance(part, str):
            ids += limit.encode(part, add_bos=tokenizer.add_bos and number == 0)
        elif isinstance(part, int):
            ids.append(part)
        else:
            raise_invalid("prompt", _PROMPT_FORMS)
    if not ids:
        raise_invalid("prompt", "is empty, and the model has no BOS token")
    if not all(0 <= token_id < tokenizer.vocab_size for token_id in ids):
        raise_invalid("prompt", f"has ids that are not from 0 to {tokenizer.vocab_size - 1}")
    return value if isinstance(value, str) else tokenizer.decode(ids), ids


class PromptMemory:
    """Prompts with their answers as text and ids, for any thread; drops the oldest used first."""

    def __init__(self, limit: PromptLimit) -> None:
        self._tokenizer, self._limit = limit.tokenizer, limit
        self._ids: dict[str, array[int]] = {}
        self._num_characters = 0
        self._lock = threading.Lock()

    def ids_of(self, text: str) -> list[int]:
        """Tokenizes a prompt, with known ids where it begins; raises ContextFullError."""
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
        """Stores an answer, unless its ids do not decode to its text, as without control tokens."""
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
        """Decodes ids to bytes, without the leading space that SentencePiece adds."""
        data = b"".join(map(self._tokenizer.token_bytes, ids))
        return data.removeprefix(b" ") if self._tokenizer.adds_space else data

    def _longest_beginning(self, text: str) -> tuple[str, "array[int]"] | None:
        """Returns the longest stored beginning of `text` with its ids, and marks it as used."""
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
    """Inserts a mark into control tokens in messages, which makes them plain text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        texts = [text for text in tokenizer.control_texts if len(text) > 1]
        self._spelled = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._longest = max(map(len, texts), default=0)

    def marked(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages, with marks in the control tokens of user and tool messages."""
        return [self._marked(message) for message in messages]

    def _marked(self, message: Message) -> Message:
        content: Any = message.get("content")
        if message["role"] not in _OF_OTHERS or not content:
            return message
        if isinstance(content, str):
            return {**message, "content": self._plain(content)}
        return {
            **message,
            "content": [{**part, "text": self._plain(part["text"])} for part in content],
        }

    def _plain(self, text: str) -> str:
        return "".join(self._pieces(text.replace(MARK, "")))

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
