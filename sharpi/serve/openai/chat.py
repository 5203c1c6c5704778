"""Builds the responses of /v1/chat/completions, as one body or as a stream of chunks.

/v1/completions uses the same functions for head, usage and stream.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from msgspec.structs import replace

from sharpi.dialogue.answer_text import AnswerEvent, CallArguments, CallBegin, Reasoning, Text
from sharpi.engine.sampling.generation_state import PrefillProgress
from sharpi.serve.chat.answer_reading import (
    CollectedAnswer,
    answer_events,
    collect,
    new_id,
    total_usage,
)
from sharpi.serve.chat.chat_call import (
    AnswerDeltaOrEnd,
    AnswerEnd,
    EndReason,
    Usage,
    call_message,
)
from sharpi.serve.chat.chat_model import Answering, ChatModel
from sharpi.serve.chat.logprobs import chat_logprobs
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import DONE, Events, data_event
from sharpi.serve.openai.bodies import ChatBody
from sharpi.serve.openai.chat_request import chat_call
from sharpi.tokenizer.tokenizer import Tokenizer

_ID_PREFIX = "chatcmpl-"
_FINISH: dict[EndReason, str] = {
    "stop": "stop",
    "stop_string": "stop",
    "length": "length",
    "context": "length",
    "calls": "tool_calls",
}


class ChatAnswers(Answering):
    """Answers a chat with the next message."""

    def __init__(self, body: ChatBody, model: ChatModel, host: ModelHost) -> None:
        call = chat_call(body, host)
        requests = model.prompt_requests(call)
        if body.stream and body.return_progress:
            requests = [replace(each, wants_progress=True) for each in requests]
        super().__init__(host, requests, is_stream=body.stream, notes=call.notes)
        self._tokenizer = model.tokenizer
        self._includes_usage = body.includes_usage

    async def whole(self) -> dict[str, Any]:
        collected = await collect(self.host, self.prompt_requests)
        usage = total_usage([each.end.usage for each in collected if each.end], len(collected))
        return {
            **completion_head(self.host, "chat.completion", _ID_PREFIX),
            "choices": [_choice(i, each, self._tokenizer) for i, each in enumerate(collected)],
            "usage": usage_body(usage),
        }

    def events(self) -> Events:
        head = completion_head(self.host, "chat.completion.chunk", _ID_PREFIX)
        if self._includes_usage:
            head["usage"] = None
        count = len(self.prompt_requests)
        chunks = [_ChoiceChunks(number, self._tokenizer) for number in range(count)]
        return choice_events(self, head, chunks, count, self._includes_usage)


class _ChoiceChunks:
    """Converts the parts of one answer to chunks; the first chunk holds the role."""

    def __init__(self, number: int, tokenizer: Tokenizer) -> None:
        self._number, self._tokenizer = number, tokenizer
        self._has_begun = False

    def of(self, item: AnswerDeltaOrEnd) -> list[dict[str, Any]]:
        choices = []
        if not self._has_begun:
            self._has_begun = True
            choices.append(self._chunk({"role": "assistant", "content": ""}))
        if isinstance(item, AnswerEnd):
            return [*choices, self._chunk({}, _FINISH[item.reason])]
        chunk = self._chunk(_delta(item.event))
        if any(token.logprob is not None for token in item.tokens):
            chunk["logprobs"] = chat_logprobs(self._tokenizer, item.tokens)
        return [*choices, chunk]

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {
            "index": self._number,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason,
        }


def _delta(event: AnswerEvent) -> dict[str, Any]:
    match event:
        case Text(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallBegin(index, name):
            return {"tool_calls": [{"index": index} | call_message(new_id("call_"), name, "")]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _choice(number: int, collected: CollectedAnswer, tokenizer: Tokenizer) -> dict[str, Any]:
    assert collected.end is not None
    has_logprobs = any(token.logprob is not None for token in collected.tokens)
    return {
        "index": number,
        "message": _message(collected),
        "logprobs": chat_logprobs(tokenizer, collected.tokens) if has_logprobs else None,
        "finish_reason": _FINISH[collected.end.reason],
    }


def _message(collected: CollectedAnswer) -> dict[str, Any]:
    calls = [call_message(new_id("call_"), each.name, each.text) for each in collected.calls]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if calls and not collected.text else collected.text,
        "refusal": None,
    }
    if collected.reasoning:
        message["reasoning_content"] = collected.reasoning
    return message | ({"tool_calls": calls} if calls else {})


class ChoiceChunks(Protocol):
    """An interface that converts the parts of one answer to stream chunks."""

    def of(self, item: AnswerDeltaOrEnd) -> Iterable[dict[str, Any]]:
        """Returns the `choices` entries for one part of the answer, or for its end."""


def completion_head(host: ModelHost, kind: str, id_prefix: str) -> dict[str, Any]:
    """Returns the fields id, object, created and model of a body or of all chunks of a stream."""
    return {
        "id": new_id(id_prefix),
        "object": kind,
        "created": int(time.time()),
        "model": host.model_id,
    }


def usage_body(usage: Usage) -> dict[str, Any]:
    """Returns the `usage` object of chat completions and completions."""
    return {
        "prompt_tokens": usage.num_prompt,
        "completion_tokens": usage.num_generated,
        "total_tokens": usage.num_prompt + usage.num_generated,
        "prompt_tokens_details": {"cached_tokens": usage.num_cached},
        "completion_tokens_details": {"reasoning_tokens": usage.num_reasoning},
    }


def progress_body(progress: PrefillProgress) -> dict[str, Any]:
    """Returns the progress of prefill, with the field names of llama.cpp's server."""
    return {
        "total": progress.num_prompt,
        "cache": progress.num_cached,
        "processed": progress.num_done,
        "time_ms": round(1000 * progress.seconds),
    }


async def choice_events(
    answering: Answering,
    head: dict[str, Any],
    choices: Sequence[ChoiceChunks],
    answers_per_prompt: int,
    includes_usage: bool,
) -> Events:
    """Yields a stream's events, which begin with `head`, and the usage if it is included."""
    host, requests = answering.host, answering.prompt_requests
    usages = [Usage()] * len(requests)

    def events_of(number: int, item: AnswerDeltaOrEnd) -> Iterator[bytes]:
        if isinstance(item, AnswerEnd):
            usages[number] = item.usage
        for choice in choices[number].of(item):
            yield data_event(head | {"choices": [choice]})

    def progress_event(progress: PrefillProgress) -> bytes:
        return data_event(head | {"choices": [], "prompt_progress": progress_body(progress)})

    stream = answer_events(host, requests, events_of, progress_event=progress_event)
    async with aclosing(stream) as events:
        async for event in events:
            yield event
    if includes_usage:
        usage = usage_body(total_usage(usages, answers_per_prompt))
        yield data_event(head | {"choices": [], "usage": usage})
    yield DONE
