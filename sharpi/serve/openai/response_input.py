"""Converts the input items of /v1/responses to messages."""

from typing import Any

from sharpi.serve.chat.chat_call import Message, call_message
from sharpi.serve.http.request_fields import RequestFields
from sharpi.serve.openai.messages import read_content

_ROLES = ("system", "developer", "user", "assistant")


def read_input(fields: RequestFields) -> tuple[Message, ...]:
    """Reads the instructions, then "input": a text of the user, or items."""
    instructions = fields.text("instructions")
    messages: list[Message] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(fields.raw("input"), str):
        return (*messages, {"role": "user", "content": fields.raw("input")})
    items = fields.each("input")
    if not items:
        fields.fail("input", "must be a text or a list of items")
    for item in items:
        _add(messages, item)
        item.ignore("id", "status")
        item.close()
    return tuple(messages)


def _add(messages: list[Message], item: RequestFields) -> None:
    """Adds an item; the several items of one assistant turn become one message."""
    match item.text("type") or "message":
        case "message":
            _add_message(messages, item)
        case "reasoning":
            _assistant(messages, "reasoning_content", _reasoning(item))
        case "function_call":
            _add_call(messages, item)
        case "function_call_output":
            item.ignore("name", "namespace", "caller")
            call_id, output = item.required_text("call_id"), read_content(item, "output")
            message = {"role": "tool", "tool_call_id": call_id, "content": output or ""}
            messages.append(message)
        case kind:
            item.fail("type", f"'{kind[:40]}' cannot be honoured")


def _add_message(messages: list[Message], item: RequestFields) -> None:
    role = item.choice("role", _ROLES) or item.fail("role", "is required")
    content = read_content(item) or ""
    item.ignore("phase")
    if role == "assistant":
        _assistant(messages, "content", content)
    else:
        messages.append({"role": "system" if role == "developer" else role, "content": content})


def _reasoning(item: RequestFields) -> str:
    """Returns the reasoning itself, or else its summaries."""
    item.ignore("encrypted_content")
    summaries, contents = item.each("summary"), item.each("content")
    return "\n".join(part.required_text("text") for part in contents or summaries)


def _add_call(messages: list[Message], item: RequestFields) -> None:
    item.ignore("namespace", "caller", "async")
    call_id, name = item.required_text("call_id"), item.required_text("name")
    call = call_message(call_id, name, item.text("arguments") or "{}")
    _turn(messages).setdefault("tool_calls", []).append(call)


def _assistant(messages: list[Message], key: str, text: str) -> None:
    """Adds a text to the assistant's turn, or to a new one if the text cannot follow in that."""
    turn = _turn(messages)
    if turn.get(key) or turn.get("tool_calls") or (key != "content" and turn.get("content")):
        turn = {"role": "assistant", "content": ""}
        messages.append(turn)
    if text:
        turn[key] = text


def _turn(messages: list[Message]) -> dict[str, Any]:
    """Returns the assistant's message at the end, added if there is none."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]
