"""ToolFormat: the protocol by which a model family's calls are written and read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import ReasoningMarkers

WrittenCall: TypeAlias = tuple[str, Mapping[str, Any]]


class ToolFormat(Protocol):
    """One format, without state.

    `marks`: the markers of the format, some of which may be control tokens. `reasoning`: the
    markers around reasoning, if they belong to the format.
    """

    @property
    def reasoning(self) -> ReasoningMarkers | None: ...

    @property
    def marks(self) -> tuple[str, ...]: ...

    def read_answer(
        self,
        source: AnswerText,
        calls: Calls,
        markers: ReasoningMarkers | None,
        starts_inside: bool,
    ) -> Steps[None]:
        """Yields the events of a whole answer; without tools in `calls` nothing in it is a call.

        `starts_inside`: the prompt has opened the reasoning.
        """
        ...

    def write(self, calls: Sequence[WrittenCall]) -> str:
        """Returns the text of calls as the model would have written it."""
        ...

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        """Returns an expression for a call of one of the tools, or with `parallel` several."""
        ...


def value_text(value: Any) -> str:
    """Returns an argument for formats without quotes: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
