"""The tool format of Hermes, Qwen2.5, Qwen3 and others: a JSON object in `<tool_call>` tags."""

import json
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import read_call
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_END = f"}}\n{_CLOSING}"


class Hermes(MarkedAnswer):
    """Reads and writes calls as `<tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call>`."""

    openings = (_OPENING,)
    markers = (_OPENING, _CLOSING)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if not (yield from read_call(source, calls)):
            return False
        yield from source.accept_marker(_CLOSING)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        return "\n".join(
            f"{_OPENING}\n"
            + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
            + f"\n{_CLOSING}"
            for name, arguments in calls
        )

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        call = grammar.rule(f"({grammar.called(tools, _begun)}) {grammar.literal(_END)}")
        return f'{call} ("\\n" {call})*' if parallel else call


def _begun(name: str) -> str:
    return f'{_OPENING}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
