"""Reads the answers to one request: in parts as they arrive, or collected into whole answers."""

import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Literal, TypeAlias

from msgspec import Struct, field

from sharpi.dialogue.answer_text import AnswerEvent, CallArguments, CallBegin, Reasoning, Text
from sharpi.engine.sampling.generation_state import FinishInfo, PrefillProgress, TextDelta
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.serve.chat.chat_call import (
    AnswerDelta,
    AnswerDeltaOrEnd,
    AnswerEnd,
    EndReason,
    PromptRequest,
    Usage,
)
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import PING, Events

Parts: TypeAlias = AsyncGenerator[tuple[int, AnswerDeltaOrEnd | PrefillProgress] | None, None]


async def answer_parts(host: ModelHost, prompt_requests: Sequence[PromptRequest]) -> Parts:
    """Yields the merged parts of the answers to several requests, and the progress of prefill.

    Each item is (index of the answer, part), or None after some seconds without a part. Closing the
    generator ends all answers. An error in one answer is raised and ends all answers.
    """
    progress = [_Progress(each, host.tokenizer.end_ids) for each in prompt_requests]
    group = host.answers(prompt_requests)
    try:
        while group.is_open:
            numbered = await group.next()
            if numbered is None:
                yield None
                continue
            number, item = numbered
            if isinstance(item, PrefillProgress):
                yield number, item
                continue
            for part in progress[number].take(item):
                yield number, part
            if progress[number].has_ended:
                group.end(number)
    finally:
        group.close()


async def answer_events(
    host: ModelHost,
    prompt_requests: Sequence[PromptRequest],
    events_of: Callable[[int, AnswerDeltaOrEnd], Iterable[bytes]],
    ping: bytes = PING,
    progress_event: Callable[[PrefillProgress], bytes] | None = None,
) -> Events:
    """Yields the server-sent events of all answers to a request.

    `events_of` converts the index of an answer and one of its parts to events, `progress_event` the
    progress of prefill to one event. `ping` is yielded after some seconds without a part.
    """
    async with aclosing(answer_parts(host, prompt_requests)) as items:
        async for numbered in items:
            if numbered is None:
                yield ping
                continue
            number, item = numbered
            if isinstance(item, PrefillProgress):
                if progress_event is not None:
                    yield progress_event(item)
                continue
            for event in events_of(number, item):
                yield event


class _Progress(Struct):
    """Turns the text deltas of one answer into parts, and counts its tokens."""

    prompt_request: PromptRequest
    end_ids: frozenset[int]
    num_generated: int = 0
    num_reasoning: int = 0
    num_calls: int = 0
    has_ended: bool = False
    is_text: bool = True  # whether the newest part was text
    pending: list[SampledToken] = field(default_factory=list)  # tokens without text yet
    texts: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def take(self, item: TextDelta | FinishInfo) -> Iterator[AnswerDeltaOrEnd]:
        """Yields the parts in a text delta; for a FinishInfo, the last parts and the AnswerEnd."""
        if isinstance(item, FinishInfo):
            if item.stop is not None:
                self._drop_pending()  # tokens of the stop string, which is no part of the answer
            yield from self._rest(is_whole=item.end_token is not None)
            yield self._end(item)
            return
        for part in self._feed(item):
            if self.num_calls > 1 and not self.prompt_request.parallel_calls:
                yield self._end(FinishInfo("stop"))
                return
            yield part

    def _feed(self, delta: TextDelta) -> Iterator[AnswerDelta]:
        self.num_generated += len(delta.tokens)
        tokens = [token for token in delta.tokens if not self._is_end(token.id)]
        self.texts.append(delta.text)
        self.ids += [token.id for token in tokens]
        if not self.is_text:
            self._drop_pending()
        self.pending += tokens
        parser = self.prompt_request.parser
        return self._parts([Text(delta.text)] if parser is None else parser.feed(delta.text))

    def _rest(self, is_whole: bool) -> Iterator[AnswerDelta]:
        parser = self.prompt_request.parser
        yield from self._parts(() if parser is None else parser.flush(is_whole))
        if self.is_text and any(token.logprob is not None for token in self.pending):
            yield AnswerDelta(Text(""), tuple(self.pending))

    def _end(self, finish_info: FinishInfo) -> AnswerEnd:
        self.has_ended = True
        if finish_info.end_token is not None and self.prompt_request.remember is not None:
            self.prompt_request.remember("".join(self.texts), self.ids, finish_info.end_token)
        usage = Usage(
            len(self.prompt_request.prompt_ids),
            finish_info.timings.num_cached_tokens,
            max(self.num_generated, finish_info.timings.num_generated_tokens),
            self.num_reasoning,
        )
        reason = self._reason(finish_info)
        return AnswerEnd(reason, usage, finish_info.stop, finish_info.timings)

    def _reason(self, finish_info: FinishInfo) -> EndReason:
        if finish_info.reason == "stop" and self.num_calls:
            return "calls"
        if finish_info.reason == "stop":
            return "stop" if finish_info.stop is None else "stop_string"
        return "context" if finish_info.reason == "context" else "length"

    def _parts(self, events: Iterable[AnswerEvent]) -> Iterator[AnswerDelta]:
        """Yields a part for each event; text takes all pending tokens, others drop them."""
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


