"""Responses turns an answer into the events or the body of a /v1/responses response."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from sharpi.dialogue.answer_text import CallArguments, CallBegin, Reasoning, Text
from sharpi.serve.chat.answer_reading import answer_events, new_id
from sharpi.serve.chat.chat_call import AnswerDelta, AnswerDeltaOrEnd, AnswerEnd, Usage
from sharpi.serve.chat.chat_model import Answering, ChatModel
from sharpi.serve.chat.logprobs import listed_logprobs
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Events, named_event
from sharpi.serve.http.errors import ApiError
from sharpi.serve.openai.bodies import ResponsesBody
from sharpi.serve.openai.chat_request import CUSTOM_ARGUMENT
from sharpi.serve.openai.responses_request import responses_request
from sharpi.tokenizer.tokenizer import Tokenizer

Event = dict[str, Any]


class Item(ABC):
    """The output item `index` of a response; its `body` is complete after `end`."""

    def __init__(self, index: int, prefix: str, body: Event) -> None:
        self._index = index
        self.body = {"id": new_id(prefix), **body, "status": "in_progress"}
        self._pieces: list[str] = []

    def begin(self) -> Iterator[Event]:
        """Yields the events that announce the item."""
        item = {"type": "response.output_item.added", "item": dict(self.body)}
        yield item | {"output_index": self._index}

    @abstractmethod
    def add(self, part: AnswerDelta) -> Iterator[Event]:
        """Yields the delta events for one more part of the answer."""

    @abstractmethod
    def contents_end(self, text: str) -> Iterator[Event]:
        """Stores the complete text in `body`, and yields the events that report it."""

    def end(self, status: str) -> Iterator[Event]:
        """Yields the events that end the item, which then has `status`."""
        yield from self.contents_end("".join(self._pieces))
        self.body["status"] = status
        item = {"type": "response.output_item.done", "item": self.body}
        yield item | {"output_index": self._index}

    def _event(self, kind: str, **values: Any) -> Event:
        place = {"item_id": self.body["id"], "output_index": self._index}
        return {"type": f"response.{kind}", **place, **values}

    def _piece(self, part: AnswerDelta) -> str:
        text = "" if isinstance(part.event, CallBegin) else part.event.text
        self._pieces.append(text)
        return text


class TextItem(Item):
    """The output item with reasoning, or with the answer's text and its logprobs."""

    def __init__(self, index: int, tokenizer: Tokenizer, *, is_reasoning: bool) -> None:
        self.is_reasoning, self._tokenizer = is_reasoning, tokenizer
        self._logprobs: list[Event] = []
        if is_reasoning:
            super().__init__(index, "rs_", {"type": "reasoning", "summary": [], "content": []})
            self._name, self._empty = "reasoning_text", Event(type="reasoning_text", text="")
        else:
            super().__init__(index, "msg_", {"type": "message", "role": "assistant", "content": []})
            self._name = "output_text"
            self._empty = Event(type="output_text", text="", annotations=[], logprobs=[])

    def begin(self) -> Iterator[Event]:
        yield from super().begin()
        yield self._event("content_part.added", content_index=0, part=dict(self._empty))

    def add(self, part: AnswerDelta) -> Iterator[Event]:
        scored = [token for token in part.tokens if token.logprob is not None]
        logprobs = listed_logprobs(self._tokenizer, scored)
        self._logprobs += logprobs
        text, extra = self._piece(part), self._extra(logprobs)
        yield self._event(f"{self._name}.delta", content_index=0, delta=text, **extra)

    def contents_end(self, text: str) -> Iterator[Event]:
        extra = self._extra(self._logprobs)
        part = self._empty | {"text": text} | extra
        self.body["content"] = [part]
        yield self._event(f"{self._name}.done", content_index=0, text=text, **extra)
        yield self._event("content_part.done", content_index=0, part=part)

    def _extra(self, logprobs: list[Event]) -> Event:
        return {} if self.is_reasoning else {"logprobs": logprobs}


class CallItem(Item):
    """The output item with a function call."""

    def __init__(self, index: int, name: str) -> None:
        call = {"type": "function_call", "call_id": new_id("call_"), "name": name}
        super().__init__(index, "fc_", {**call, "arguments": ""})

    def add(self, part: AnswerDelta) -> Iterator[Event]:
        yield self._event("function_call_arguments.delta", delta=self._piece(part))

    def contents_end(self, text: str) -> Iterator[Event]:
        self.body["arguments"] = text or "{}"
        done = {"arguments": self.body["arguments"], "name": self.body["name"]}
        yield self._event("function_call_arguments.done", **done)


class CustomCallItem(Item):
    """The output item with a call of a custom tool, whose text is an argument of a function."""

    def __init__(self, index: int, name: str) -> None:
        call = {"type": "custom_tool_call", "call_id": new_id("call_"), "name": name}
        super().__init__(index, "ctc_", {**call, "input": ""})

    def add(self, part: AnswerDelta) -> Iterator[Event]:
        self._piece(part)
        return iter(())

    def contents_end(self, text: str) -> Iterator[Event]:
        try:
            self.body["input"] = str(json.loads(text)[CUSTOM_ARGUMENT])
        except (ValueError, KeyError, TypeError):
            self.body["input"] = text
        yield self._event("custom_tool_call_input.delta", delta=self.body["input"])
        yield self._event("custom_tool_call_input.done", input=self.body["input"])


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
        async with aclosing(self.events()) as events:
            async for _ in events:
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
            case Text(_):
                yield from self._text(part, is_reasoning=False)
            case Reasoning(text) if text:
                yield from self._text(part, is_reasoning=True)
            case CallBegin(_, name):
                yield from self._close()
                kind = CustomCallItem if name in self._custom else CallItem
                yield from self._open(kind(self._index, name))
            case CallArguments(_, text) if text and self._item is not None:
                yield from self._item.add(part)

    def _text(self, part: AnswerDelta, *, is_reasoning: bool) -> Iterator[Event]:
        """Adds a part to the open output item, or to a new one if that is of another kind."""
        item = self._item
        if not isinstance(item, TextItem) or item.is_reasoning is not is_reasoning:
            yield from self._close()
            item = TextItem(self._index, self._tokenizer, is_reasoning=is_reasoning)
            yield from self._open(item)
        yield from item.add(part)

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
