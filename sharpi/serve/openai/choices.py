"""The parts that chat completions and legacy completions share: head, usage and stream."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from sharpi.engine.sampling.text_delta import PrefillProgress
from sharpi.serve.chat.answer_parts import AnswerDeltaOrEnd, AnswerEnd, PromptRequest, Usage
from sharpi.serve.chat.answer_reading import answer_events, new_id, total_usage
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.event_stream import DONE, Events, data_event


class ChoiceChunks(Protocol):
    """Converts one choice of a stream."""

    def of(self, item: AnswerDeltaOrEnd) -> Iterable[dict[str, Any]]:
        """Returns the chunks of one part, or of the end."""


def completion_head(host: ModelHost, kind: str, id_prefix: str) -> dict[str, Any]:
    """Returns the fields at the beginning of a body and of every chunk."""
    return {
        "id": new_id(id_prefix),
        "object": kind,
        "created": int(time.time()),
        "model": host.model_id,
    }


def usage_body(usage: Usage) -> dict[str, Any]:
    """Returns the usage in the form of both kinds of completions."""
    return {
        "prompt_tokens": usage.num_prompt,
        "completion_tokens": usage.num_generated,
        "total_tokens": usage.num_prompt + usage.num_generated,
        "prompt_tokens_details": {"cached_tokens": usage.num_cached},
        "completion_tokens_details": {"reasoning_tokens": usage.num_reasoning},
    }


def progress_body(progress: PrefillProgress) -> dict[str, Any]:
    """Returns the progress of a prompt, with llama.cpp's names."""
    return {
        "total": progress.num_prompt,
        "cache": progress.num_cached,
        "processed": progress.num_done,
        "time_ms": round(1000 * progress.seconds),
    }


async def choice_events(
    host: ModelHost,
    prompt_requests: Sequence[PromptRequest],
    head: dict[str, Any],
    choices: Sequence[ChoiceChunks],
    answers_per_prompt: int,
    includes_usage: bool,
) -> Events:
    """Yields the events of a stream with a choice for each request.

    `includes_usage` adds an event at the end.
    """
    usages = [Usage()] * len(prompt_requests)

    def events_of(number: int, item: AnswerDeltaOrEnd) -> Iterator[bytes]:
        if isinstance(item, AnswerEnd):
            usages[number] = item.usage
        for choice in choices[number].of(item):
            yield data_event(head | {"choices": [choice]})

    def progress_event(progress: PrefillProgress) -> bytes:
        return data_event(head | {"choices": [], "prompt_progress": progress_body(progress)})

    stream = answer_events(host, prompt_requests, events_of, progress_event=progress_event)
    async with aclosing(stream) as events:
        async for event in events:
            yield event
    if includes_usage:
        usage = usage_body(total_usage(usages, answers_per_prompt))
        yield data_event(head | {"choices": [], "usage": usage})
    yield DONE
