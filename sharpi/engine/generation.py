"""One continuation as an iterator of text: prefill, then a token at a time until it ends."""

from collections.abc import Generator, Iterator

import numpy as np
import numpy.typing as npt

from sharpi.engine.sampling.generation_state import GenerationState
from sharpi.engine.sampling.text_delta import FinishReason, SampledToken, TextDelta
from sharpi.engine.sampling.timings import Timings
from sharpi.engine.sequence import Sequence as TokenSequence
from sharpi.errors import ContextFullError


class Generation:
    """Pieces of text, never half a character; may be left at any piece, the cache stays sound.

    `ids` are the tokens chosen so far without the end token, `choices` all of them, `text` what
    was shown.
    """

    def __init__(
        self, sequence: TokenSequence, generation_state: GenerationState, context_shift: bool
    ) -> None:
        self._sequence, self._state = sequence, generation_state
        self._context_shift = context_shift
        self._pieces = self._run()
        self.text = ""
        self.choices: list[SampledToken] = []

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def ids(self) -> list[int]:
        """Tokens chosen so far, the end token excepted."""
        return self._state.ids

    @property
    def finish_reason(self) -> FinishReason | None:
        """None until it has ended."""
        return self._state.finish_reason

    @property
    def timings(self) -> Timings:
        """What was counted so far."""
        return self._state.timings

    def close(self) -> None:
        """Ends the generation where it is."""
        self._pieces.close()

    def _run(self) -> Generator[str, None, None]:
        self._state.start()
        logits = self._prefill()
        self._state.prefilled()
        if self.finish_reason is None:
            yield from self._show(self._state.add(logits))
        while not self._ended():
            yield from self._show(self._next(self.ids[-1]))
        if self.finish_reason == "context":
            yield from self._show(self._state.end("context"))

    def _show(self, delta: TextDelta) -> Iterator[str]:
        self.choices.extend(delta.tokens)
        if delta.text:
            self.text += delta.text
            yield delta.text

    def _ended(self) -> bool:
        if self.finish_reason is None and self._sequence.room == 0 and not self._context_shift:
            self._state.finish_reason = "context"
        return self.finish_reason is not None

    def _prefill(self) -> npt.NDArray[np.float32]:
        """Computes what of the prompt is not cached; its last token always is."""
        prompt = self._fitted_prompt()
        kept = min(self._sequence.shared_prefix(prompt), len(prompt) - 1)
        self._sequence.truncate(kept)
        ready = self._sequence.num_ready
        self.timings.num_cached_tokens = ready
        self.timings.num_prompt_tokens = len(prompt) - ready
        return self._sequence.prefill(prompt[kept:])

    def _fitted_prompt(self) -> list[int]:
        size, prompt = self._sequence.capacity, self._state.prompt
        if len(prompt) < size:
            return prompt
        if not self._context_shift:
            raise prompt_too_long(len(prompt), size)
        return shifted(prompt, size)

    def _next(self, token: int) -> TextDelta:
        """What follows a token; where it is the largest logit, no others are looked at."""
        if not (self._state.takes_largest and self._sequence.room):
            return self._state.add(self._next_logits(token))
        return self._state.add_largest(self._sequence.extend_largest(token))

    def _next_logits(self, token: int) -> npt.NDArray[np.float32]:
        if self._sequence.room:
            return self._sequence.extend([token])
        kept = shifted([*self._sequence.tokens, token], self._sequence.capacity)
        self._sequence.truncate(self._sequence.shared_prefix(kept))
        return self._sequence.extend(kept[len(self._sequence.tokens) :])


def shifted(tokens: list[int], size: int) -> list[int]:
    """What stays of a full context: the first token and the newest half.

    The half is computed anew, so the text continues exactly as from a fresh prompt of these tokens.
    """
    return [tokens[0], *tokens[len(tokens) - max(1, size // 2 - 1) :]]


def prompt_too_long(num_tokens: int, size: int) -> ContextFullError:
    """What to say of a prompt that leaves no room for an answer."""
    return ContextFullError(
        f"the prompt has {num_tokens} tokens and the context {size};"
        " raise it with -c, or drop its beginning with --context-shift"
    )
