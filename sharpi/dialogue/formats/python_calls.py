"""Reads calls in Python's notation: `[name(key="value"), ...]`, with literals for values."""

import ast
import json
from typing import Any

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps

_JSON_WORDS = {"true": True, "false": False, "null": None}
_MAX_LENGTH = 1 << 16  # Python's parser does not handle huge texts well


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
    """Reads and returns the text of a list; None as soon as it cannot be a list of calls."""
    names = [f"{name}(" for name in calls.tools]
    text = (yield from source.next()) and source.take(1)
    yield from source.skip_blanks()
    begun = yield from source.accept_any(names)
    if begun is None:
        return None
    text += begun
    quote = ""
    depth = 2
    while depth and len(text) < _MAX_LENGTH:
        character = yield from source.next()
        if not character:
            return None
        text += source.take(1)
        if quote:
            if character == "\\":
                yield from source.next()
                text += source.take(1)
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
    return None if depth else text


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
