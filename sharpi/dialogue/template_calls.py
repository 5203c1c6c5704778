"""Converts tool calls and results in messages to the form that a chat template expects."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sharpi.dialogue.template_capabilities import CallStyle

Message = dict[str, Any]
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUM_DIGITS = 9


def in_format(messages: Iterable[Message], style: CallStyle) -> Iterator[Message]:
    """Yields messages with calls in the template's form, and with the tool's name in each result.

    If the template renders only one call per message, further calls become separate messages.
    """
    ids: dict[Any, str] = {}
    for message in _split(_named(messages)) if style.one_call_per_message else _named(messages):
        for call in message.get("tool_calls", ()):
            ids[call.get("id")] = _formatted_id(call, len(ids), style)
        yield _in_format(message, ids, style)


def _named(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields the messages, with the tool's name added to each tool result."""
    names: dict[Any, str] = {}
    for message in messages:
        names.update((call.get("id"), name_of(call)) for call in message.get("tool_calls", ()))
        if message.get("role") == "tool" and "name" not in message:
            message = {**message, "name": names.get(message.get("tool_call_id"), "")}
        yield message


def _split(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields messages with at most one call each.

    Each further call of a message becomes a message before the call's result, or before the next
    message that is not a result.
    """
    waiting: list[Message] = []
    for message in messages:
        ready = _calls_before(message, waiting)
        waiting = [call for call in waiting if call not in ready]
        yield from ready
        calls = message.get("tool_calls", [])
        yield {**message, "tool_calls": calls[:1]} if calls else message
        waiting += [{"role": "assistant", "content": "", "tool_calls": [c]} for c in calls[1:]]
    yield from waiting


def _calls_before(message: Message, waiting: list[Message]) -> list[Message]:
    """Returns the calls in `waiting` to be yielded before `message`.

    If the message is a tool result, only its call is returned, otherwise all calls.
    """
    if message.get("role") != "tool":
        return waiting
    answered = message.get("tool_call_id")
    return [call for call in waiting if call["tool_calls"][0].get("id") == answered]


def _in_format(message: Message, ids: Mapping[Any, str], style: CallStyle) -> Message:
    if message.get("role") == "tool":
        call_id = message.get("tool_call_id")
        orphan = {"id": call_id, "function": {"name": message["name"]}}
        return {
            **message,
            "tool_call_id": ids.get(call_id) or _formatted_id(orphan, len(ids), style),
        }
    if not message.get("tool_calls"):
        return message
    calls = [_call_in_format(call, ids, style) for call in message["tool_calls"]]
    content = message["content"] or style.empty_content
    return {**message, "content": content, "tool_calls": calls}


def _call_in_format(call: Mapping[str, Any], ids: Mapping[Any, str], style: CallStyle) -> Message:
    arguments: Any = arguments_of(call)
    if style.as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": name_of(call), "arguments": arguments}
    return {"id": ids[call.get("id")], "type": "function", "function": function}


def _formatted_id(call: Mapping[str, Any], number: int, style: CallStyle) -> str:
    """Returns a call's id in the form that the template requires."""
    call_id = str(call.get("id", ""))
    match style.ids:
        case "short":
            return _short(call_id)
        case "named":
            return f"functions.{name_of(call)}:{number}"
    return call_id


def arguments_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a call's arguments as a mapping; those that are no JSON object become its one text.

    A mistake in an earlier call must not end the conversation: the model sees what it wrote.
    """
    value = call.get("function", {}).get("arguments") or {}
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        parsed = value
    return parsed if isinstance(parsed, Mapping) else {"arguments": parsed}


def name_of(call: Mapping[str, Any]) -> str:
    """Returns the name of the called tool."""
    return str(call.get("function", {}).get("name", ""))


def _short(text: str) -> str:
    """Returns `text` if it is nine letters and digits, otherwise nine characters of its hash."""
    if len(text) == _NUM_DIGITS and text.isalnum():
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_NUM_DIGITS])
