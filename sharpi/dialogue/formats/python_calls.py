"""Tool calls in Python's notation, `[name(key="value"), ...]`, as LFM2 and Llama 4 write them."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import read_calls
from sharpi.dialogue.keyed_arguments import values_in_order
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

LIST_BEGIN, _LIST_END = "<|tool_call_start|>", "<|tool_call_end|>"
LIST_OPENINGS = ("[",)  # of calls of available tools, which are clear without a marker
_FENCES = ("```json", "```python", "```")
_JSON_WORDS = {"true": True, "false": False, "null": None}
_MAX_LENGTH = 1 << 16  # Python's parser does not handle huge texts well


def read_any_calls(source: AnswerText, calls: Calls, *, is_strict: bool) -> Steps[bool]:
    """Reads calls in Python's notation or as JSON, with or without a code block around them.

    `is_strict`: only what names an available tool is a call.
    """
    yield from source.skip_blanks()
    has_fence = (yield from source.accept_any(_FENCES)) is not None
    yield from source.skip_blanks()
    start = source.at
    is_list = (yield from source.next()) == "["
    if not (is_list and (yield from read_python_calls(source, calls))):
        source.at = start
        if not (yield from read_calls(source, calls, calls.tools if is_strict else None)):
            return False
    if has_fence:
        yield from source.accept_marker(_FENCES[-1])
    return True


def read_python_calls(source: AnswerText, calls: Calls) -> Steps[bool]:
    """Reads a list of calls of available tools and yields their events.

    Returns False if the text is anything else.
    """
    text = yield from _read_list(source, calls)
    found = None if text is None else _calls_of(text)
    if not found or any(name not in calls.tools for name, _ in found):
        return False
    for name, arguments in found:
        yield calls.begin(name)
        yield calls.arguments(arguments)
    return True


def _read_list(source: AnswerText, calls: Calls) -> Steps[str | None]:
    """Reads and returns the text of a list; None as soon as it cannot be a list of calls.

    Line breaks and quotes in strings are escaped, because templates and models leave them as they
    are. A quote ends a string only where an item of the list may end.
    """
    names = [f"{name}(" for name in calls.tools]
    if not (yield from source.accept("[")):
        return None
    yield from source.skip_blanks()
    begun = yield from source.accept_any(names)
    if begun is None:
        return None
    text, quote, depth = ["[", begun], "", 2
    while depth and len(text) < _MAX_LENGTH:
        character = yield from source.next()
        if not character:
            return None
        source.take(1)
        if character == "\\" and quote:
            yield from source.next()
            character += source.take(1)
        elif character == quote:
            if (yield from _ends_item(source)):
                quote = ""
            else:
                character = f"\\{quote}"
        elif character in "'\"" and not quote:
            quote = character
        elif not quote:
            depth += (character in "([{") - (character in ")]}")
        text.append(character.replace("\n", "\\n") if quote else character)
    return None if depth else "".join(text)


def _ends_item(source: AnswerText) -> Steps[bool]:
    """Returns whether an item of a list may end before the text that follows."""
    start = source.at
    yield from source.skip_blanks()
    following = yield from source.next()
    source.at = start
    return following in (",", ")", "]", "}", ":", "")


class _JsonWords(ast.NodeTransformer):
    """Replaces the names `true`, `false` and `null` in a syntax tree by their values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_WORDS[node.id]) if node.id in _JSON_WORDS else node


def _calls_of(text: str) -> list[tuple[str, str]] | None:
    """Returns each call's name and its arguments as JSON text.

    Returns None if `text` is not a list of calls with literal arguments.
    """
    try:
        tree = _JsonWords().visit(ast.parse(text, mode="eval")).body
        if not isinstance(tree, ast.List):
            return None
        return [_call_of(element) for element in tree.elts]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _call_of(node: ast.expr) -> tuple[str, str]:
    if not isinstance(node, ast.Call) or node.args or any(k.arg is None for k in node.keywords):
        raise ValueError("no call with named arguments")
    arguments: dict[str, Any] = {
        str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords
    }
    return ast.unparse(node.func), json.dumps(arguments, ensure_ascii=False, allow_nan=False)


class PythonCalls(MarkedAnswer):
    """Reads and writes `<|tool_call_start|>[name(key=value), ...]<|tool_call_end|>`.

    Values are read in Python's or JSON's notation, and written as JSON.
    """

    name = "LFM2"
    openings = signs = (LIST_BEGIN,)
    bare_openings = LIST_OPENINGS
    markers = (LIST_BEGIN, _LIST_END)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        if not (yield from self.read_bare_call(source, calls)):
            return False
        yield from source.accept_marker(_LIST_END)
        return True

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        return (yield from read_any_calls(source, calls, is_strict=True))

    def write(self, calls: Sequence[WrittenCall]) -> str:
        written = (f"{name}({', '.join(_keywords(arguments))})" for name, arguments in calls)
        return f"{LIST_BEGIN}[{', '.join(written)}]{_LIST_END}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = []
        for tool in tools:
            values = [
                (
                    f"{grammar.literal(f'{value.key}=')} {grammar.json(value.schema)}",
                    value.is_required,
                )
                for value in values_in_order(tool)
            ]
            choices.append(f'{grammar.literal(f"{tool.name}(")} {grammar.listed(values, ", ")} ")"')
        call = grammar.rule(" | ".join(choices))
        several = f'{call} (", " {call})*' if parallel else call
        return f"{grammar.literal(f'{LIST_BEGIN}[')} {several} {grammar.literal(f']{_LIST_END}')}"


def _keywords(arguments: Mapping[str, Any]) -> Iterator[str]:
    return (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
