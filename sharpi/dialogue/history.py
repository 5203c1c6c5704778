"""Converts messages of the OpenAI API into messages that a chat template can render.

Parts that a template does not support become text: calls in the tool format, results in
`<tool_response>` tags of a user message. `turns.py` moves messages that it has no place for.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sharpi.dialogue.template_calls import Message, arguments_of, in_format, name_of
from sharpi.dialogue.template_capabilities import TemplateCapabilities
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.turns import fit
from sharpi.errors import TemplateError

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_RESULT, _RESULT_END = "<tool_response>", "</tool_response>"


def prepare(
    messages: Iterable[Mapping[str, Any]],
    capabilities: TemplateCapabilities,
    form: ToolFormat,
    instruction: str = "",
) -> list[Message]:
    """Converts messages for a chat template; raises TemplateError for contents other than text.

    `instruction`: text to prepend to the system message, which is created if it is missing.
    """
    prepared = [_plain(message, capabilities) for message in messages]
    if instruction:
        prepared = _instructed(prepared, instruction)
    if capabilities.calls is None:
        prepared = list(_merged(_written(message, form) for message in prepared))
    fitted = fit(prepared, capabilities.turns)
    return fitted if capabilities.calls is None else list(in_format(fitted, capabilities.calls))


def _plain(message: Mapping[str, Any], capabilities: TemplateCapabilities) -> Message:
    """Returns a copy of a message with text content, without None and empty lists.

    The role `developer` and the reasoning are changed to what the template supports.
    """
    plain = {key: value for key, value in message.items() if value is not None and value != []}
    plain["content"] = content_text(message.get("content"))
    if plain.get("role") == "developer" and not capabilities.knows_developer:
        plain["role"] = "system"
    if capabilities.uses_thinking_key and "reasoning_content" in plain:
        reasoning = plain.pop("reasoning_content")
        if not (plain["content"] and "tool_calls" in plain):
            plain["thinking"] = reasoning
    return plain


def content_text(content: Any) -> str:
    """Returns the text of a message's `content`, which is a string or a list of text parts."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list | tuple) else [content]:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind not in _TEXT_PARTS:
            raise TemplateError(f"a message holds a part of type {kind!r}; only text is supported")
        texts.append(str(part.get("text") or part.get("refusal") or ""))
    return "".join(texts)


def _instructed(messages: list[Message], instruction: str) -> list[Message]:
    if messages and messages[0].get("role") in ("system", "developer"):
        first = {**messages[0], "content": f"{instruction}\n\n{messages[0]['content']}".rstrip()}
        return [first, *messages[1:]]
    return [{"role": "system", "content": instruction}, *messages]


def _written(message: Message, form: ToolFormat) -> Message:
    """Returns the message with its tool calls, or its tool result, written as text."""
    if message.get("role") == "tool":
        text = f"{_RESULT}\n{message['content']}\n{_RESULT_END}"
        return {"role": "user", "content": text}
    calls = message.get("tool_calls")
    if not calls:
        return message
    written = form.write([(name_of(call), arguments_of(call)) for call in calls])
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": f"{message['content']}\n{written}".lstrip("\n")}


def _merged(messages: Iterable[Message]) -> Iterator[Message]:
    """Merges tool results, which have become user messages, with adjacent user messages."""
    last: Message | None = None
    for message in messages:
        is_result = any(_RESULT in m["content"] for m in (last, message) if m)
        if last and last.get("role") == message.get("role") == "user" and is_result:
            last = {**last, "content": f"{last['content']}\n{message['content']}"}
            continue
        if last:
            yield last
        last = message
    if last:
        yield last
