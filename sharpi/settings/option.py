"""Option: what the command line knows of a setting; it stands in the annotation of its field.

The flag, its SHARPI_* variable, the help, docs/flags.md and a chat's /set are made from it. The
variable is the first long name in capitals: SHARPI_CTX_SIZE sets `--ctx-size`.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from sharpi.errors import did_you_mean

LARGEST_COUNT = 2**31 - 1  # counts are 32-bit in the native library
_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")
_SHOWN = 60  # characters of a value that a message shows


class _Named(Struct, frozen=True):
    names: str  # and the value's: `-c --ctx-size N`, `--think/--no-think` for a switch, `MODEL`
    help: str


class Option(_Named, frozen=True, kw_only=True):
    """The names, help and values of an option, or of an argument if it has no flags."""

    min: float | None = None
    max: float | None = None
    is_repeated: bool = False  # each flag adds a value to a tuple
    # Reads a text, and raises ValueError; it may return a dict of the values of several fields.
    parse: Callable[[str], Any] | None = None
    split: Callable[[str], Sequence[str]] | None = None  # splits a variable into values of a list
    default: str | None = None  # describes the default in words
    group: str | None = None  # the heading in the help; None: that of the struct
    has_variable: bool = True
    also: str | None = None  # a second variable, which users of another program know

    @property
    def flags(self) -> list[str]:
        """The short and long flags; none for an argument."""
        return [word for word in self.names.split() if word.startswith("-")]

    @property
    def metavar(self) -> str | None:
        """The name of the value in the help."""
        last = self.names.split()[-1]
        return None if last.startswith("-") else last

    @property
    def parameter(self) -> str:
        """The first long name as a word of Python: `ctx_size`."""
        return self.long_name.replace("-", "_")

    @property
    def long_name(self) -> str:
        """The first long name without its hyphens: `ctx-size`."""
        return self.names[self.names.index("--") + 2 :].split()[0].split("/")[0]

    @property
    def variables(self) -> list[str]:
        """The environment variables, of which the first is documented."""
        if not self.flags or not self.has_variable:
            return []
        return [f"SHARPI_{self.parameter.upper()}", *filter(None, [self.also])]

    def read(self, text: str, kind: Any) -> Any:
        """Returns the value in a text for a field of type `kind`; raises ValueError with both."""
        try:
            value = self.parse(text) if self.parse else _reader(kind)(text)
            self._check(text, value, LARGEST_COUNT if kind is int and not self.parse else math.inf)
        except ValueError as error:
            shown, problem = repr(text[:_SHOWN]), str(error)
            raise ValueError(problem if shown in problem else f"{shown}: {problem}") from None
        return value

    def _check(self, text: str, value: Any, most: float) -> None:
        most = most if self.max is None else self.max
        if self.min is not None and value < self.min:
            raise ValueError(f"{text!r} is below {self.min}, the smallest value")
        if isinstance(value, int | float) and value > most:
            raise ValueError(f"{text!r} is above {most}, the largest value")


class Field(Struct, frozen=True):
    """A setting: the field of a struct or the parameter of a command that declares an option."""

    name: str
    kind: Any  # the type without None and without the list around it
    is_list: bool  # of several flags or arguments
    default: Any  # inspect.Parameter.empty if there is none
    option: Option
    group: str | None


class Only(Struct, frozen=True):
    """Stands in the annotation of a struct of settings: the command has these alone."""

    names: tuple[str, ...]  # of groups, or of parameters

    def has(self, field: Field) -> bool:
        """Returns whether the command has the setting."""
        return field.group in self.names or field.option.parameter in self.names


class Without(Only, frozen=True):
    """Stands in the annotation of a struct of settings: the command lacks these."""

    def has(self, field: Field) -> bool:
        return not super().has(field)


@cache
def settings_of(owner: Any) -> tuple[tuple[str, Any], ...]:
    """Returns the names of fields or parameters with options, and each Field or struct."""
    return tuple(_settings_of(owner))


def all_fields(owner: Any) -> Iterator[Field]:
    """Yields the settings of `owner` and of the structs in it."""
    for _, value in settings_of(owner):
        if isinstance(value, Field):
            yield value
        else:
            yield from all_fields(value)


def _settings_of(owner: Any) -> Iterator[tuple[str, Any]]:
    hints = get_type_hints(owner, include_extras=True)
    heading = getattr(owner, "GROUP", None)
    for name, parameter in inspect.signature(owner).parameters.items():
        kind, option = _without_none(hints.get(name)), None
        if get_origin(kind) is Annotated:
            kind, option, *_ = get_args(kind)
        if isinstance(option, Option):
            yield name, _field(name, kind, parameter.default, option, heading)
        elif inspect.isclass(kind) and issubclass(kind, Struct):
            yield name, kind


def _field(name: str, hint: Any, default: Any, option: Option, heading: str | None) -> Field:
    kind = _without_none(hint)
    is_list = option.is_repeated or get_origin(kind) is list
    inner = get_args(kind)[0] if is_list else kind
    return Field(name, inner, is_list, default, option, option.group or heading)


def _without_none(hint: Any) -> Any:
    """Returns a type without None: `int` for `int | None`."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    alternatives = [each for each in get_args(hint) if each is not type(None)]
    return alternatives[0] if len(alternatives) == 1 else hint


def _reader(kind: Any) -> Callable[[str], Any]:
    if get_origin(kind) is Literal:
        return lambda text: choice(text, get_args(kind))
    readers: dict[Any, Callable[[str], Any]] = {
        int: _whole,
        float: _number,
        bool: switch,
        Path: Path,
    }
    return readers.get(kind, str)


def switch(text: str) -> bool:
    """Returns whether a variable switches something on; raises ValueError for other words."""
    word = text.strip().lower()
    if word in ("1", "true", "t", "yes", "y", "on", "enabled"):
        return True
    if word in ("0", "false", "f", "no", "n", "off", "disabled"):
        return False
    raise ValueError(f"{text!r} is neither 'on' nor 'off'")


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text.strip()):
        raise ValueError(f"{text[:_SHOWN]!r} is not a whole number")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def choice(text: str, choices: Sequence[str]) -> str:
    """Returns the text if it is one of the choices; raises ValueError otherwise."""
    if text in choices:
        return text
    raise ValueError(f"{text!r} is none of {', '.join(choices)}{did_you_mean(text, choices)}")


def positive(text: str) -> float:
    """Returns the number in a text; raises ValueError unless it is above 0."""
    value = _number(text)
    if value <= 0:
        raise ValueError(f"{text!r} is not a finite number above 0")
    return value


def local_option(names: str, help: str, **settings: Any) -> Option:
    """Declares an option of a single command, without a variable."""
    return Option(names, help, has_variable=False, **settings)
