"""Converts the messages and content blocks of Anthropic's API to messages in OpenAI's form."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sharpi.serve.anthropic.bodies import ContentBlock, CountBody, MessageBody, Texts
from sharpi.serve.chat.chat_call import Message, call_message
from sharpi.serve.http.body_faults import raise_invalid

_Numbered = tuple[str, ContentBlock]  # the path of a content block in the body, and the block


def system_of(body: CountBody) -> list[Message]:
    """Returns a list with the system prompt as a message; empty without one."""
    text = _text_of(body.system)
    return [{"role": "system", "content": text}] if text else []


def messages_of(body: CountBody) -> list[Message]:
    """Returns all messages of the body in OpenAI's form, at least one."""
    items = enumerate(body.messages)
    return [each for index, item in items for each in _messages(item, f"messages[{index}]")]


def _messages(body: MessageBody, path: str) -> list[Message]:
    """Converts one message to OpenAI's form, in which each tool result is a separate message.

    The tool results precede the text.
    """
    if isinstance(body.content, str):
        return [{"role": body.role, "content": body.content}]
    blocks = [(f"{path}.content[{i}]", block) for i, block in enumerate(body.content)]
    return _assistant(blocks) if body.role == "assistant" else _user(body.role, blocks)


def _user(role: str, blocks: Iterable[_Numbered]) -> list[Message]:
    results: list[Message] = []
    texts: list[str] = []
    for path, block in blocks:
        if block.type == "tool_result":
            results.append(_result(block, path))
        else:
            texts.append(_text(block, path))
    spoken = [{"role": role, "content": "\n".join(texts)}] if texts or not results else []
    return results + spoken


def _assistant(blocks: Sequence[_Numbered]) -> list[Message]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for path, block in blocks:
        match block.type:
            case "thinking":
                thoughts.append(block.thinking or "")
            case "redacted_thinking":
                continue
            case "tool_use":
                calls.append(_call(block, path))
            case _:
                texts.append(_text(block, path))
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts and any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    return [message | ({"tool_calls": calls} if calls else {})]


def _call(block: ContentBlock, path: str) -> dict[str, Any]:
    arguments = json.dumps(block.input or {}, ensure_ascii=False)
    call_id = block.id or raise_invalid(f"{path}.id", "is required")
    return call_message(
        call_id, block.name or raise_invalid(f"{path}.name", "is required"), arguments
    )


def _result(block: ContentBlock, path: str) -> Message:
    call_id = block.tool_use_id or raise_invalid(f"{path}.tool_use_id", "is required")
    text = _text_of(block.content)
    if block.is_error:
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _text_of(content: Texts | None) -> str:
    """Returns a string content unchanged, or joins the texts of blocks by newlines; "" for None."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block.text for block in content)


def _text(block: ContentBlock, path: str) -> str:
    if block.type != "text":
        raise_invalid(f"{path}.type", f"'{block.type}' belongs into another role's message")
    return raise_invalid(f"{path}.text", "is required") if block.text is None else block.text
