"""A conversation with a model: its messages, its session, and how they are saved. No terminal here.

A model without a chat template knows no roles: then what the person types and what the model adds
are one growing text, each line continuing everything before it.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpi.cli.chat.prompt import is_plain
from sharpi.cli.chat.transcript import Transcript
from sharpi.cli.options.answer_form import FormedAnswers
from sharpi.cli.options.conversation import ConversationOptions
from sharpi.config import GenerationRequest
from sharpi.errors import UsageError

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine
    from sharpi.engine.generation import Generation
    from sharpi.engine.sampling.timings import Timings
    from sharpi.experts.stats.stats import ExpertStats

Message = dict[str, str]
_ROLES = ("system", "user", "assistant")


class Conversation:
    """Messages in order, and the session whose KV cache holds their beginning."""

    def __init__(
        self,
        engine: "Engine",
        request: GenerationRequest,
        options: ConversationOptions,
        formed: FormedAnswers | None = None,
    ) -> None:
        self._engine, self._request = engine, request
        self._is_plain = is_plain(engine, options)
        self._think = options.think
        self._session = engine.session()
        self._transcript = Transcript(engine.tokenizer)
        self.formed = formed  # what form all answers have
        self.messages: list[Message] = []
        self.prompt = ""  # the whole text before the newest answer
        self.timings: Timings | None = None
        self.set_system(options.system)

    @property
    def is_plain(self) -> bool:
        """Whether the turns are one growing text, for want of a chat template."""
        return self._is_plain

    @property
    def num_tokens(self) -> int:
        """Tokens in the KV cache."""
        return len(self._session.tokens)

    @property
    def context_size(self) -> int:
        """Tokens that fit the KV cache."""
        return self._engine.context_size

    @property
    def system(self) -> str | None:
        """The system message, if there is one."""
        first = self.messages[:1]
        return first[0]["content"] if first and first[0]["role"] == "system" else None

    def expert_stats(self) -> "ExpertStats | None":
        """What the slots for experts did so far; None if there is nothing to count."""
        return self._engine.expert_stats()

    def set_system(self, text: str | None) -> None:
        """Replace the system message (None or empty: remove it); the other messages stay."""
        if text and self._is_plain:
            raise UsageError("this model has no chat template, so no place for a system message")
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages = [_message("system", text), *rest] if text else list(rest)

    def ask(self, text: str) -> "Generation":
        """The answer to `text`, to be iterated and then given to `keep` or `forget_question`.

        Raises TemplateError; the conversation is then as before.
        """
        self.messages.append(_message("user", text))
        try:
            self.prompt = self._render()
            ids = self._transcript.ids_of(self.prompt)
            constraint = self.formed.constraint(self.prompt) if self.formed else None
            return self._session.generate(ids, self._request, constraint=constraint)
        except BaseException:
            self.forget_question()
            raise

    def keep(self, generation: "Generation") -> None:
        """Take the answer, whole or broken off, into the conversation; without one, no question."""
        self.timings = generation.timings
        if not generation.text:
            self.forget_question()
            return
        self.messages.append(_message("assistant", generation.text))
        self._transcript.add_answer(generation.text, generation.ids)

    def forget_question(self) -> None:
        """Drop the newest message; templates refuse two questions in a row."""
        self.messages.pop()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = self.messages[:1] if self.system is not None else []
        self._session.reset()

    def save(self, path: Path) -> None:
        """Write the messages as JSON, whole or not at all; raises UsageError."""
        record = {"model": str(self._engine.config.model), "messages": self.messages}
        draft = path.with_name(path.name + ".part")
        try:
            draft.write_text(json.dumps(record, ensure_ascii=False, indent=2) + "\n", "utf-8")
            os.replace(draft, path)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error

    def load(self, path: Path) -> None:
        """Take over the messages of a saved conversation; raises UsageError and changes nothing."""
        try:
            record = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not a saved conversation: {error}") from error
        messages = _checked_messages(record, path)
        if self._is_plain and any(message["role"] == "system" for message in messages):
            raise UsageError(f"{path} has a system message; this model has no place for it")
        self.messages = messages

    def _render(self) -> str:
        if self._is_plain:
            return _one_text(self.messages)
        messages = [_without_channels(message) for message in self.messages]
        return self._engine.chat_format.render(messages, enable_thinking=self._think)


def _without_channels(message: Message) -> Message:
    """An earlier answer as gpt-oss's template wants it, which refuses the markers of channels."""
    from sharpi.dialogue.channel_splitter import without_channels

    if message["role"] != "assistant":
        return message
    return {**message, "content": without_channels(message["content"])}


def _one_text(messages: Iterable[Message]) -> str:
    """The turns of a plain conversation; each question starts on a line of its own."""
    text = ""
    for message in messages:
        if message["role"] == "user" and text and not text.endswith("\n"):
            text += "\n"
        text += message["content"]
    return text


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _checked_messages(record: Any, path: Path) -> list[Message]:
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise UsageError(f'{path} is not a saved conversation: no "messages" with role and content')
    return [_message(message["role"], message["content"]) for message in messages]


def _is_message(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.get("role") in _ROLES
        and isinstance(item.get("content"), str)
    )
