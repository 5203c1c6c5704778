"""Click parameter types: each parses the text of a value, or raises an error that quotes it."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem

from sharpi.cli.parsing.declared import Declared
from sharpi.errors import did_you_mean

_WHOLE = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS = 4000  # the most digits that Python reads
_MOST_SHOWN = 60  # characters of a value that a message shows
_ON = ("1", "true", "t", "yes", "y", "on", "enabled")
_OFF = ("0", "false", "f", "no", "n", "off", "disabled")


class RefusedValue(click.BadParameter):
    """Raised for an invalid value of an option; the message quotes the value."""

    def __init__(self, text: str, problem: str, parameter: Any, context: Any) -> None:
        shown = repr(text[:_MOST_SHOWN])
        super().__init__(problem if shown in problem else f"{shown}: {problem}", context, parameter)


class ValueType(click.ParamType):  # type: ignore[type-arg]  # it is generic in some versions only
    """The Click type of a parameter, from its annotation and its declared limits."""

    name = "text"

    def __init__(self, hint: Any, declared: Declared) -> None:
        self.hint, self._declared = hint, declared
        self._read = declared.parser or _reader(hint)

    @property
    def choices(self) -> Sequence[str]:
        """The allowed values if the annotation is a Literal; empty otherwise."""
        return get_args(self.hint) if get_origin(self.hint) is Literal else ()

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Parses a text, and checks the value; raises RefusedValue.

        Values that are not text, such as defaults, are returned unchanged.
        """
        if not isinstance(value, str):
            return value
        try:
            return self._checked(value)
        except click.BadParameter as error:
            raise RefusedValue(value, error.message, param, ctx) from None
        except ValueError as error:
            raise RefusedValue(value, str(error), param, ctx) from None

    def _checked(self, text: str) -> Any:
        value, declared = self._read(text), self._declared
        if declared.min is not None and value < declared.min:
            raise ValueError(f"{text!r} is below {declared.min}, the smallest value")
        if declared.max is not None and value > declared.max:
            raise ValueError(f"{text!r} is above {declared.max}, the largest value")
        return value if declared.callback is None else declared.callback(value)

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Splits an environment variable into the texts of a list."""
        return (self._declared.split or str.split)(rv)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Returns the choices that begin with `incomplete`, or a request for file names."""
        offered = self._declared.autocompletion
        if choices := offered() if offered else self.choices:
            return [CompletionItem(each) for each in choices if each.startswith(incomplete)]
        is_file = self.hint is Path or param.metavar in ("FILE", "MODEL", "PATH", "TRACE")
        return [CompletionItem(incomplete, type="file")] if is_file else []


class SwitchType(click.types.BoolParamType):
    """The type of a switch: its flags have no value, its environment variable is on or off."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Parses a variable's value, such as `on` or `0`; returns flags and defaults unchanged."""
        if not isinstance(value, str):
            return value
        word = value.strip().lower()
        if word not in _ON + _OFF:
            raise RefusedValue(value, f"{value!r} is neither 'on' nor 'off'", param, ctx)
        return word in _ON


def value_type(hint: Any, declared: Declared) -> ValueType | SwitchType:
    """Returns the Click type for an annotation from which None was removed."""
    return SwitchType() if hint is bool else ValueType(hint, declared)


def _reader(hint: Any) -> Callable[[str], Any]:
    if get_origin(hint) is Literal:
        return lambda text: _choice(text, get_args(hint))
    return _READERS[hint]


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text.strip()) or len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:_MOST_SHOWN]!r} is not a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def _choice(text: str, choices: Sequence[str]) -> str:
    if text in choices:
        return text
    raise ValueError(f"{text!r} is none of {', '.join(choices)}{did_you_mean(text, choices)}")


_READERS: dict[Any, Callable[[str], Any]] = {
    int: _whole,
    float: _number,
    str: str,
    Path: Path,
}
