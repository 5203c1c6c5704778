"""One continuation as an iterator of text: prefill, then a token at a time until it ends."""

import time
from collections.abc import Generator, Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from sharpi.config import GenerationRequest
from sharpi.engine.sampler import Sampler
from sharpi.engine.sequence import Sequence as TokenSequence
from sharpi.engine.stop import StopFilter
from sharpi.engine.timings import Timings
from sharpi.errors import ContextFullError, UsageError
from sharpi.tokenizer.stream import StreamDecoder
from sharpi.tokenizer.tokenizer import Tokenizer

FinishReason = Literal["stop", "length", "context"]


class Generation:
    """Pieces of text, never half a character; may be left at any piece, the cache stays sound.

    `ids` are the tokens chosen so far without the end token, `text` what was shown.
    """

    def __init__(
        self,
        sequence: TokenSequence,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        context_shift: bool,
    ) -> None:
        if not prompt_ids:
            raise UsageError("the prompt is empty and the model has no BOS token to start from")
        self._sequence, self._tokenizer = sequence, tokenizer
        self._prompt, self._request = list(prompt_ids), request
        self._context_shift = context_shift
        # After a control token, as after a chat template, a SentencePiece text starts anew.
        starts_text = tokenizer.is_hidden(prompt_ids[-1])
        self._decoder = StreamDecoder(tokenizer, starts_text=starts_text)
        self._stops = StopFilter(request.stop)
        self._pieces = self._run()
        self.finish_reason: FinishReason | None = None
        self.text = ""
        self.ids: list[int] = []
        self.timings = Timings()

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Ends the generation where it is."""
        self._pieces.close()

    def _run(self) -> Generator[str, None, None]:
        start = time.perf_counter()
        logits = self._prefill()
        sampler = Sampler(self._request.sampling, self._prompt)
        decode_start = time.perf_counter()
        self.timings.prefill_seconds = decode_start - start
        if self._request.max_tokens == 0:
            self.finish_reason = "length"
        token = -1 if self.finish_reason else sampler.sample(logits)
        while self.finish_reason is None:
            self._count(start, decode_start)
            if token in self._tokenizer.end_ids and not self._request.ignore_end:
                self.finish_reason = "stop"
                break
            self.ids.append(token)
            yield from self._show(self._stops.feed(self._decoder.feed(token)))
            if self._ended(len(self.ids)):
                break
            token = self._next(token, sampler)
        if not self._stops.stopped:
            yield from self._show(self._stops.feed(self._decoder.flush()) + self._stops.flush())

    def _show(self, piece: str) -> Iterator[str]:
        if piece:
            self.text += piece
            yield piece

    def _ended(self, count: int) -> bool:
        if self._stops.stopped:
            self.finish_reason = "stop"
        elif 0 <= self._request.max_tokens <= count:
            self.finish_reason = "length"
        elif self._sequence.room == 0 and not self._context_shift:
            self.finish_reason = "context"
        return self.finish_reason is not None

    def _count(self, start: float, decode_start: float) -> None:
        now = time.perf_counter()
        self.timings.num_generated_tokens += 1
        self.timings.decode_seconds = now - decode_start
        if self.timings.num_generated_tokens == 1:
            self.timings.first_token_seconds = now - start

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
        size = self._sequence.capacity
        if len(self._prompt) < size:
            return self._prompt
        if not self._context_shift:
            raise ContextFullError(
                f"the prompt has {len(self._prompt)} tokens and the context {size};"
                " raise it with -c, or drop its beginning with --context-shift"
            )
        return shifted(self._prompt, size)

    def _next(self, token: int, sampler: Sampler) -> int:
        """The choice after a token; where it is the largest logit, no others are looked at."""
        if not (sampler.takes_largest and self._sequence.room):
            return sampler.sample(self._next_logits(token))
        chosen = self._sequence.extend_largest(token)
        sampler.accept(chosen)
        return chosen

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
