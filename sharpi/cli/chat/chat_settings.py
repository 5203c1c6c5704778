"""The settings that a user may change during a chat: sampler, length and reasoning.

They are the flags of the command line, with the same names and checks.
"""

import re
from typing import Any

from msgspec.structs import replace

from sharpi.errors import UsageError, did_you_mean
from sharpi.settings import GenerationRequest, SamplingParams
from sharpi.settings.conversation import ConversationOptions
from sharpi.settings.option import Field, all_fields

_OF_CONVERSATION = "think"
INDENT = 26  # the column at which the meanings begin in a list of settings


class ChatSettings:
    """The current options for answers, which `/set` changes."""

    def __init__(self, request: GenerationRequest, conversation: ConversationOptions) -> None:
        self.request, self.conversation = request, conversation

    def set(self, name: str, text: str) -> str:
        """Changes one setting; returns its name and value as `/set` lists them.

        Raises UsageError for an unknown name or a refused value.
        """
        field = _field(name)
        value = _value(field, name, text)
        if field.name in SamplingParams.__struct_fields__:
            sampling = replace(self.request.sampling, **{field.name: value})
            self.request = replace(self.request, sampling=sampling)
        elif field.name in GenerationRequest.__struct_fields__:
            self.request = replace(self.request, **{field.name: value})
        else:
            self.conversation = replace(self.conversation, **{field.name: value})
        return f"{field.option.long_name} {_shown(value)}"

    def lines(self) -> list[str]:
        """Returns one line for each setting: its name, its value and its meaning."""
        return [
            f"{field.option.long_name:18}{_shown(self._current(field)):8}{_first_clause(field)}"
            for field in _settable_fields()
        ]

    def _current(self, field: Field) -> Any:
        for options in (self.request.sampling, self.request):
            if field.name in options.__struct_fields__:
                return getattr(options, field.name)
        return getattr(self.conversation, field.name)


def setting_names() -> list[str]:
    """Returns the name of each setting."""
    return [field.option.long_name for field in _settable_fields()]


def _settable_fields() -> list[Field]:
    others = [each for each in all_fields(ConversationOptions) if each.name == _OF_CONVERSATION]
    return [*all_fields(SamplingParams), *_lengths(), *others]


def _lengths() -> list[Field]:
    return [each for each in all_fields(GenerationRequest) if each.group == GenerationRequest.GROUP]


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
