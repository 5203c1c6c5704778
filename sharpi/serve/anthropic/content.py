"""Converts the messages and content blocks of Anthropic's API to messages in OpenAI's form."""

import json
from collections.abc import Iterable
from typing import Any

from sharpi.serve.chat.chat_call import Message, call_message
from sharpi.serve.http.request_fields import RequestFields

_ROLES = ("user", "assistant", "system")


def read_system(fields: RequestFields) -> list[Message]:
    """Returns the system prompt as a message, if there is one."""
    text = _text_of(fields, "system")
    return [{"role": "system", "content": text}] if text else []


def read_messages(fields: RequestFields) -> list[Message]:
    """Returns the conversation, which has at least one message."""
    messages = [each for item in fields.each("messages") for each in _messages(item)]
    return messages or fields.fail("messages", "must have at least one message")


def _messages(fields: RequestFields) -> list[Message]:
    """Returns the messages of one item: the results of tools, then its text."""
    role = fields.choice("role", _ROLES) or fields.fail("role", "is required")
    if isinstance(fields.raw("content"), str):
        blocks = [RequestFields({"type": "text", "text": fields.raw("content")})]
    elif fields.items("content") is None:
        fields.fail("content", "is required")
    else:
        blocks = fields.each("content")
    fields.close()
    return _assistant(blocks) if role == "assistant" else _user(role, blocks)


def _user(role: str, blocks: Iterable[RequestFields]) -> list[Message]:
    results: list[Message] = []
    texts: list[str] = []
    for block in blocks:
        if block.raw("type") == "tool_result":
            results.append(_result(block))
        else:
            texts.append(_text(block))
    spoken = [{"role": role, "content": "\n".join(texts)}] if texts or not results else []
    return results + spoken


def _assistant(blocks: Iterable[RequestFields]) -> list[Message]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        match block.raw("type"):
            case "thinking":
                thoughts.append(_thought(block))
            case "redacted_thinking":
                block.ignore("data")
                block.close()
            case "tool_use":
                calls.append(_call(block))
            case _:
                texts.append(_text(block))
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts and any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    return [message | ({"tool_calls": calls} if calls else {})]


def _thought(block: RequestFields) -> str:
    block.ignore("signature")
    text = block.text("thinking") or ""
    block.close()
    return text


def _call(block: RequestFields) -> dict[str, Any]:
    arguments = json.dumps(block.mapping("input") or {}, ensure_ascii=False)
    call = call_message(block.required_text("id"), block.required_text("name"), arguments)
    block.ignore("cache_control", "caller")
    block.close()
    return call


def _result(block: RequestFields) -> Message:
    call_id = block.required_text("tool_use_id")
    text = _text_of(block, "content")
    if block.flag("is_error"):
        text = f"Error: {text}"
    block.ignore("cache_control")
    block.close()
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _text_of(fields: RequestFields, name: str) -> str:
    """Returns a string, or the text of blocks joined by line ends."""
    value = fields.raw(name)
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(map(_text, fields.each(name)))


def _text(block: RequestFields) -> str:
    kind = block.required_text("type")
    if kind != "text":
        block.fail("type", f"'{kind[:40]}' cannot be honoured: the model reads text only")
    block.ignore("cache_control", "citations")
    text = block.required_text("text")
    block.close()
    return text
