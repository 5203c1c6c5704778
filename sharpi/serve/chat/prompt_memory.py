"""PromptMemory: the tokens behind conversations, so that a longer one keeps the ids it began with.

A text has many tokenisations, and a model need not pick the tokeniser's: were its answers
tokenised anew in the next turn, much of the KV cache would not fit them.
"""

import threading
from array import array
from collections.abc import Sequence

from sharpi.tokenizer.tokenizer import Tokenizer

_MAX_TEXTS = 256
_MAX_CHARACTERS = 8 << 20


class PromptMemory:
    """Prompts with their answers, as text and as ids; the oldest are forgotten first.

    May be used on any thread.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: dict[str, array[int]] = {}
        self._num_characters = 0
        self._lock = threading.Lock()

    def ids_of(self, text: str) -> list[int]:
        """Ids of a prompt, control tokens in it parsed; those that are known of its beginning."""
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
        """An answer that ended by `end_token`, if its tokens say exactly its text.

        They do not where a control token was not shown.
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
        """The bytes of an answer; the blank that SentencePiece begins with is not shown."""
        data = b"".join(map(self._tokenizer.token_bytes, ids))
        return data.removeprefix(b" ") if self._tokenizer.adds_space else data

    def _longest_beginning(self, text: str) -> tuple[str, "array[int]"] | None:
        """The longest text that this one goes on from; it counts as used."""
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
