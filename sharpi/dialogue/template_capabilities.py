"""TemplateCapabilities: how a chat template renders tools, calls and results, by test renderings.

Templates differ in the messages they accept, and silently ignore parts that they do not support. So
each template renders small test conversations, and the output is searched for their words.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import TemplateError
from sharpi.tokenizer.chat_template import ChatFormat

IdStyle: TypeAlias = Literal["any", "short", "named"]
_TOOL, _KEY, _VALUE = "probe_tool", "probe_key", "probe_value"
PROBE_CALL = (_TOOL, {_KEY: _VALUE})
_PARTS = ("probe part", "probe other part")
_RESULT, _SECOND = "probe result", "probe_second"
_IDS: dict[IdStyle, str] = {
    "any": "call_0123456789abcde{number}",
    "short": "abcdef12{number}",
    "named": "functions.{name}:{number}",
}
NO_TOOLS: dict[str, Any] = {"tools": [], "functions": "", "datetime": ""}  # what some need
_USER = {"role": "user", "content": "probe user"}
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": _TOOL,
            "description": "Probes.",
            "parameters": {"type": "object", "properties": {_KEY: {"type": "string"}}},
        },
    }
]
Message: TypeAlias = dict[str, Any]
_Render: TypeAlias = Callable[..., str]


class CallStyle(Struct, frozen=True):
    """The form in which a template renders tool calls."""

    # "any": unchanged; "short": nine letters and digits; "named": `functions.name:0`.
    ids: IdStyle
    as_text: bool  # passes arguments as JSON text rather than an object
    empty_content: str | None  # the content that a message with only calls must have
    one_call_per_message: bool  # the template shows at most one call per message


class ShownCall(Struct, frozen=True):
    """A conversation with a call and its result, as a template renders it."""

    text: str
    answers: tuple[str, ...]  # what may be the answer with the call in it

    def shows_result_in(self, openings: tuple[str, ...]) -> bool:
        """Returns whether one of the tags is around the result."""
        return self.text.partition(_RESULT)[0].rstrip().endswith(openings)


# Orders of messages in which some templates fail, or lose a text without a word: what each is, what
# happens where a template lacks it (`sharpi inspect` shows both), and the roles of an example.
MOVES = {
    "system": ("a system message", "its text begins the next user message", "su"),
    "system_alone": ("a system message alone", "it is shown as the user's", "s"),
    "late_system": ("a system message later on", "its text begins the next user message", "suasu"),
    "users_in_a_row": ("user messages in a row", "they are joined by a blank line", "uu"),
    "answers_in_a_row": ("answers in a row", "they are joined by a blank line", "uaau"),
    "empty_answer": ("an answer without text", "it is left out", "ueu"),
    "answer_first": ("an answer first", "an empty user message comes before it", "au"),
    "user_after_result": ("a user message after a result", "its text ends the result", "cu"),
    "text_beside_calls": ("a text beside calls", "it is an answer of its own before them", "b"),
}
_ROLES = {"s": "system", "u": "user", "a": "assistant", "e": "assistant"}


def _example(roles: str, calling: list[Message]) -> list[Message]:
    """Returns a conversation; `c` is `calling`, or empty without it, and `b` has a text in it."""
    if roles[0] in "bc":
        first = _beside(calling) if roles[0] == "b" and calling else calling
        return [*first, *_example(f"u{roles[1:]}", [])[1:]] if calling else []
    return [
        {"role": _ROLES[role], "content": "" if role == "e" else f"probe text {number}"}
        for number, role in enumerate(roles)
    ]


def _beside(calling: Sequence[Message], **more: str) -> list[Message]:
    """Returns a conversation with a call, with a text beside it."""
    return [calling[0], {**calling[1], "content": "probe beside", **more}, *calling[2:]]


class TemplateCapabilities(Struct, frozen=True):
    """The parts of a conversation that a template renders."""

    lacks: frozenset[str]  # the keys of MOVES that the template has no place for
    shows_tools: bool
    needs_tools: bool  # fails without a list of tools, which may be empty
    knows_developer: bool  # has a developer role as well as the system role
    uses_thinking_key: bool  # shows reasoning from the key `thinking`
    thinking_beside_text: bool  # takes `thinking` in a message with text and calls
    between_parts: str | None  # what joins the texts of a content that is a list; None if it fails
    calls: CallStyle | None  # None if no form of calls and results is rendered
    shown_call: ShownCall | None  # None without calls

    def moves(self) -> Iterator[tuple[str, str]]:
        """Yields what the template has no place for, and what happens to it."""
        if not self.shows_tools:
            yield "tools", "the system message describes them"
        if self.calls is None:
            yield "calls and results", "they are written as text"
        elif self.calls.one_call_per_message:
            yield "several calls in a message", "each is a message of its own"
        if not self.thinking_beside_text:
            yield "reasoning beside a text and calls", "the text ends the reasoning"
        if self.between_parts is None:
            yield "a list of texts", "they are joined by a line break"
        yield from (move[:2] for name, move in MOVES.items() if name in self.lacks)


def probe_template(chat_format: ChatFormat) -> TemplateCapabilities:
    """Renders test conversations and returns which of their parts the template renders."""
    source, render = chat_format.source, partial(_render, chat_format)
    with_none = partial(render, extra=NO_TOOLS)
    needs_tools = not render([_USER]) and bool(with_none([_USER]))
    render = with_none if needs_tools else render
    calls = _call_style(render)

    def shows(messages: Sequence[Message]) -> bool:
        text = render(messages)
        return bool(text) and all(word in text for message in messages for word in _words(message))

    calling = [] if calls is None else _conversation(calls, [_TOOL])
    both = _beside(calling, thinking="probe") if calling else []
    return TemplateCapabilities(
        lacks=frozenset(
            name
            for name, (_, _, roles) in MOVES.items()
            if (example := _example(roles, calling)) and not shows(example)
        ),
        needs_tools=needs_tools,
        shows_tools=_TOOL in _render(chat_format, [_USER], tools=_TOOLS),
        knows_developer="developer" in source,
        uses_thinking_key="message.thinking" in source and "reasoning_content" not in source,
        thinking_beside_text=not both or bool(render(both)),
        between_parts=_between_parts(render),
        calls=calls,
        shown_call=None if calls is None else _shown_call(render, calls),
    )


def _words(message: Message) -> list[str]:
    """Returns the text of a message and the names of its calls."""
    names = [call["function"]["name"] for call in message.get("tool_calls", ())]
    return [message["content"] or "", *names]


def _between_parts(render: _Render) -> str | None:
    """Returns what a template writes between two texts; None if it does not take lists."""
    parts = [{"type": "text", "text": text} for text in _PARTS]
    text = render([{"role": "user", "content": parts}])
    between, last, _ = text.partition(_PARTS[0])[2].partition(_PARTS[1])
    return between if last and not between.strip() else None


def _call_style(render: _Render) -> CallStyle | None:
    """Returns the first form of which a template renders name, arguments and result, if any."""
    for ids, as_text, empty in itertools.product(_IDS, (False, True), (None, "")):
        style = CallStyle(ids, as_text, empty, one_call_per_message=False)
        text = render(_conversation(style, [_TOOL]))
        if all(word in text for word in (_TOOL, _KEY, _VALUE, _RESULT)) and not _is_odd(text):
            several = render(_conversation(style, [_TOOL, _SECOND]))
            shown = _TOOL in several and _SECOND in several
            return replace(style, one_call_per_message=not shown)
    return None


def _shown_call(render: _Render, calls: CallStyle) -> ShownCall:
    """Renders a call and its result; the answer begins where the prompt or the question ends."""
    text = render(_conversation(calls, [_TOOL]))
    prompts = (render([_USER], add_generation_prompt=is_prompt) for is_prompt in (True, False))
    cuts = (len(os.path.commonprefix([prompt, text])) for prompt in prompts)  # noqa: RUF071
    return ShownCall(text, tuple(text[cut:].partition(_RESULT)[0] for cut in cuts))


def _is_odd(text: str) -> bool:
    """Returns whether arguments were rendered in Python's notation, or as JSON within a string."""
    return f"'{_KEY}'" in text or f'\\"{_KEY}' in text or "None" in text


def _conversation(style: CallStyle, names: Sequence[str]) -> list[dict[str, Any]]:
    form = _IDS[style.ids]
    ids = [form.format(name=name, number=number) for number, name in enumerate(names)]
    arguments: Any = f'{{"{_KEY}": "{_VALUE}"}}' if style.as_text else {_KEY: _VALUE}
    calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name in zip(ids, names, strict=True)
    ]
    results = [
        {"role": "tool", "tool_call_id": call_id, "name": name, "content": _RESULT}
        for call_id, name in zip(ids, names, strict=True)
    ]
    message = {"role": "assistant", "content": style.empty_content, "tool_calls": calls}
    return [_USER, message, *results]


def _render(chat_format: ChatFormat, messages: Sequence[dict[str, Any]], **options: Any) -> str:
    """Returns the rendered prompt; empty if the template rejects the messages."""
    try:
        return chat_format.render(messages, **options)
    except TemplateError:
        return ""
