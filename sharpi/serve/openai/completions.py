"""Builds the responses of /v1/completions, as one body or as a stream of chunks."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.dialogue.events import Text
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.serve.chat.answer_parts import (
    AnswerDelta,
    AnswerDeltaOrEnd,
    AnswerEnd,
    EndReason,
    PromptRequest,
)
from sharpi.serve.chat.answer_reading import total_usage
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.chat.collected_answer import collect
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import prepared
from sharpi.serve.http.event_stream import Events, event_stream
from sharpi.serve.openai.chat import choice_events, completion_head, error_event, usage_body
from sharpi.serve.openai.completions_body import CompletionsBody
from sharpi.serve.openai.completions_request import CompletionsRequest, completions_request
from sharpi.serve.openai.logprobs import LegacyLogprobs
from sharpi.tokenizer.tokenizer import Tokenizer

_FINISH: dict[EndReason, str] = {"stop": "stop", "stop_string": "stop"}
_CUT = "length"


class CompletionsRoute:
    """The handler of /v1/completions."""

    def __init__(self, host: ModelHost, chats: ChatModels) -> None:
        self._host, self._chats = host, chats

    async def respond(self, request: Request) -> Response:
        """Continues the text of one or more prompts."""
        model = await self._chats.get()

        def prepare(body: CompletionsBody) -> tuple[CompletionsRequest, list[PromptRequest]]:
            asked = completions_request(body, self._host, model.limit)
            return asked, model.completion_requests(
                asked.prompts, asked.request, asked.shape, asked.num_answers
            )

        asked, prompt_requests = await prepared(request, CompletionsBody, prepare)
        asked = await with_scores(self._host, asked)
        if asked.is_stream:
            chunks = completion_chunks(self._host, asked, prompt_requests, model.tokenizer)
            return await event_stream(chunks, error_event)
        return JSONResponse(await completion(self._host, asked, prompt_requests, model.tokenizer))


async def with_scores(host: ModelHost, asked: CompletionsRequest) -> CompletionsRequest:
    """Adds the log probabilities of the prompts to a request with `echo` and `logprobs`.

    Returns other requests unchanged.
    """
    num_best = asked.request.num_logprobs
    if not asked.wants_scores or num_best is None:
        return asked
    return replace(asked, scored=tuple([await host.scored(ids, num_best) for ids in asked.prompts]))


async def completion(
    host: ModelHost,
    asked: CompletionsRequest,
    prompt_requests: list[PromptRequest],
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """Generates answers that are not streamed; returns the body, with choices by prompt."""
    collected = await collect(host, prompt_requests)
    ends = [each.end for each in collected if each.end]
    choices = []
    for number, (each, end) in enumerate(zip(collected, ends, strict=True)):
        choice = _Choice(number, asked, tokenizer)
        whole = AnswerDelta(Text(each.text), tuple(each.tokens))
        choices.append(choice.chunk(whole) | {"finish_reason": _FINISH.get(end.reason, _CUT)})
    usage = total_usage([end.usage for end in ends], asked.num_answers)
    return {**_head(host), "choices": choices, "usage": usage_body(usage)}


def completion_chunks(
    host: ModelHost,
    asked: CompletionsRequest,
    prompt_requests: list[PromptRequest],
    tokenizer: Tokenizer,
) -> Events:
    """Returns the server-sent events of a stream."""
    choices = [_Choice(number, asked, tokenizer) for number in range(len(prompt_requests))]
    return choice_events(
        host, prompt_requests, _head(host), choices, asked.num_answers, asked.includes_usage
    )


class _Choice:
    """Converts the parts of one answer to chunks; the first begins with the echoed prompt."""

    def __init__(self, number: int, asked: CompletionsRequest, tokenizer: Tokenizer) -> None:
        self._number = number
        self._echo = asked.echoes[number // asked.num_answers]
        has_logprobs = asked.request.num_logprobs is not None
        self._logprobs: LegacyLogprobs | None = None
        self._scored: tuple[SampledToken, ...] = ()
        if has_logprobs:
            self._scored = tuple(asked.scored[number // asked.num_answers]) if asked.scored else ()
            self._logprobs = LegacyLogprobs(tokenizer, 0 if self._scored else len(self._echo))

    def of(self, item: AnswerDeltaOrEnd) -> Iterator[dict[str, Any]]:
        if isinstance(item, AnswerEnd):
            last = self.chunk(AnswerDelta(Text("")))
            yield last | {"finish_reason": _FINISH.get(item.reason, _CUT)}
        else:
            yield self.chunk(item)

    def chunk(self, part: AnswerDelta) -> dict[str, Any]:
        echo, self._echo = self._echo, ""
        tokens, self._scored = (*self._scored, *part.tokens), ()
        logprobs = self._logprobs.of(tokens) if self._logprobs and tokens else None
        return {
            "index": self._number,
            "text": echo + part.event.text if isinstance(part.event, Text) else echo,
            "logprobs": logprobs,
            "finish_reason": None,
        }


def _head(host: ModelHost) -> dict[str, Any]:
    return completion_head(host, "text_completion", "cmpl-")
