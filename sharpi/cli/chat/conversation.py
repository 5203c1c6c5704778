"""A conversation with a model: its messages, its engine session, and saving to a file.

Without a chat template there are no roles. The user's and the model's text form one growing text,
and each line continues everything before it.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sharpi.cli.chat.prompt import ConstrainedAnswers, has_no_template, opening_ids, show_prompt
from sharpi.errors import TemplateError, UsageError
from sharpi.settings import GenerationRequest
from sharpi.settings.sampling import ConversationOptions
from sharpi.system.files import write_atomically

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine, Generation
    from sharpi.engine.prompt_cache.cache_folder import AnswerIds
    from sharpi.engine.sampling.generation_state import Timings
    from sharpi.tokenizer.tokenizer import Tokenizer

Message = dict[str, str]
FindIds = Callable[[str], list[int]]  # returns the ids of an answer; empty if they are unknown


class Transcript:
    """Stores segments of (text, ids), which together are what the KV cache holds.

    A text has many tokenizations, and a model does not always generate the one that the tokenizer
    would choose: tokenizing the full text again would often give other ids, which the KV cache does
    not hold. So only new text is tokenized, and answers keep the ids that were generated. A segment
    ends where a template wrote a marker or the model stopped, so no word is split. Where a template
    rewrites earlier messages (several drop old reasoning), the segments before that stay in use.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._segments: list[tuple[str, list[int]]] = []

    def ids_of(self, text: str) -> list[int]:
        """Returns the ids of the whole `text`, with stored ids for its known segments."""
        position = self._drop_what_differs(text)
        rest = text[position:]
        if rest:
            self._segments.append(self._encoded(rest, is_opening=position == 0))
        return [token for _, ids in self._segments for token in ids]

    def num_known(self, text: str) -> int:
        """Returns how many stored tokens `text` begins with; drops all stored tokens after them."""
        self._drop_what_differs(text)
        return sum(len(ids) for _, ids in self._segments)

    def recall(self, text: str, answers: Iterable[str], find: FindIds) -> None:
        """Stores the ids that the model generated for `answers` in `text`; `find` knows them."""
        at = position = self._drop_what_differs(text)
        begin = 0
        for answer in answers:
            start = text.find(answer, begin)
            if start < 0 or not answer:
                return
            begin = start + len(answer)
            if start >= position and (ids := find(answer)) and self._text_of(ids) == answer:
                if start > at:
                    self._segments.append(self._encoded(text[at:start], is_opening=at == 0))
                self._segments.append((answer, ids))
                at = begin

    def add_answer(self, text: str, ids: list[int]) -> None:
        """Stores the tokens that the model generated, if they decode to exactly `text`.

        They do not if a stop string was cut off or the last character is incomplete. Then `ids_of`
        tokenizes the answer like any other text.
        """
        if ids and self._text_of(ids) == text:
            self._segments.append((text, list(ids)))

    def _text_of(self, ids: list[int]) -> str:
        """Decodes `ids` as streaming does, which keeps a leading space."""
        from sharpi.tokenizer.stream import StreamDecoder

        decoder = StreamDecoder(self._tokenizer)
        return "".join(map(decoder.feed, ids)) + decoder.flush()

    def _drop_what_differs(self, text: str) -> int:
        """Drops all segments but those that `text` begins with; returns their total characters."""
        position = 0
        for count, (segment, _) in enumerate(self._segments):
            if not text.startswith(segment, position):
                del self._segments[count:]
                break
            position += len(segment)
        return position

    def _encoded(self, text: str, *, is_opening: bool) -> tuple[str, list[int]]:
        if is_opening:
            return text, opening_ids(self._tokenizer, text)
        return text, self._tokenizer.encode(text, add_bos=False, parse_special=True)


