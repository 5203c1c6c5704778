"""ChatModel turns chat requests into PromptRequests: token ids, constraint and parser."""

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sharpi.constraints.answer_part import HARMONY_TURN
from sharpi.constraints.grammars import Grammars
from sharpi.dialogue.dialogue_format import dialogue_format
from sharpi.dialogue.formats.harmony import FINAL
from sharpi.engine.engine import Engine
from sharpi.errors import GrammarError
from sharpi.serve.chat.answer_constraint import AnswerConstraint, notes_of, shape_constraint
from sharpi.serve.chat.chat_call import AnswerShape, ChatCall, PromptRequest
from sharpi.serve.chat.prompt_tokens import PlainContents, PromptLimit, PromptMemory
from sharpi.serve.host.hosted_model import Loaded
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.endpoint import Body, Endpoint, Events, data_event, event_stream, prepared
from sharpi.serve.http.errors import ApiError, openai_body
from sharpi.settings import GenerationRequest
from sharpi.tokenizer.chat_template import ChatFormat
from sharpi.tokenizer.tokenizer import Tokenizer

_LONG_TEXT = " a" * 4096


class ChatModel:
    """Renders prompts, builds constraints and parsers of a model, slowly and on any thread."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        chat_format: ChatFormat,
        limit: PromptLimit,
        grammars: Grammars | None = None,
    ) -> None:
        self.tokenizer, self.limit = tokenizer, limit
        self.grammars = grammars or Grammars(tokenizer)
        self.dialogue = dialogue_format(tokenizer, chat_format)
        self.memory = PromptMemory(limit)
        self._contents = PlainContents(tokenizer)

    def prompt(self, call: ChatCall) -> str:
        """Renders the template, and the given beginning of the answer; raises TemplateError."""
        prompt = self.dialogue.render(
            self._contents.marked(list(call.messages)),
            tools=call.tools,
            choice=call.choice,
            enable_thinking=call.thinking.is_enabled,
            extra={**_response_format(call.shape), **call.thinking.template_values},
        )
        return self._begun(prompt, call.prefill) if call.prefill else prompt

    def _begun(self, prompt: str, prefill: str) -> str:
        """Appends the beginning of the answer; ends the reasoning first if the prompt begins it."""
        if prompt.endswith(HARMONY_TURN):
            return prompt + FINAL + prefill
        if self.dialogue.reasoning is not None and self.dialogue.starts_inside(prompt):
            return f"{prompt}{self.dialogue.reasoning.closing}\n\n{prefill}"
        return prompt + prefill

    def prompt_requests(self, call: ChatCall) -> list[PromptRequest]:
        """Returns a request for each answer of the chat; raises TemplateError and GrammarError."""
        prompt = self.prompt(call)
        ids = self.memory.ids_of(prompt)
        return [
            self._prompt_request(call, prompt, ids, number) for number in range(call.num_answers)
        ]

    def completion_requests(
        self, prompts: Sequence[list[int]], request: GenerationRequest, shape: AnswerShape, num: int
    ) -> list[PromptRequest]:
        """Returns `num` requests of plain text for each prompt; raises GrammarError."""
        numbers = [(ids, number) for ids in prompts for number in range(num)]
        constraints = [shape_constraint(self.grammars, shape) for _ in numbers]
        return [
            PromptRequest(ids, numbered(request, number), each, notes=notes_of(each))
            for (ids, number), each in zip(numbers, constraints, strict=True)
        ]

    def _prompt_request(
        self, call: ChatCall, prompt: str, ids: list[int], number: int
    ) -> PromptRequest:
        tools = () if call.choice.mode == "none" else call.tools
        constraint, notes = None, list[str]()
        if _has_rules(call):
            rules = AnswerConstraint(self.grammars, self.dialogue, call, prompt)
            constraint, notes = rules.build(), rules.notes
        return PromptRequest(
            ids,
            replace(
                numbered(call.request, number),
                shows_special=self.dialogue.shows_special,
                reasoning=self.dialogue.before_answer(prompt),
            ),
            constraint,
            parser=self.dialogue.parser(prompt, tools),
            parallel_calls=call.choice.parallel,
            notes=tuple(notes),
            remember=partial(self.memory.remember, prompt, ids),
        )


def _response_format(shape: AnswerShape) -> dict[str, Any]:
    """Returns the variable in which templates such as Kimi K3's find the form of the answer."""
    if not shape.kind.startswith("json"):
        return {}
    schema = {"json_schema": {"schema": shape.value}} if shape.kind == "json_schema" else {}
    return {"response_format": {"type": shape.kind, **schema}}


