"""Converts messages of the OpenAI API into messages that a chat template can render.

Parts that a template does not support become text: calls in the tool format, results in
`<tool_response>` tags of a user message. Messages that it has no place for are moved or joined, and
never dropped.
"""

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sharpi.dialogue.template_capabilities import CallStyle, Message, TemplateCapabilities
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.errors import TemplateError

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_SYSTEM = ("system", "developer")
_RESULT, _RESULT_END = "<tool_response>", "</tool_response>"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUM_DIGITS = 9


def last_answer(roles: Iterable[str | None]) -> int:
    """Returns the index of the assistant's last message; -1 without one.

    What comes before it is history, which is read and not judged. So is what comes after the result
    of a tool: clients send the pictures of a result as a user's message.
    """
    own = [(i, role) for i, role in enumerate(roles) if role in ("assistant", "tool", "function")]
    index, role = own[-1] if own else (-1, None)
    return index if role in ("assistant", None) else sys.maxsize


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
        prepared = _merged(_written(message, form) for message in prepared)
    fitted = _fit(prepared, capabilities.lacks)
    return fitted if capabilities.calls is None else list(_in_format(fitted, capabilities.calls))


def _plain(message: Mapping[str, Any], capabilities: TemplateCapabilities) -> Message:
    """Returns a copy with a text as content, and what the template knows in place of the rest."""
    plain = {key: value for key, value in message.items() if value is not None and value != []}
    between = "\n" if capabilities.between_parts is None else capabilities.between_parts
    plain["content"] = _content_text(message.get("content"), between)
    if plain.get("role") == "developer" and not capabilities.knows_developer:
        plain["role"] = "system"
    if capabilities.uses_thinking_key and "reasoning_content" in plain:
        thinking = plain.pop("reasoning_content")
        has_both = plain["content"] and plain.get("tool_calls")
        if has_both and not capabilities.thinking_beside_text:  # gpt-oss shows one as its reasoning
            plain["content"] = f"{thinking}\n\n{plain['content']}"
        else:
            plain["thinking"] = thinking
    return plain


def _content_text(content: Any, between: str) -> str:
    """Returns a text, or a list of texts joined by `between`; raises TemplateError for others."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list | tuple) else [content]:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind not in _TEXT_PARTS:
            raise TemplateError(f"a message holds a part of type {kind!r}; only text is supported")
        texts.append(str(part.get("text") or part.get("refusal") or ""))
    return between.join(texts)


def _instructed(messages: list[Message], instruction: str) -> list[Message]:
    if messages and messages[0].get("role") in _SYSTEM:
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


def _merged(messages: Iterable[Message]) -> list[Message]:
    """Merges tool results, which have become user messages, with adjacent user messages."""
    merged: list[Message] = []
    for message in messages:
        last: Message = merged[-1] if merged else {"content": ""}
        is_result = _RESULT in last["content"] or _RESULT in message["content"]
        if is_result and last.get("role") == message.get("role") == "user":
            merged[-1] = {**last, "content": f"{last['content']}\n{message['content']}"}
        else:
            merged.append(message)
    return merged


def _fit(messages: Sequence[Message], lacks: Collection[str]) -> list[Message]:
    """Returns the messages in an order that the template holds, with all their texts."""
    first = next((i for i, m in enumerate(messages) if m.get("role") not in _SYSTEM), len(messages))
    leading, rest = list(messages[:first]), list(messages[first:])
    if len(leading) > 1:
        leading = [{**leading[0], "content": _paragraphs(leading)}]
    if "system" in lacks or not (rest or "system_alone" not in lacks):
        leading, rest = [], _without_system([*leading, *rest])
    elif "late_system" in lacks:
        rest = _without_system(rest)
    if "empty_answer" in lacks:
        rest = [each for each in rest if each.get("role") != "assistant" or _says(each)]
    rest = [part for message in _joined(rest, lacks) for part in _apart(message, lacks)]
    if rest and rest[0].get("role") == "assistant" and "answer_first" in lacks:
        rest.insert(0, {"role": "user", "content": ""})
    return leading + rest


def _says(message: Message) -> bool:
    return bool(message["content"] or message.get("tool_calls"))


def _without_system(messages: Iterable[Message]) -> list[Message]:
    """Moves system messages into the next user message, or a new one at the end."""
    kept: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if message.get("role") in _SYSTEM:
            waiting.append(message)
            continue
        if waiting and message.get("role") == "user":
            message = {**message, "content": _paragraphs([*waiting, message])}
            waiting = []
        kept.append(message)
    return [*kept, {"role": "user", "content": _paragraphs(waiting)}] if waiting else kept


def _joined(messages: Iterable[Message], lacks: Collection[str]) -> list[Message]:
    joins = {
        ("user", "user"): "users_in_a_row" in lacks,
        ("assistant", "assistant"): "answers_in_a_row" in lacks,
        ("tool", "user"): "user_after_result" in lacks,
    }
    joined: list[Message] = []
    for message in messages:
        if joined and joins.get((joined[-1].get("role", ""), message.get("role", ""))):
            joined[-1] = _both(joined[-1], message)
        else:
            joined.append(message)
    return joined


def _apart(message: Message, lacks: Collection[str]) -> list[Message]:
    """Returns a message as two if its text has no place beside its calls and their reasoning."""
    if "text_beside_calls" not in lacks or not (message["content"] and message.get("tool_calls")):
        return [message]
    return [{"role": message["role"], "content": message["content"]}, {**message, "content": ""}]


def _both(first: Message, second: Message) -> Message:
    """Returns one message of the first's role, with the texts and calls of both."""
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    both = {**second, **first, "content": _paragraphs([first, second])}
    return both | ({"tool_calls": calls} if calls else {})


