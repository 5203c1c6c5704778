"""History: messages as the OpenAI API has them, made into what a template can show.

What a template lacks is written out as text: calls in the tool format, results in
`<tool_response>` tags of a user's message, a system message before the first user's.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sharpi.dialogue.template_habits import CallHabits, TemplateHabits
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.errors import TemplateError

Message = dict[str, Any]
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def prepare(
    messages: Iterable[Mapping[str, Any]],
    habits: TemplateHabits,
    form: ToolFormat,
    *,
    instruction: str = "",
    knows_developer: bool = False,
) -> list[Message]:
    """Messages for the template; raises TemplateError for contents that are no text.

    `instruction` is put in front, as a system message or at the head of one.
    """
    prepared = [_plain(message, knows_developer) for message in messages]
    if instruction:
        prepared = _instructed(prepared, instruction)
    if not habits.shows_system:
        prepared = _without_system(prepared)
    if habits.calls is None:
        return list(_merged(_written(message, form) for message in prepared))
    return list(_split(_named(prepared), habits.calls))


def _plain(message: Mapping[str, Any], knows_developer: bool) -> Message:
    """A copy with the content as text, and without keys that hold nothing."""
    plain = {key: value for key, value in message.items() if value is not None and value != []}
    plain["content"] = content_text(message.get("content"))
    if plain.get("role") == "developer" and not knows_developer:
        plain["role"] = "system"
    return plain


def content_text(content: Any) -> str:
    """The text of a message's content: itself, or that of its parts."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind not in _TEXT_PARTS:
            raise TemplateError(f"a message holds a part of type {kind!r}; only text is understood")
        texts.append(str(part.get("text") or part.get("refusal") or ""))
    return "".join(texts)


def _instructed(messages: list[Message], instruction: str) -> list[Message]:
    if messages and messages[0].get("role") in ("system", "developer"):
        first = {**messages[0], "content": f"{instruction}\n\n{messages[0]['content']}".rstrip()}
        return [first, *messages[1:]]
    return [{"role": "system", "content": instruction}, *messages]


def _without_system(messages: list[Message]) -> list[Message]:
    """System messages before the user's message that follows them."""
    kept: list[Message] = []
    waiting: list[str] = []
    for message in messages:
        if message.get("role") in ("system", "developer"):
            waiting.append(message["content"])
            continue
        if waiting and message.get("role") == "user":
            message = {**message, "content": "\n\n".join([*waiting, message["content"]])}
            waiting = []
        kept.append(message)
    return [*kept, {"role": "user", "content": "\n\n".join(waiting)}] if waiting else kept


def _written(message: Message, form: ToolFormat) -> Message:
    """Calls and results as text."""
    if message.get("role") == "tool":
        text = f"<tool_response>\n{message['content']}\n</tool_response>"
        return {"role": "user", "content": text}
    calls = message.get("tool_calls")
    if not calls:
        return message
    written = form.write([(_name(call), arguments_of(call)) for call in calls])
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": f"{message['content']}\n{written}".lstrip("\n")}


def _merged(messages: Iterable[Message]) -> Iterator[Message]:
    """Results, which have become the user's, in one message with what is beside them."""
    last: Message | None = None
    for message in messages:
        is_result = message["content"].startswith("<tool_response>")
        if last and last.get("role") == message.get("role") == "user" and is_result:
            last = {**last, "content": f"{last['content']}\n{message['content']}"}
            continue
        if last:
            yield last
        last = message
    if last:
        yield last


def _named(messages: Iterable[Message]) -> Iterator[Message]:
    """Results with the name of the tool they are from."""
    names: dict[Any, str] = {}
    for message in messages:
        names.update((call.get("id"), _name(call)) for call in message.get("tool_calls", ()))
        if message.get("role") == "tool" and "name" not in message:
            message = {**message, "name": names.get(message.get("tool_call_id"), "")}
        yield message


def _split(messages: Iterable[Message], habits: CallHabits) -> Iterator[Message]:
    """Messages with the calls in the template's form; one call a message where it wants that."""
    pending: list[Message] = []
    for message in messages:
        for ready in _in_turn(message, pending):
            yield _formed(ready, habits)
        calls = message.get("tool_calls", [])
        if message.get("role") == "tool":
            yield _formed(message, habits)
        elif habits.one_each and len(calls) > 1:
            yield _formed({**message, "tool_calls": calls[:1]}, habits)
            pending = [{"role": "assistant", "content": "", "tool_calls": [c]} for c in calls[1:]]
        else:
            yield _formed(message, habits)
    for ready in pending:
        yield _formed(ready, habits)


def _in_turn(message: Message, pending: list[Message]) -> list[Message]:
    """Of the calls that wait, those that come before this message: taken out of the list."""
    if message.get("role") != "tool":
        ready = list(pending)
    else:
        answered = message.get("tool_call_id")
        ready = [call for call in pending if call["tool_calls"][0].get("id") == answered]
    for call in ready:
        pending.remove(call)
    return ready


def _formed(message: Message, habits: CallHabits) -> Message:
    if message.get("role") == "tool" and habits.short_ids:
        return {**message, "tool_call_id": _short(message.get("tool_call_id"))}
    if not message.get("tool_calls"):
        return message
    calls = [_formed_call(call, habits) for call in message["tool_calls"]]
    content = message["content"] or habits.empty_content
    return {**message, "content": content, "tool_calls": calls}


def _formed_call(call: Mapping[str, Any], habits: CallHabits) -> Message:
    arguments: Any = arguments_of(call)
    if habits.as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    function = {"name": _name(call), "arguments": arguments}
    call_id = call.get("id", "")
    return {
        "id": _short(call_id) if habits.short_ids else call_id,
        "type": "function",
        "function": function,
    }


def arguments_of(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """A call's arguments as an object; raises TemplateError where they are none."""
    value = call.get("function", {}).get("arguments") or {}
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        parsed = None
    if not isinstance(parsed, Mapping):
        raise TemplateError(f"the arguments of a call of {_name(call)!r} are no JSON object")
    return parsed


def _name(call: Mapping[str, Any]) -> str:
    return str(call.get("function", {}).get("name", ""))


def _short(call_id: Any) -> str:
    """Nine letters and digits; the same for the same id."""
    text = str(call_id)
    if len(text) == 9 and text.isalnum():
        return text
    digest: Sequence[int] = hashlib.sha256(text.encode("utf-8", "replace")).digest()[:9]
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest)
