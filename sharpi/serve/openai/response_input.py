"""Converts the input items of /v1/responses to chat messages."""

from typing import Any

from sharpi.serve.chat.chat_call import Message, call_message
from sharpi.serve.http.body_faults import raise_invalid
from sharpi.serve.openai.chat_body import text_of
from sharpi.serve.openai.responses_body import InputItem, ResponsesBody


def messages_of(body: ResponsesBody) -> tuple[Message, ...]:
    """Returns the chat messages of a request: its instructions, then its text or input items."""
    messages: list[Message] = []
    if body.instructions:
        messages.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return (*messages, {"role": "user", "content": body.input})
    if not body.input:
        raise_invalid("input", "must be a text or a list of items")
    for index, item in enumerate(body.input):
        _add(messages, item, f"input[{index}]")
    return tuple(messages)


def _add(messages: list[Message], item: InputItem, path: str) -> None:
    """Adds an input item; consecutive items of the assistant become one message if possible."""
    match item.type or "message":
        case "message":
            _add_message(messages, item, path)
        case "reasoning":
            _assistant(messages, "reasoning_content", _reasoning(item, path))
        case "function_call":
            _add_call(messages, item, path)
        case "function_call_output":
            call_id = item.call_id or raise_invalid(f"{path}.call_id", "is required")
            output = text_of(item.output, f"{path}.output")
            message = {"role": "tool", "tool_call_id": call_id, "content": output or ""}
            messages.append(message)
        case kind:
            raise_invalid(f"{path}.type", f"'{kind[:40]}' cannot be honoured")


def _add_message(messages: list[Message], item: InputItem, path: str) -> None:
    role = item.role or raise_invalid(f"{path}.role", "is required")
    content = text_of(item.content, f"{path}.content") or ""
    if role == "assistant":
        _assistant(messages, "content", content)
    else:
        messages.append({"role": "system" if role == "developer" else role, "content": content})


def _reasoning(item: InputItem, path: str) -> str:
    """Returns the text of a reasoning item, or its summaries if the text is missing."""
    whole = text_of(item.content, f"{path}.content")
    return whole or "\n".join(part.text for part in item.summary or ())


def _add_call(messages: list[Message], item: InputItem, path: str) -> None:
    call_id = item.call_id or raise_invalid(f"{path}.call_id", "is required")
    name = item.name or raise_invalid(f"{path}.name", "is required")
    call = call_message(call_id, name, item.arguments or "{}")
    _turn(messages).setdefault("tool_calls", []).append(call)


def _assistant(messages: list[Message], key: str, text: str) -> None:
    """Adds a text under `key` to the last message, if it is the assistant's.

    Otherwise adds a new message, also if the last one has tool calls or a text under `key`, or if
    reasoning would follow its content.
    """
    turn = _turn(messages)
    if turn.get(key) or turn.get("tool_calls") or (key != "content" and turn.get("content")):
        turn = {"role": "assistant", "content": ""}
        messages.append(turn)
    if text:
        turn[key] = text


def _turn(messages: list[Message]) -> dict[str, Any]:
    """Returns the last message if it is the assistant's; otherwise adds an empty message."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]
