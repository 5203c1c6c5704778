"""/v1/completions: its body as tokenized prompts, and its responses, whole or streamed."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from sharpi.dialogue.answer_text import Text
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.serve.chat.answer_reading import collect, total_usage
from sharpi.serve.chat.chat_call import AnswerDelta, AnswerDeltaOrEnd, AnswerEnd, EndReason
from sharpi.serve.chat.chat_model import Answering, ChatModel
from sharpi.serve.chat.generation_body import answer_shape, first_limit, generation_of
from sharpi.serve.chat.logprobs import LegacyLogprobs
from sharpi.serve.chat.prompt_tokens import prompts_of
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Events
from sharpi.serve.http.errors import raise_invalid
from sharpi.serve.openai.bodies import CompletionsBody
from sharpi.serve.openai.chat import choice_events, completion_head, usage_body

_DEFAULT_TOKENS = 16  # OpenAI's default
_FINISH: dict[EndReason, str] = {"stop": "stop", "stop_string": "stop"}
_CUT = "length"


class Completions(Answering):
    """Continues the text of one or more prompts."""

    def __init__(self, body: CompletionsBody, model: ChatModel, host: ModelHost) -> None:
        self._num_answers = body.n or 1
        if body.best_of not in (None, self._num_answers):
            raise_invalid("best_of", "cannot be honoured: every answer is sent; leave it out")
        self._num_logprobs = body.logprobs
        if body.logprobs is None or isinstance(body.logprobs, bool):
            self._num_logprobs = 0 if body.logprobs else None
        max_tokens = first_limit(body.max_tokens, body.n_predict, _DEFAULT_TOKENS)
        request = generation_of(body, host, max_tokens, self._num_logprobs)
        self._prompts = prompts_of(body.prompt, model.limit)
        requests = model.completion_requests(
            [ids for _, ids in self._prompts], request, answer_shape(body), self._num_answers
        )
        super().__init__(host, requests, is_stream=body.stream)
        self._echoes, self._tokenizer = bool(body.echo), model.tokenizer
        self._includes_usage = body.includes_usage

    async def whole(self) -> dict[str, Any]:
        choices = await self._choices()
        collected = await collect(self.host, self.prompt_requests)
        ends = [each.end for each in collected if each.end]
        usage = total_usage([end.usage for end in ends], self._num_answers)
        answers = [
            choice.chunk(AnswerDelta(Text(each.text), tuple(each.tokens)))
            | {"finish_reason": _FINISH.get(end.reason, _CUT)}
            for choice, each, end in zip(choices, collected, ends, strict=True)
        ]
        return {**self._head(), "choices": answers, "usage": usage_body(usage)}

    async def events(self) -> Events:
        choices, usage = await self._choices(), self._includes_usage
        stream = choice_events(self, self._head(), choices, self._num_answers, usage)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    async def _choices(self) -> list["_Choice"]:
        """Returns the converters of all answers; computes log probabilities of echoed prompts."""
        scored: list[list[SampledToken]] = [[] for _ in self._prompts]
        if self._echoes and self._num_logprobs is not None:
            scored = [await self.host.scored(ids, self._num_logprobs) for _, ids in self._prompts]
        return [
            self._choice(number, self._prompts[number // self._num_answers][0], prompt_scores)
            for number, prompt_scores in enumerate(
                each for each in scored for _ in range(self._num_answers)
            )
        ]

    def _choice(self, number: int, prompt: str, scored: list[SampledToken]) -> "_Choice":
        echo, logprobs = prompt if self._echoes else "", None
        if self._num_logprobs is not None:
            logprobs = LegacyLogprobs(self._tokenizer, 0 if scored else len(echo))
        return _Choice(number, echo, scored, logprobs)

    def _head(self) -> dict[str, Any]:
        return completion_head(self.host, "text_completion", "cmpl-")


class _Choice:
    """Converts the parts of one answer to chunks; the first begins with the echoed prompt."""

    def __init__(
        self, number: int, echo: str, scored: list[SampledToken], logprobs: LegacyLogprobs | None
    ) -> None:
        self._number, self._echo = number, echo
        self._scored, self._logprobs = scored, logprobs  # of the echoed prompt; of all tokens

    def of(self, item: AnswerDeltaOrEnd) -> Iterator[dict[str, Any]]:
        if isinstance(item, AnswerEnd):
            last = self.chunk(AnswerDelta(Text("")))
            yield last | {"finish_reason": _FINISH.get(item.reason, _CUT)}
        else:
            yield self.chunk(item)

    def chunk(self, part: AnswerDelta) -> dict[str, Any]:
        echo, self._echo = self._echo, ""
        tokens, self._scored = [*self._scored, *part.tokens], []
        logprobs = self._logprobs.of(tokens) if self._logprobs and tokens else None
        return {
            "index": self._number,
            "text": echo + part.event.text if isinstance(part.event, Text) else echo,
            "logprobs": logprobs,
            "finish_reason": None,
        }
