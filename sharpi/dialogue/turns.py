"""Turns: the orders of messages that a chat template holds, and how a conversation is fitted to it.

Some templates refuse a conversation, and others lose a text without a word. What a template cannot
hold is moved or joined, and never dropped.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

Message = dict[str, Any]
_SYSTEM = ("system", "developer")


class Turns(Struct, frozen=True):
    """The orders of messages in which a template shows every text."""

    system: bool = True
    system_alone: bool = True
    late_system: bool = True
    users_in_a_row: bool = True
    answers_in_a_row: bool = True
    answer_first: bool = True
    user_after_result: bool = True


# Each field of Turns, with what happens where a template lacks it; `sharpi inspect` shows it.
MOVES: dict[str, tuple[str, str]] = {
    "system": ("a system message", "its text begins the next user message"),
    "system_alone": ("a system message alone", "it is shown as the user's"),
    "late_system": ("a system message later on", "its text begins the next user message"),
    "users_in_a_row": ("user messages in a row", "they are joined by a blank line"),
    "answers_in_a_row": ("answers in a row", "they are joined by a blank line"),
    "answer_first": ("an answer first", "an empty user message comes before it"),
    "user_after_result": ("a user message after a result", "its text ends the result"),
}


def probe_turns(shows: Callable[[Sequence[Message]], bool], calling: Sequence[Message]) -> Turns:
    """Returns what a template holds; `shows` says whether it shows all texts of a conversation.

    `calling`: a conversation that ends with a tool's result, in the template's own form; empty if
    it has none.
    """
    system, later = _probes("system", "rule", "later rule")
    first, second = _probes("user", "first", "second")
    answers = _probes("assistant", "answer", "more")
    return Turns(
        system=shows([system, first]),
        system_alone=shows([system]),
        late_system=shows([system, first, answers[0], later, second]),
        users_in_a_row=shows([first, second]),
        answers_in_a_row=shows([first, *answers, second]),
        answer_first=shows([answers[0], first]),
        user_after_result=not calling or shows([*calling, second]),
    )


def _probes(role: str, *texts: str) -> list[Message]:
    return [{"role": role, "content": f"probe {text}"} for text in texts]


def fit(messages: Sequence[Message], turns: Turns) -> list[Message]:
    """Returns the messages in an order that the template holds, with all their texts."""
    first = next((i for i, m in enumerate(messages) if m.get("role") not in _SYSTEM), len(messages))
    leading, rest = list(messages[:first]), list(messages[first:])
    if len(leading) > 1:
        leading = [{**leading[0], "content": _paragraphs(leading)}]
    if not turns.system or not (rest or turns.system_alone):
        leading, rest = [], _without_system([*leading, *rest])
    elif not turns.late_system:
        rest = _without_system(rest)
    rest = _joined(rest, turns)
    if rest and rest[0].get("role") == "assistant" and not turns.answer_first:
        rest.insert(0, {"role": "user", "content": ""})
    return leading + rest


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


def _joined(messages: Iterable[Message], turns: Turns) -> list[Message]:
    joins = {
        ("user", "user"): not turns.users_in_a_row,
        ("assistant", "assistant"): not turns.answers_in_a_row,
        ("tool", "user"): not turns.user_after_result,
    }
    joined: list[Message] = []
    for message in messages:
        if joined and joins.get((joined[-1].get("role", ""), message.get("role", ""))):
            joined[-1] = _both(joined[-1], message)
        else:
            joined.append(message)
    return joined


def _both(first: Message, second: Message) -> Message:
    """Returns one message of the first's role, with the texts and calls of both."""
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    both = {**second, **first, "content": _paragraphs([first, second])}
    return both | ({"tool_calls": calls} if calls else {})


def _paragraphs(messages: Iterable[Message]) -> str:
    return "\n\n".join(filter(None, (message["content"] for message in messages)))
