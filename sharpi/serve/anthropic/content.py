"""Converts the messages and content blocks of Anthropic's API to messages in OpenAI's form."""

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from sharpi.serve.anthropic.bodies import Blocks, ContentBlock, CountBody, MessageBody
from sharpi.serve.chat.chat_call import Message, call_message, last_answer, omitted

# Claude Code puts a line that changes with each request before its system prompt; with it, no
# request would find the prompt of the one before.
_BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")


def system_of(body: CountBody) -> list[Message]:
    """Returns a list with the system prompt as a message; empty without one."""
    blocks = body.system or ""
    texts = [blocks] if isinstance(blocks, str) else [_text(block) for block in blocks]
    text = "\n".join(filter(None, (_BILLING.sub("", each) for each in texts)))
    return [{"role": "system", "content": text}] if text else []


def messages_of(body: CountBody) -> list[Message]:
    """Returns all messages of the body in OpenAI's form; a picture in a question is refused."""
    messages: list[Message] = []
    answered = last_answer("tool" if each.has_result else each.role for each in body.messages)
    for index, each in enumerate(body.messages):
        messages += _messages(each, f"messages[{index}].content" if index > answered else None)
    return messages


def _messages(body: MessageBody, refuses: str | None) -> list[Message]:
    """Converts one message to OpenAI's form, in which each tool result is a separate message.

    The tool results precede the text.
    """
    if isinstance(body.content, str):
        return [{"role": body.role, "content": body.content}]
    if body.role == "assistant":
        return [_assistant(body.content)]
    return _user(body.role, body.content, refuses)


def _user(role: str, blocks: Iterable[ContentBlock], refuses: str | None) -> list[Message]:
    results: list[Message] = []
    texts: list[str] = []
    for block in blocks:
        if block.type == "tool_result":
            results.append(_result(block))
        else:
            texts.append(_text(block, refuses))
    spoken = [{"role": role, "content": "\n".join(texts)}] if texts or not results else []
    return results + spoken


def _assistant(blocks: Iterable[ContentBlock]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        match block.type:
            case "thinking":
                thoughts.append(block.thinking or "")
            case "tool_use":
                arguments = json.dumps(block.input or {}, ensure_ascii=False)
                calls.append(call_message(block.id or "", block.name or "", arguments))
            case "text":
                texts.append(block.text or "")
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    return message | ({"tool_calls": calls} if calls else {})


def _result(block: ContentBlock) -> Message:
    text = _result_text(block.content)
    if block.is_error:
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": block.tool_use_id or "", "content": text}


def _result_text(content: Any) -> str:
    """Returns the text of a tool's result, with the names of parts that are not text."""
    try:
        blocks = msgspec.convert(content or "", Blocks)
    except msgspec.ValidationError:
        return json.dumps(content, ensure_ascii=False)
    return blocks if isinstance(blocks, str) else "\n".join(map(_text, blocks))


def _text(block: ContentBlock, refuses: str | None = None) -> str:
    if block.type == "text":
        return block.text or ""
    source = block.source or {}
    if source.get("type") == "text":
        return str(source.get("data", ""))
    return omitted(block.type, refuses)
