"""PromptMemory keeps the tokens of conversations, so that a longer one reuses their ids.

A text has many tokenizations, and a model does not always generate the tokenizer's own. If its
answers were tokenized again in the next turn, their ids would often not match the KV cache.
"""

import threading
from array import array
from collections.abc import Sequence

from sharpi.tokenizer.tokenizer import Tokenizer

_MAX_TEXTS = 256
_MAX_CHARACTERS = 8 << 20


class PromptMemory:
    """Stores prompts with their answers, as text and as ids; drops the oldest first.

    Any thread may use it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, array[int]] = {}
        self._num_characters = 0
        self._lock = threading.Lock()

    def ids_of(self, text: str) -> list[int]:
        """Returns the ids of a prompt and its control tokens, with stored ids for its beginning."""
        known = self._longest_beginning(text)
        if known is None:
            add_bos = self._tokenizer.add_bos
            return self._tokenizer.encode(text, add_bos=add_bos, parse_special=True)
        rest = text[len(known[0]) :]
        return [*known[1], *self._tokenizer.encode(rest, add_bos=False, parse_special=True)]

    def remember(
        self,
        prompt: str,
        prompt_ids: Sequence[int],
        answer: str,
        answer_ids: Sequence[int],
        end_token: int,
    ) -> None:
        """Stores an answer that ended by `end_token`, if its tokens spell exactly its text.

        They do not if a control token was hidden.
        """
        if self._said_by(answer_ids) != answer.encode():
            return
        text = prompt + answer + self._tokenizer.token_text(end_token)
        with self._lock:
            self._forget(text)
            self._ids[text] = array("i", [*prompt_ids, *answer_ids, end_token])
            self._num_characters += len(text)
            while len(self._ids) > _MAX_TEXTS or self._num_characters > _MAX_CHARACTERS:
                self._forget(next(iter(self._ids)))

    def _said_by(self, ids: Sequence[int]) -> bytes:
        """Returns the bytes of an answer, without the space that SentencePiece begins with."""
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