class VocabularyTables:
    """A tokenizer with tables for long prompts, and llguidance's tables for JSON schemas.

    Building both takes up to two seconds for the largest vocabularies. Each library holds the GIL
    for up to half a second of that time, which also stops the event loop.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.grammars = tokenizer, Grammars(tokenizer)
        tokenizer.encode(_LONG_TEXT, add_bos=False, parse_special=False)
        with contextlib.suppress(GrammarError):  # a model without an end token has no grammars
            self.grammars.json_object()


class ChatModels:
    """Creates and caches the ChatModel of the model that a ModelHost has loaded.

    The vocabulary tables stay in memory while the model is unloaded, so that loading it again does
    not stop the event loop. They are small, and do not keep the model's file mapped.
    """

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._tables: VocabularyTables | None = None
        self._making = threading.Lock()

    async def get(self) -> ChatModel:
        """Returns the ChatModel of the loaded model; loads the model first if it is unloaded."""
        loaded = await self._host.ready()
        model: ChatModel | None = loaded.per_model_cache.get(ChatModel)
        if model is None:
            return await asyncio.to_thread(self._model_of, loaded)
        return model

    def _model_of(self, loaded: Loaded) -> ChatModel:
        with self._making:
            model: ChatModel | None = loaded.per_model_cache.get(ChatModel)
            if model is None:
                model = loaded.per_model_cache[ChatModel] = self._make(loaded.engine)
                self._host.note(filter(None, [model.dialogue.note]))
            return model

    def _make(self, engine: Engine) -> ChatModel:
        known = self._tables
        if known is None or known.tokenizer.vocabulary != engine.tokenizer.vocabulary:
            known = self._tables = None  # drops the old tables before new ones exist
            known = self._tables = VocabularyTables(engine.tokenizer)
        limit = PromptLimit(known.tokenizer, engine.context_size, engine.config.context_shift)
        return ChatModel(known.tokenizer, engine.chat_format, limit, known.grammars)


def _has_rules(call: ChatCall) -> bool:
    """Returns whether the request has tools, a required form or a limit of reasoning."""
    limits_thinking = call.thinking.is_enabled is False or call.thinking.budget is not None
    return bool(call.tools) or call.shape.kind != "text" or limits_thinking


def numbered(request: GenerationRequest, number: int) -> GenerationRequest:
    """Returns the request of answer `number`, with that number added to a given seed."""
    sampling = request.sampling
    if sampling.seed is None or number == 0:
        return request
    return replace(request, sampling=replace(sampling, seed=sampling.seed + number))


B = TypeVar("B", bound=Body)


class Answering(ABC):
    """The prompt requests of one request, and the responses of its API."""

    def __init__(
        self,
        host: ModelHost,
        prompt_requests: Sequence[PromptRequest],
        *,
        is_stream: bool | None,
        notes: Sequence[str] = (),
    ) -> None:
        self.host, self.prompt_requests, self.is_stream = host, prompt_requests, is_stream
        self.notes = (*notes, *prompt_requests[0].notes)

    @abstractmethod
    def events(self) -> Events:
        """Generates the answers, and yields the server-sent events of a stream."""

    @abstractmethod
    async def whole(self) -> Any:
        """Generates the answers, and returns the JSON value of a response without a stream."""

    def error_event(self, error: ApiError) -> bytes:
        """Returns the server-sent event that reports an error in a stream that has begun."""
        return data_event(openai_body(error))


def answer_endpoint(
    host: ModelHost,
    chats: ChatModels,
    paths: tuple[str, ...],
    kind: type[B],
    make: Callable[[B, ChatModel, ModelHost], Answering],
) -> Endpoint:
    """Returns the endpoint that decodes bodies of `kind`, and responds with what `make` returns.

    Both decoding and `make` run in a worker thread. It has the docstring of `make`.
    """

    async def respond(request: Request) -> Response:
        model = await chats.get()
        answering = await prepared(request, kind, lambda body: make(body, model, host))
        headers = host.note(answering.notes)
        if answering.is_stream:
            return await event_stream(answering.events(), answering.error_event, headers)
        return JSONResponse(await answering.whole(), headers=headers)

    respond.__doc__ = make.__doc__
    return Endpoint("POST", paths[0], respond, kind, paths[1:], streams=True)
