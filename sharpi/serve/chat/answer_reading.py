"""Parses one answer of the model into parts, and counts its tokens."""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing

from msgspec import Struct, field

from sharpi.dialogue.events import AnswerEvent, CallBegin, Reasoning, Text
from sharpi.engine.sampling.text_delta import FinishInfo, SampledToken, TextDelta
from sharpi.serve.chat.answer_parts import (
    AnswerDelta,
    AnswerDeltaOrEnd,
    AnswerEnd,
    EndReason,
    PromptRequest,
    Usage,
)
from sharpi.serve.host.model_host import ModelHost


async def answer(
    host: ModelHost, prompt_request: PromptRequest
) -> AsyncGenerator[AnswerDeltaOrEnd, None]:
    """Yields the parts of an answer, then its end; closing the generator stops the model's work."""
    progress = _Progress(prompt_request, host.tokenizer.end_ids)
    deltas = host.answer(
        prompt_request.prompt_ids, prompt_request.request, prompt_request.constraint
    )
    async with aclosing(deltas):
        async for delta in deltas:
            if isinstance(delta, FinishInfo):
                if delta.error is not None:
                    raise delta.error
                for part in progress.rest():
                    yield part
                yield progress.end(delta)
                return
            for part in progress.feed(delta):
                if progress.has_too_many_calls:
                    yield progress.end(FinishInfo("stop"))
                    return
                yield part


class _Progress(Struct):
    """Turns text deltas into parts, and counts tokens."""

    prompt_request: PromptRequest
    end_ids: frozenset[int]
    num_generated: int = 0
    num_reasoning: int = 0
    num_calls: int = 0
    is_text: bool = True  # the newest part was text
    pending: list[SampledToken] = field(default_factory=list)  # tokens that have no text yet
    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @property
    def has_too_many_calls(self) -> bool:
        return self.num_calls > 1 and not self.prompt_request.parallel_calls

    def feed(self, delta: TextDelta) -> Iterator[AnswerDelta]:
        self.num_generated += len(delta.tokens)
        tokens = [token for token in delta.tokens if not self._is_end(token.id)]
        self.texts.append(delta.text)
        self.ids += [token.id for token in tokens]
        if not self.is_text:
            self._drop_pending()
        self.pending += tokens
        parser = self.prompt_request.parser
        return self._parts([Text(delta.text)] if parser is None else parser.feed(delta.text))

    def rest(self) -> Iterator[AnswerDelta]:
        yield from self._parts(
            () if self.prompt_request.parser is None else self.prompt_request.parser.flush()
        )
        if self.is_text and any(token.logprob is not None for token in self.pending):
            yield AnswerDelta(Text(""), tuple(self.pending))

    def end(self, finish_info: FinishInfo) -> AnswerEnd:
        if finish_info.end_token is not None and self.prompt_request.remember is not None:
            self.prompt_request.remember("".join(self.texts), self.ids, finish_info.end_token)
        usage = Usage(
            len(self.prompt_request.prompt_ids),
            finish_info.timings.num_cached_tokens,
            max(self.num_generated, finish_info.timings.num_generated_tokens),
            self.num_reasoning,
        )
        return AnswerEnd(self._reason(finish_info), usage, finish_info.stop)

    def _reason(self, finish_info: FinishInfo) -> EndReason:
        if finish_info.reason == "stop" and self.num_calls:
            return "calls"
        if finish_info.reason == "stop":
            return "stop" if finish_info.stop is None else "stop_string"
        return "context" if finish_info.reason == "context" else "length"

    def _parts(self, events: Iterable[AnswerEvent]) -> Iterator[AnswerDelta]:
        """Yields parts with the tokens of their text.

        Tokens of reasoning and calls are only counted.
        """
        for event in events:
            self.is_text = isinstance(event, Text)
            if isinstance(event, Text):
                if event.text:
                    tokens, self.pending = tuple(self.pending), []
                    yield AnswerDelta(event, tokens)
                continue
            self._drop_pending(counts=isinstance(event, Reasoning))
            self.num_calls += isinstance(event, CallBegin)
            yield AnswerDelta(event)

    def _is_end(self, token: int) -> bool:
        return token in self.end_ids and not self.prompt_request.request.ignore_end

    def _drop_pending(self, counts: bool = False) -> None:
        self.num_reasoning += len(self.pending) if counts else 0
        self.pending = []