def total_usage(usages: Sequence[Usage], answers_per_prompt: int) -> Usage:
    """Returns the usage of all answers; a prompt shared by several answers counts once."""
    prompts = usages[::answers_per_prompt]
    return Usage(
        sum(usage.num_prompt for usage in prompts),
        sum(usage.num_cached for usage in prompts),
        sum(usage.num_generated for usage in usages),
        sum(usage.num_reasoning for usage in usages),
    )


def new_id(prefix: str) -> str:
    """Returns `prefix` with 24 random hexadecimal digits."""
    return prefix + secrets.token_hex(12)


class Block(Struct):
    """Text, reasoning or a tool call, in the order of the answer."""

    kind: Literal["text", "reasoning", "call"]
    name: str = ""  # of the tool
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text; for a call the JSON text of its arguments, `{}` if there is none."""
        return "".join(self.pieces) or ("{}" if self.kind == "call" else "")


class CollectedAnswer(Struct):
    """All parts of one answer that were received so far."""

    blocks: list[Block] = field(default_factory=list)
    tokens: list[SampledToken] = field(default_factory=list)
    end: AnswerEnd | None = None  # None until the answer has ended

    @property
    def text(self) -> str:
        """The text of the answer, without reasoning and tool calls."""
        return "".join(each.text for each in self.blocks if each.kind == "text")

    @property
    def reasoning(self) -> str:
        """The reasoning before the answer."""
        return "".join(each.text for each in self.blocks if each.kind == "reasoning")

    @property
    def calls(self) -> list[Block]:
        """The tool calls."""
        return [each for each in self.blocks if each.kind == "call"]

    def add(self, item: AnswerDeltaOrEnd) -> None:
        """Adds one part of the answer, or its end."""
        if isinstance(item, AnswerEnd):
            self.end = item
            return
        self.tokens += item.tokens
        match item.event:
            case CallBegin(_, name):
                self.blocks.append(Block("call", name))
            case CallArguments(index, text):
                self.calls[index].pieces.append(text)
            case Text(text):
                self._add_text("text", text)
            case Reasoning(text):
                self._add_text("reasoning", text)

    def _add_text(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if text and (not self.blocks or self.blocks[-1].kind != kind):
            self.blocks.append(Block(kind))
        if text:
            self.blocks[-1].pieces.append(text)


async def collect(
    host: ModelHost, prompt_requests: Sequence[PromptRequest]
) -> list[CollectedAnswer]:
    """Generates and returns the complete answers, in the order of the requests."""
    collected = [CollectedAnswer() for _ in prompt_requests]
    async with aclosing(answer_parts(host, prompt_requests)) as items:
        async for numbered in items:
            if numbered is not None and not isinstance(numbered[1], PrefillProgress):
                collected[numbered[0]].add(numbered[1])
    return collected
