"""/v1/completions: its body as tokenized prompts, and its responses, whole or streamed."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.dialogue.answer_text import Text
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.serve.chat.answer_reading import collect, total_usage
from sharpi.serve.chat.chat_call import (
    AnswerDelta,
    AnswerDeltaOrEnd,
    AnswerEnd,
    AnswerShape,
    EndReason,
    PromptRequest,
)
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.chat.generation_body import answer_shape, first_limit, generation_of
from sharpi.serve.chat.prompt_tokens import PromptLimit
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import prepared
from sharpi.serve.http.errors import raise_invalid
from sharpi.serve.http.event_stream import Events, event_stream
from sharpi.serve.openai.bodies import MAX_PROMPTS, CompletionsBody
from sharpi.serve.openai.chat import (
    LegacyLogprobs,
    choice_events,
    completion_head,
    error_event,
    usage_body,
)
from sharpi.settings import GenerationRequest
from sharpi.tokenizer.tokenizer import Tokenizer

_DEFAULT_TOKENS = 16  # OpenAI's default


class CompletionsRequest(Struct, frozen=True):
    """The prompts of a /v1/completions request, and how their answers are sent."""

    prompts: tuple[list[int], ...]  # token ids
    echoes: tuple[str, ...]  # for each prompt, the text to put before its answers, or ""
    request: GenerationRequest
    shape: AnswerShape
    num_answers: int  # for each prompt
    is_stream: bool
    includes_usage: bool  # a stream ends with its usage
    # For each prompt to echo, its tokens with log probabilities; empty until they are computed.
    scored: tuple[Sequence[SampledToken], ...] = ()

    @property
    def wants_scores(self) -> bool:
        """True if the prompts need log probabilities, because they are echoed with them."""
        return any(self.echoes) and self.request.num_logprobs is not None


def completions_request(
    body: CompletionsBody, host: ModelHost, limit: PromptLimit
) -> CompletionsRequest:
    """Translates the body to a CompletionsRequest; tokenizes its prompts, which may be slow.

    Raises ApiError and ContextFullError.
    """
    num_answers = body.n or 1
    if body.best_of not in (None, num_answers):
        raise_invalid("best_of", "cannot be honoured: every answer is sent; leave it out")
    if body.logprobs is None or isinstance(body.logprobs, bool):
        num_logprobs = 0 if body.logprobs else None
    else:
        num_logprobs = body.logprobs
    max_tokens = first_limit(body.max_tokens, body.n_predict, _DEFAULT_TOKENS)
    request = generation_of(body, host, max_tokens, num_logprobs)
    prompts = [_prompt(each, limit) for each in _prompts(body.prompt)]
    options = body.stream_options
    return CompletionsRequest(
        tuple(ids for _, ids in prompts),
        tuple(text for text, _ in prompts) if body.echo else ("",) * len(prompts),
        request,
        answer_shape(body),
        num_answers,
        body.stream or False,
        bool(options is not None and options.include_usage),
    )


def _prompts(value: Any) -> list[str | list[int]]:
    """Returns a list of prompts, each a string or a list of token ids; raises ApiError."""
    if isinstance(value, str) or (value and isinstance(value[0], int)):
        value = [value]
    if not value:
        raise_invalid("prompt", "must be a string, a list of strings, of ids, or of lists of ids")
    if len(value) > MAX_PROMPTS:
        raise_invalid("prompt", f"must have {MAX_PROMPTS} prompts at most")
    return list(value)


def _prompt(value: str | list[Any], limit: PromptLimit) -> tuple[str, list[int]]:
    tokenizer = limit.tokenizer
    if isinstance(value, str):
        ids = limit.encode(value, add_bos=tokenizer.add_bos)
    elif isinstance(value, list) and all(isinstance(each, int) for each in value):
        ids = value
    else:
        raise_invalid("prompt", "must be a string, a list of strings, of ids, or of lists of ids")
    if not ids:
        raise_invalid("prompt", "is empty, and the model has no BOS token")
    if not all(0 <= token_id < tokenizer.vocab_size for token_id in ids):
        raise_invalid("prompt", f"has ids that are not from 0 to {tokenizer.vocab_size - 1}")
    return value if isinstance(value, str) else tokenizer.decode(ids), ids


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
        headers = self._host.note(prompt_requests[0].notes)
        if asked.is_stream:
            chunks = completion_chunks(self._host, asked, prompt_requests, model.tokenizer)
            return await event_stream(chunks, error_event, headers)
        answer = await completion(self._host, asked, prompt_requests, model.tokenizer)
        return JSONResponse(answer, headers=headers)


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
