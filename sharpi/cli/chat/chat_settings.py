"""The settings that a user may change during a chat: sampler, length and reasoning.

They are the flags of the command line, with the same names and checks.
"""

import re
from typing import Any, get_origin

import click
from msgspec.structs import replace

from sharpi.cli.options.conversation import ConversationOptions
from sharpi.cli.options.length import LengthOptions
from sharpi.cli.options.sampling import SamplingOptions
from sharpi.cli.parsing.fields import Field, fields_of
from sharpi.cli.parsing.value_types import value_type
from sharpi.config import GenerationRequest
from sharpi.errors import UsageError, did_you_mean

_OF_CONVERSATION = "think"
INDENT = 26  # the column at which the meanings begin in a list of settings


class ChatSettings:
    """The current options for answers, which `/set` changes."""

    def __init__(
        self, sampling: SamplingOptions, length: LengthOptions, conversation: ConversationOptions
    ) -> None:
        self._sampling, self._length, self.conversation = sampling, length, conversation

    def request(self) -> GenerationRequest:
        """Returns the engine's request for the next answer."""
        return self._length.request(self._sampling)

    def set(self, name: str, text: str) -> str:
        """Changes one setting; returns its name and value as `/set` lists them.

        Raises UsageError for an unknown name or a refused value.
        """
        field = _field(name)
        value = _value(field, name, text)
        if field.name in SamplingOptions.__struct_fields__:
            self._sampling = replace(self._sampling, **{field.name: value})
        elif field.name in LengthOptions.__struct_fields__:
            self._length = replace(self._length, **{field.name: value})
        else:
            self.conversation = replace(self.conversation, **{field.name: value})
        return f"{_shortest(field)} {_shown(value)}"

    def lines(self) -> list[str]:
        """Returns one line for each setting: its name, its value and its meaning."""
        return [
            f"{_shortest(field):18}{_shown(self._current(field)):8}{_first_clause(field)}"
            for field in _settable_fields()
        ]

    def _current(self, field: Field) -> Any:
        for options in (self._sampling, self._length):
            if field.name in options.__struct_fields__:
                return getattr(options, field.name)
        return getattr(self.conversation, field.name)


def setting_names() -> list[str]:
    """Returns the name of each setting."""
    return [_shortest(field) for field in _settable_fields()]


def _settable(
    sampling: SamplingOptions, length: LengthOptions, conversation: ConversationOptions
) -> None:
    """Does nothing: `fields_of` reads its signature, which lists the settable options."""


def _settable_fields() -> list[Field]:
    others = set(ConversationOptions.__struct_fields__) - {_OF_CONVERSATION}
    return [field for field in fields_of(_settable) if field.name not in others]


def _field(name: str) -> Field:
    wanted = name.lstrip("-").replace("_", "-").lower()
    for field in _settable_fields():
        if wanted in _names(field):
            return field
    meant = did_you_mean(wanted, [each for field in _settable_fields() for each in _names(field)])
    rest = f"{meant} /set lists all" if meant else "; /set lists them"
    raise UsageError(f"there is no setting {name}{rest}")


def _names(field: Field) -> list[str]:
    return [each.split("/")[0].lstrip("-") for each in field.declared.names]


def _shortest(field: Field) -> str:
    """Returns the option's first long name without its dashes, such as `temp` or `top-k`."""
    long_names = [each for each in field.declared.names if each.startswith("--")]
    return long_names[0].split("/")[0].removeprefix("--")


def _first_clause(field: Field) -> str:
    return re.split(r"[;,.:]", field.declared.help)[0]


def _value(field: Field, name: str, text: str) -> Any:
    if get_origin(field.hint) is list:
        return [text]
    try:
        return value_type(field.hint, field.declared).convert(text, None, None)
    except click.BadParameter as error:
        raise UsageError(f"/set {name}: {error.message}") from error


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "on" if value else "off"
        case list():
            return ",".join(value)
    return str(value)
