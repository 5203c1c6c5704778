"""The tool format of Llama 3.1 to 3.3: an answer that is a JSON object with name and parameters.

`<|python_tag|>` may precede the object. A Python list of calls, which Llama 4 writes between
markers, is read as well.
"""

import json
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.python_calls import read_python_calls
from sharpi.dialogue.json_call import read_call
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

_PYTHON = "<|python_tag|>"
_PYTHON_BEGIN, _PYTHON_END = "<|python_start|>", "<|python_end|>"


class Llama3(MarkedAnswer):
    """Reads and writes calls as `{"name": ..., "parameters": {...}}`.

    An object that does not name an available tool is text.
    """

    openings = (_PYTHON, _PYTHON_BEGIN)
    markers = (_PYTHON, _PYTHON_BEGIN, _PYTHON_END)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        is_call = yield from self.read_bare_call(source, calls)
        if is_call and opening == _PYTHON_BEGIN:
            yield from source.accept_marker(_PYTHON_END)
        return is_call

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if (yield from source.next()) == "[":
            return (yield from read_python_calls(source, calls))
        is_call = yield from read_call(source, calls, calls.tools)
        while is_call and (yield from _goes_on(source)):
            start = source.at
            if not (yield from read_call(source, calls, calls.tools)):
                source.at = start
                break
        return is_call

    def write(self, calls: Sequence[WrittenCall]) -> str:
        return "; ".join(
            json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)
            for name, arguments in calls
        )

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        """Returns an expression for one call, whatever `parallel` is: the model writes only one."""
        return f'{grammar.rule(grammar.called(tools, _begun))} "}}"'


def _goes_on(source: AnswerText) -> Steps[bool]:
    """Skips white space and a semicolon, and returns whether another object follows."""
    yield from source.skip_blanks()
    yield from source.accept(";")
    yield from source.skip_blanks()
    return (yield from source.next()) == "{"


def _begun(name: str) -> str:
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "parameters": '
