"""Responses turns an answer into the events or the body of a /v1/responses response."""

import time
from collections.abc import Iterator
from typing import Any

from sharpi.dialogue.answer_text import CallArguments, CallBegin, Reasoning, Text
from sharpi.serve.chat.answer_reading import answer_events, answers, new_id
from sharpi.serve.chat.answering import Answering
from sharpi.serve.chat.chat_call import (
    AnswerDelta,
    AnswerDeltaOrEnd,
    AnswerEnd,
    Usage,
)
from sharpi.serve.chat.chat_model import ChatModel
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.errors import ApiError
from sharpi.serve.http.event_stream import Events, named_event
from sharpi.serve.openai.bodies import ResponsesBody
from sharpi.serve.openai.response_output import (
    CallItem,
    CustomCallItem,
    Item,
    MessageItem,
    ReasoningItem,
)
from sharpi.serve.openai.responses_request import responses_request

Event = dict[str, Any]


class Responses(Answering):
    """Answers a conversation with output items: reasoning, a message or function calls."""

    def __init__(self, body: ResponsesBody, model: ChatModel, host: ModelHost) -> None:
        asked = responses_request(body, host)
        requests = model.prompt_requests(asked.call)
        super().__init__(host, requests, is_stream=body.stream, notes=asked.call.notes)
        self._tokenizer, self._custom = model.tokenizer, asked.custom
        self._number = -1
        self._item: Item | None = None
        self.response: Event = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": host.model_id,
            "output": [],
            "previous_response_id": None,
            "store": False,
            "usage": None,
            **asked.echoed,
        }

    def events(self) -> Events:
        return answer_events(
            self.host, self.prompt_requests, lambda _, item: map(named_event, self._of(item))
        )

    async def whole(self) -> Event:
        async with answers(self.host, self.prompt_requests) as items:
            async for numbered in items:
                if numbered is not None:
                    for _ in self._of(numbered[1]):
                        pass
        return self.response

    def _of(self, item: AnswerDeltaOrEnd) -> Iterator[Event]:
        """Yields the stream events for one part of the answer, or for its end."""
        if self._number < 0:
            for kind in ("response.created", "response.in_progress"):
                yield self._event({"type": kind, "response": self.response})
        if isinstance(item, AnswerEnd):
            yield from self._end(item)
        else:
            yield from map(self._event, self._part(item))

    def error_event(self, error: ApiError) -> bytes:
        fault = {"code": error.code, "message": error.message, "param": error.param}
        return named_event(self._event({"type": "error", **fault}))

    def _part(self, part: AnswerDelta) -> Iterator[Event]:
        match part.event:
            case Text(text):
                yield from self._in(MessageItem, part)
            case Reasoning(text) if text:
                yield from self._in(ReasoningItem, part)
            case CallBegin(_, name):
                yield from self._close()
                kind = CustomCallItem if name in self._custom else CallItem
                yield from self._open(kind(self._index, self._tokenizer, name))
            case CallArguments(_, text) if text and self._item is not None:
                yield from self._item.add(part)

    def _in(
        self, kind: type[MessageItem] | type[ReasoningItem], part: AnswerDelta
    ) -> Iterator[Event]:
        """Adds a part to the open output item, or to a new one if that is not of type `kind`."""
        if not isinstance(self._item, kind):
            yield from self._close()
            yield from self._open(kind(self._index, self._tokenizer))
        assert self._item is not None
        yield from self._item.add(part)

    def _open(self, item: Item) -> Iterator[Event]:
        self._item = item
        yield from item.begin()

    def _close(self, status: str = "completed") -> Iterator[Event]:
        if self._item is None:
            return
        yield from self._item.end(status)
        self.response["output"].append(self._item.body)
        self._item = None

    def _end(self, end: AnswerEnd) -> Iterator[Event]:
        is_cut = end.reason in ("length", "context")
        status = "incomplete" if is_cut else "completed"
        yield from map(self._event, self._close(status))
        self.response |= {"status": status, "usage": _usage(end.usage)}
        if is_cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self.response["completed_at"] = int(time.time())
        yield self._event({"type": f"response.{status}", "response": self.response})

    @property
    def _index(self) -> int:
        return len(self.response["output"])

    def _event(self, event: Event) -> Event:
        self._number += 1
        return event | {"sequence_number": self._number}


def _usage(usage: Usage) -> Event:
    return {
        "input_tokens": usage.num_prompt,
        "input_tokens_details": {"cached_tokens": usage.num_cached, "cache_write_tokens": 0},
        "output_tokens": usage.num_generated,
        "output_tokens_details": {"reasoning_tokens": usage.num_reasoning},
        "total_tokens": usage.num_prompt + usage.num_generated,
    }
