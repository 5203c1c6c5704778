"""The settings that a user may change during a chat: sampler, length and reasoning.

They are the flags of the command line, with the same names and checks.
"""

import re
from typing import Any

from msgspec.structs import replace

from sharpi.errors import UsageError, did_you_mean
from sharpi.settings import GenerationRequest, SamplingParams
from sharpi.settings.option import Field, all_fields
from sharpi.settings.sampling import ConversationOptions

_OF_CONVERSATION = "think"
INDENT = 26  # the column at which the meanings begin in a list of settings


class ChatSettings:
    """The current options for answers, which `/set` changes."""

    def __init__(self, request: GenerationRequest, conversation: ConversationOptions) -> None:
        self.request, self.conversation = request, conversation

    def set(self, name: str, text: str) -> str:
        """Changes one setting; returns it as `/set` lists it; raises UsageError if it cannot."""
        field = _field(name)
        value = _value(field, name, text)
        options = self._options_with(field)
        changed = replace(options, **{field.name: value})
        if isinstance(changed, ConversationOptions):
            self.conversation = changed
        elif isinstance(changed, SamplingParams):
            self.request = replace(self.request, sampling=changed)
        else:
            self.request = changed
        return f"{field.option.long_name} {_shown(value)}"

    def lines(self) -> list[str]:
        """Returns one line for each setting: its name, its value and its meaning."""
        return [
            f"{each.option.long_name:18}{_shown(getattr(self._options_with(each), each.name)):8}"
            + _first_clause(each)
            for each in _settable_fields()
        ]

    def _options_with(self, field: Field) -> Any:
        every = (self.request.sampling, self.request, self.conversation)
        return next(options for options in every if field.name in options.__struct_fields__)


def setting_names() -> list[str]:
    """Returns the name of each setting."""
    return [field.option.long_name for field in _settable_fields()]


def _settable_fields() -> list[Field]:
    every = [*all_fields(SamplingParams), *all_fields(GenerationRequest)]
    others = [each for each in all_fields(ConversationOptions) if each.name == _OF_CONVERSATION]
    return list({each.name: each for each in (*every, *others)}.values())


def _field(name: str) -> Field:
    wanted = name.lstrip("-").replace("_", "-").lower()
    for field in _settable_fields():
        if wanted in _names(field):
            return field
    meant = did_you_mean(wanted, [each for field in _settable_fields() for each in _names(field)])
    rest = f"{meant} /set lists all" if meant else "; /set lists them"
    raise UsageError(f"there is no setting {name}{rest}")


def _names(field: Field) -> list[str]:
    return [each.split("/")[0].lstrip("-") for each in field.option.flags]


def _first_clause(field: Field) -> str:
    return re.split(r"[;,.:]", field.option.help)[0]


def _value(field: Field, name: str, text: str) -> Any:
    if field.is_list:
        return (text,)
    try:
        return field.option.read(text, field.kind)
    except ValueError as error:
        raise UsageError(f"/set {name}: {error}") from error


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ",".join(value)
    return str(value)