def _paragraphs(messages: Iterable[Message]) -> str:
    return "\n\n".join(filter(None, (message["content"] for message in messages)))


def _in_format(messages: Iterable[Message], style: CallStyle) -> Iterator[Message]:
    """Yields messages with calls in the template's form, and the tool's name in each result."""
    names: dict[Any, str] = {}
    ids: dict[Any, str] = {}
    for message in _split(messages) if style.one_call_per_message else messages:
        calls = message.get("tool_calls", ())
        for call in calls:
            names[call.get("id")] = name_of(call)
            ids[call.get("id")] = _formatted_id(call.get("id"), name_of(call), len(ids), style)
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            name = message.get("name") or names.get(call_id, "")
            formatted = ids.get(call_id) or _formatted_id(call_id, name, len(ids), style)
            message = {**message, "name": name, "tool_call_id": formatted}
        elif calls:
            content = message["content"] or style.empty_content
            calls = [_call_in_format(call, ids, style) for call in calls]
            message = {**message, "content": content, "tool_calls": calls}
        yield message


def _split(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields messages with one call each; further ones before their result or what is no result."""
    waiting: list[Message] = []
    for message in messages:
        answered = message.get("tool_call_id") if message.get("role") == "tool" else None
        ready = [each for each in waiting if answered in (None, each["tool_calls"][0].get("id"))]
        waiting = [each for each in waiting if each not in ready]
        yield from ready
        calls = message.get("tool_calls", [])
        yield {**message, "tool_calls": calls[:1]} if calls else message
        waiting += [{"role": "assistant", "content": "", "tool_calls": [c]} for c in calls[1:]]
    yield from waiting


def _call_in_format(call: Mapping[str, Any], ids: Mapping[Any, str], style: CallStyle) -> Message:
    arguments: Any = arguments_of(call)
    if style.as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": name_of(call), "arguments": arguments}
    return {"id": ids[call.get("id")], "type": "function", "function": function}


def _formatted_id(call_id: Any, name: str, number: int, style: CallStyle) -> str:
    """Returns a call's id in the form that the template requires."""
    match style.ids:
        case "short":
            return _short(str(call_id or ""))
        case "named":
            return f"functions.{name}:{number}"
    return str(call_id or "")


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