class Conversation:
    """Messages in order, and the session whose KV cache holds their beginning."""

    def __init__(
        self,
        engine: "Engine",
        request: GenerationRequest,
        options: ConversationOptions,
        constrained: ConstrainedAnswers | None = None,
    ) -> None:
        self.engine, self.request = engine, request
        # Whether the messages are one growing text, without roles.
        self.has_no_template = has_no_template(engine, options)
        self.think, self._shows_prompts = options.think, options.verbose_prompt
        self._session = engine.session()
        self._transcript = Transcript(engine.tokenizer)
        self.constrained = constrained  # builds the constraint of each answer
        self.messages: list[Message] = []
        self.prompt = ""  # the whole text before the newest answer
        self.timings: Timings | None = None
        # Tokens that remain after messages were removed or loaded; None after an answer.
        self._kept: int | None = None
        self.set_system(options.system)

    @property
    def num_tokens(self) -> int:
        """The number of the conversation's tokens that are in the KV cache."""
        return len(self._session.tokens) if self._kept is None else self._kept

    @property
    def system(self) -> str | None:
        """The system message, None if there is none."""
        first = self.messages[:1]
        return first[0]["content"] if first and first[0]["role"] == "system" else None

    def set_system(self, text: str | None) -> None:
        """Replaces or removes the system message; raises UsageError for one without a template."""
        if text and self.has_no_template:
            raise UsageError("this model has no chat template, so it takes no system message")
        rest = self.messages[1:] if self.system is not None else self.messages
        self.messages = [_message("system", text), *rest] if text else list(rest)

    def ask(self, text: str) -> "Generation":
        """Returns the generation of the answer to `text`.

        The caller iterates it, and then passes it to `keep` or calls `forget_question`. Raises
        TemplateError, which leaves the conversation unchanged.
        """
        self.messages.append(_message("user", text))
        self._kept = None
        try:
            self.prompt = self._render()
            ids = self._ids()
            if self._shows_prompts:
                show_prompt(self.engine.tokenizer, self.prompt, ids)
            constraint = self.constrained.constraint(self.prompt) if self.constrained else None
            return self._session.generate(ids, self.request, constraint=constraint)
        except BaseException:
            self.forget_question()
            raise

    def _ids(self) -> list[int]:
        """Returns the prompt's ids; answers found in the prompt cache keep their generated ids."""
        known = self._known_answers()
        if known is not None:
            said = [each["content"] for each in self.messages if each["role"] == "assistant"]
            self._transcript.recall(self.prompt, said, known.find)
        return self._transcript.ids_of(self.prompt)

    def _known_answers(self) -> "AnswerIds | None":
        store = self.engine.page_store
        return None if store is None else store.answers

    def keep(self, generation: "Generation") -> None:
        """Adds the answer, complete or interrupted; if it is empty, removes the question."""
        self.timings = generation.timings
        if not generation.text:
            self.forget_question()
            return
        self.messages.append(_message("assistant", generation.text))
        self._transcript.add_answer(generation.text, generation.ids)
        if (known := self._known_answers()) is not None:
            known.keep(generation.text, generation.ids)

    def forget_question(self) -> None:
        """Removes the newest message, since templates refuse two questions in a row."""
        self.messages.pop()

    def reset(self) -> None:
        """Removes all messages but the system message, and resets the session."""
        self.messages = self.messages[:1] if self.system is not None else []
        self._session.reset()
        self._recount()

    def undo_last(self) -> str:
        """Removes the last answer and its question, which it returns; UsageError without one."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            raise UsageError("there is no question yet")
        if len(self.messages) == 1 or self.messages[-2]["role"] != "user":
            raise UsageError("the last answer has no question")
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        self._recount()
        return question

    def _recount(self) -> None:
        """Counts the tokens that remain after messages were removed; forgets the last timings."""
        self.timings, self._kept = None, 0
        if any(message["role"] != "system" for message in self.messages):
            with suppress(TemplateError):
                self._kept = self._transcript.num_known(self._render())

    def save(self, path: Path, *, replaces: bool = False) -> None:
        """Writes the messages as JSON, atomically; symbolic links are followed.

        Raises UsageError if the path is no regular file, or if the file exists and `replaces` is
        False.
        """
        record = {"model": str(self.engine.config.model), "messages": self.messages}
        text = json.dumps(record, ensure_ascii=False, indent=2) + "\n"
        try:
            if path.exists() and not path.is_file():
                raise UsageError(f"cannot write {path}: it is not a regular file")
            if path.exists() and not replaces:
                raise UsageError(f"{path} exists; /save -f {path} replaces it")
            write_atomically(path, text.encode("utf-8", "replace"))
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error

    def restore(self, messages: Iterable[Message], source: str) -> None:
        """Replaces all messages; raises UsageError, which names `source`, if it cannot."""
        messages = list(messages)
        if self.has_no_template and any(message["role"] == "system" for message in messages):
            raise UsageError(f"{source} has a system message, which this model does not take")
        self.messages = messages
        self._recount()

    def _render(self) -> str:
        if self.has_no_template:
            return _one_text(self.messages)
        messages = [_without_channels(message) for message in self.messages]
        return self.engine.chat_format.render(messages, enable_thinking=self.think)


def _without_channels(message: Message) -> Message:
    """Removes channel markers from an earlier answer, since gpt-oss's template refuses them."""
    from sharpi.dialogue.reasoning_splitter import without_channels

    if message["role"] != "assistant":
        return message
    return {**message, "content": without_channels(message["content"])}


def _one_text(messages: Iterable[Message]) -> str:
    """Joins all messages to one text, each question on a new line, where there is no template."""
    text = ""
    for message in messages:
        if message["role"] == "user" and text and not text.endswith("\n"):
            text += "\n"
        text += message["content"]
    return text


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
