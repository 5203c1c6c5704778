"""CollectedAnswer joins the parts of an answer, for clients that do not stream."""

from collections.abc import Sequence

from msgspec import Struct, field

from sharpi.dialogue.events import AnswerEvent, CallArguments, CallBegin, Reasoning, Text
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.serve.chat.answer_parts import AnswerDeltaOrEnd, AnswerEnd, PromptRequest
from sharpi.serve.chat.answer_reading import answers
from sharpi.serve.host.model_host import ModelHost


class CollectedCall(Struct):
    """A tool call with the JSON text of its arguments."""

    name: str
    deltas: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """The JSON text of the arguments; `{}` if the model generated none."""
        return "".join(self.deltas) or "{}"


class CollectedAnswer(Struct):
    """All parts of one answer that were received so far."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[CollectedCall] = field(default_factory=list)
    tokens: list[SampledToken] = field(default_factory=list)
    end: AnswerEnd | None = None  # None until the answer has ended

    @property
    def text(self) -> str:
        """The text of the answer, without reasoning and tool calls."""
        return "".join(self.texts)

    @property
    def reasoning(self) -> str:
        """The reasoning before the answer."""
        return "".join(self.thoughts)

    def add(self, item: AnswerDeltaOrEnd) -> None:
        """Adds one part of the answer, or its end."""
        if isinstance(item, AnswerEnd):
            self.end = item
        else:
            self.tokens += item.tokens
            self._take(item.event)

    def _take(self, event: AnswerEvent) -> None:
        match event:
            case Text(text):
                self.texts.append(text)
            case Reasoning(text):
                self.thoughts.append(text)
            case CallBegin(_, name):
                self.calls.append(CollectedCall(name))
            case CallArguments(index, text):
                self.calls[index].deltas.append(text)


async def collect(
    host: ModelHost, prompt_requests: Sequence[PromptRequest]
) -> list[CollectedAnswer]:
    """Generates and returns the complete answers, in the order of the requests."""
    collected = [CollectedAnswer() for _ in prompt_requests]
    async with answers(host, prompt_requests) as items:
        async for numbered in items:
            if numbered is not None:
                number, item = numbered
                collected[number].add(item)
    return collected
