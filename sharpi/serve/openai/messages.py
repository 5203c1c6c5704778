"""Reads the messages of /v1/chat/completions, with text contents only."""

from typing import Any

from sharpi.serve.chat.chat_call import Message, call_message
from sharpi.serve.http.request_fields import RequestFields

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def read_messages(fields: RequestFields) -> tuple[Message, ...]:
    """Reads the conversation, at least one message; the developer role becomes system."""
    messages = tuple(_message(each) for each in fields.each("messages"))
    return messages or fields.fail("messages", "must have at least one message")


def read_content(fields: RequestFields, name: str = "content") -> str | None:
    """Reads a string, or the parts' texts joined by line ends.

    Raises ApiError for images and sound.
    """
    value = fields.raw(name)
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        fields.fail(name, "must be a string or a list of content parts")
    return "\n".join(map(_part_text, fields.each(name)))


def _part_text(part: RequestFields) -> str:
    kind = part.required_text("type")
    if kind not in _TEXT_PARTS:
        part.fail("type", f"'{kind[:40]}' cannot be honoured: the model reads text only")
    part.ignore("annotations", "logprobs", "cache_control", "prompt_cache_breakpoint")
    text = part.required_text("refusal" if kind == "refusal" else "text")
    part.close()
    return text


def _message(fields: RequestFields) -> Message:
    role = fields.choice("role", _ROLES) or fields.fail("role", "is required")
    content = read_content(fields)
    fields.ignore("annotations", "refusal", "audio", "function_call", "cache_control")
    message: Message = {"role": {"developer": "system", "function": "tool"}.get(role, role)}
    if role == "assistant":
        message |= _assistant(fields)
    elif content is None:
        fields.fail("content", "is required")
    if role in ("tool", "function"):
        message |= _texts(fields, "tool_call_id")
    message |= {"content": content or ""} | _texts(fields, "name")
    fields.close()
    return message


def _assistant(fields: RequestFields) -> Message:
    """Reads reasoning, by either of its names, and calls."""
    reasoning = fields.text("reasoning_content") or fields.text("reasoning")
    fields.ignore("reasoning", "reasoning_details")
    message: Message = {"reasoning_content": reasoning} if reasoning else {}
    calls = [_call(each) for each in fields.each("tool_calls")]
    return message | ({"tool_calls": calls} if calls else {})


def _call(fields: RequestFields) -> dict[str, Any]:
    fields.only("type", ("function",), "only functions can be called")
    function = fields.fields("function") or fields.fail("function", "is required")
    name, arguments = function.required_text("name"), function.text("arguments") or "{}"
    fields.ignore("index")
    function.close()
    call_id = fields.text("id") or ""
    fields.close()
    return call_message(call_id, name, arguments)


def _texts(fields: RequestFields, name: str) -> Message:
    text = fields.text(name)
    return {name: text} if text else {}
