"""gpt-oss's harmony format: messages in channels for reasoning, comments, calls and the answer."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sharpi.dialogue.answer_text import AnswerEvent, AnswerText, Calls, Reasoning, Steps, Text
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.notations import Notation
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import ReasoningMarkers

START, CHANNEL, MESSAGE, END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
_CONSTRAIN, _CALL, _RETURN = "<|constrain|>", "<|call|>", "<|return|>"
TURN = f"{START}assistant"
FINAL = f"{CHANNEL}final{MESSAGE}"
_ANALYSIS = f"{CHANNEL}analysis"
ANALYSIS = ReasoningMarkers(_ANALYSIS + MESSAGE, END)
_HEADER_MARKERS = (START, CHANNEL, MESSAGE)
_BODY_MARKERS = (START, CHANNEL, END, _CALL, _RETURN)
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_FUNCTIONS, _AFTER_ROLE = "functions.", " to="


class Harmony(ToolFormat):
    """Reads and writes messages of the form `<|channel|>name<|message|>text<|end|>`.

    Each further message follows `<|start|>assistant`. A message to `functions.name` is a call, one
    in the channel `analysis` is reasoning, and any other is text.
    """

    reasoning = ANALYSIS

    def __init__(self) -> None:
        between, signs = _CALL + TURN, (CHANNEL, MESSAGE)
        notation = Notation(name="gpt-oss", between=between, is_single=True, signs=signs)
        super().__init__(notation, written=(START, CHANNEL, MESSAGE, END, _CONSTRAIN))

    def read_answer(
        self,
        source: AnswerText,
        calls: Calls,
        reasoning: ReasoningMarkers | None,
        starts_inside: bool,
    ) -> Steps[None]:
        event: Callable[[str], AnswerEvent] = Reasoning if starts_inside else Text
        has_text = False
        role = "" if starts_inside else (yield from _read_recipient(source))
        marker = yield from source.emit_until((*_BODY_MARKERS, MESSAGE), event)
        while marker is not None:
            if marker in _HEADER_MARKERS:
                header = yield from _read_header(source, role + marker, marker)
                role = ""
                if header is None:
                    return
                if has_text and _ANALYSIS not in header:
                    yield Text("\n\n")
                has_text |= _ANALYSIS not in header
                marker = yield from _read_message(source, calls, header)
            else:
                marker = yield from source.emit_until((*_BODY_MARKERS, MESSAGE), Text)

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        return _begun(name) + json.dumps(arguments, ensure_ascii=False)

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        return f"{grammar.literal(_begun(tool.name))} {grammar.arguments(tool)}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        start = grammar.literal(TURN)
        return f"({start})? {super().expression(grammar, tools, parallel)}"


def _begun(name: str) -> str:
    """Returns the text of a call before its arguments."""
    return f"{CHANNEL}commentary to={_FUNCTIONS}{name} {_CONSTRAIN}json{MESSAGE}"


def _read_recipient(source: AnswerText) -> Steps[str]:
    """Reads and returns a recipient that follows the role, before the first channel; else ""."""
    if not (yield from source.accept(_AFTER_ROLE)):
        return ""
    text, marker = yield from source.read_until(_HEADER_MARKERS)
    source.at -= len(marker or "")
    return _AFTER_ROLE + text


def _read_header(source: AnswerText, header: str, marker: str) -> Steps[str | None]:
    """Reads on to `<|message|>` and returns the header, after others without; None at the end."""
    while marker != MESSAGE:
        text, found = yield from source.read_until((*_BODY_MARKERS, MESSAGE))
        if found is None:
            return None
        marker = found
        header = header + text + marker if marker in _HEADER_MARKERS else ""
    return header


def _read_message(source: AnswerText, calls: Calls, header: str) -> Steps[str | None]:
    """Yields the events of a message after its header, and returns the marker that ended it."""
    recipient = _RECIPIENT.search(header)
    name = recipient[1].removeprefix(_FUNCTIONS) if recipient and calls.tools else ""
    if recipient and name and (name in calls.tools or recipient[1].startswith(_FUNCTIONS)):
        yield from source.skip_blanks()
        if (yield from source.next()) == "{":
            yield calls.begin(name)
            yield from pass_value(source, calls.arguments)
    event = Reasoning if _ANALYSIS in header else Text
    return (yield from source.emit_until(_BODY_MARKERS, event))
