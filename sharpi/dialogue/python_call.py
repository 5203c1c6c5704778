"""Reads tool calls in Python's notation, `[name(key="value"), ...]`, and calls of any notation."""

import ast
import json

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.json_call import pass_value, read_calls

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
    is_read = yield from source.attempt(_read_python_calls(source, calls))
    if not is_read:
        is_read = yield from read_calls(source, calls, calls.tools if is_strict else None)
    if is_read and has_fence:
        yield from source.accept_marker(_FENCES[-1])
    return is_read


def read_named_call(source: AnswerText, calls: Calls) -> Steps[bool]:
    """Reads the name of an available tool, with its arguments in braces or parentheses after it."""
    yield from source.skip_blanks()
    name = yield from source.accept_any(_names(calls))
    if name is None:
        return False
    yield from source.skip_blanks()
    if (yield from source.next()) == "{":
        yield calls.begin(name)
        yield from pass_value(source, calls.arguments)
        return True
    arguments = (yield from _read_arguments(source)) if (yield from source.accept("(")) else None
    if arguments is None:
        return False
    yield calls.begin(name)
    yield calls.arguments(arguments)
    return True


def _names(calls: Calls, ending: str = "") -> list[str]:
    return [f"{name}{ending}" for name in sorted(calls.tools, key=len, reverse=True)]


def _read_python_calls(source: AnswerText, calls: Calls) -> Steps[bool]:
    """Reads a list of calls of available tools; returns False if the text is anything else."""
    found: list[tuple[str, str]] = []
    is_open = yield from source.accept("[")
    while is_open:
        yield from source.skip_blanks()
        begun = yield from source.accept_any(_names(calls, "("))
        arguments = None if begun is None else (yield from _read_arguments(source))
        if begun is None or arguments is None:
            return False
        found.append((begun[:-1], arguments))
        yield from source.skip_blanks()
        is_open = yield from source.accept(",")
    if not found or not (yield from source.accept("]")):
        return False
    for name, arguments in found:
        yield calls.begin(name)
        yield calls.arguments(arguments)
    return True


def _read_arguments(source: AnswerText) -> Steps[str | None]:
    """Reads arguments up to the closing parenthesis as JSON text; None for anything else."""
    # Templates and models leave line breaks and quotes in strings as they are. So a quote ends a
    # string only where an item may end.
    text, quote, depth = ["f("], "", 1
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
    return None if depth else _arguments_of("".join(text))


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


def _arguments_of(text: str) -> str | None:
    """Returns the arguments of a call as JSON text; None if they are not named literals."""
    try:
        call = _JsonWords().visit(ast.parse(text, mode="eval")).body
        if not isinstance(call, ast.Call) or call.args:
            return None
        values = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        is_named = all(each.arg is not None for each in call.keywords)
        return json.dumps(values, ensure_ascii=False, allow_nan=False) if is_named else None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
