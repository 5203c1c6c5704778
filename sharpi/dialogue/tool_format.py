"""ToolFormat: the protocol of classes that read and write a model family's tool calls."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import ReasoningMarkers

_TOKEN = re.compile(r"<[^<>\s\"]+>|\[[A-Z_]+\]|\]<\]\w+\[>\[")
WrittenCall: TypeAlias = tuple[str, Mapping[str, Any]]


class ToolFormat(Protocol):
    """A stateless reader and writer of one notation of tool calls.

    `name`: that of the family. `signs`: what a template of the family has, or renders in a call.
    `markers`: the markers of the format, some of which may be control tokens. `reasoning`: the
    markers around reasoning, if the format defines them; else None.
    """

    @property
    def name(self) -> str: ...

    @property
    def signs(self) -> tuple[str, ...]: ...

    @property
    def reasoning(self) -> ReasoningMarkers | None: ...

    @property
    def markers(self) -> tuple[str, ...]: ...

    def read_answer(
        self,
        source: AnswerText,
        calls: Calls,
        reasoning: ReasoningMarkers | None,
        starts_inside: bool,
    ) -> Steps[None]:
        """Yields the events of an answer from its beginning to its end.

        If `calls` has no tools, nothing is read as a call. `starts_inside`: the prompt ends within
        the reasoning.
        """
        ...

    def write(self, calls: Sequence[WrittenCall]) -> str:
        """Returns the text of calls as the model would have written it."""
        ...

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        """Returns a grammar expression for one call, or if `parallel`, for one or more calls."""
        ...


def value_text(value: Any) -> str:
    """Returns an argument's text in formats without quotes: a string as it is, others as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tokens_in(written: str) -> tuple[str, ...]:
    """Returns the texts in a notation that have the form of special tokens, such as `<|end|>`."""
    return tuple(dict.fromkeys(_TOKEN.findall(written)))
