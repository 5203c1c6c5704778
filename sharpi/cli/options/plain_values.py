"""Reads plain values of options without Typer's adapters.

Typer builds a pydantic adapter for every parameter, given or not, and imports pydantic for the
first one: together a fifth of the time to the first token. Here defaults are used as they are, and
numbers, choices and text are parsed directly if they are plain. Typer handles all other values, and
every error message.
"""

import contextlib
from typing import Any, Final, Literal, get_args, get_origin

from typer.core import TyperGroup

_NOT_PLAIN: Final = object()


class PlainValues:
    """A mixin for Typer's commands and groups whose parameters parse plain values themselves."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if "process_value" not in vars(parameter):
                _take_plain_values(parameter)
        return parameters


class PlainGroup(PlainValues, TyperGroup):
    """A group of commands with such parameters."""


def _take_plain_values(parameter: Any) -> None:
    convert = parameter.process_value

    def process(context: Any, value: Any) -> Any:
        taken = plain(parameter, value)
        if taken is _NOT_PLAIN:
            return convert(context, value)
        callback = parameter.callback
        return taken if callback is None else callback(context, parameter, taken)

    parameter.process_value = process


def plain(parameter: Any, value: Any) -> Any:
    """Returns the parsed value, or _NOT_PLAIN if Typer has to parse it."""
    descriptor = getattr(parameter, "type_descriptor", None)  # since Typer 0.29
    if descriptor is None:
        return _NOT_PLAIN
    is_list = parameter.multiple or parameter.nargs != 1
    if value is None and not parameter.required:
        return () if is_list else None
    if is_list or descriptor.parameter_info.parser or descriptor.file_annotation is not None:
        return _NOT_PLAIN
    return _of_kind(descriptor.annotation, value, descriptor.parameter_info)


def _of_kind(kind: Any, value: Any, limits: Any) -> Any:
    if kind in (bool, int, float, str) and type(value) is kind:
        return value
    if not isinstance(value, str):
        return _NOT_PLAIN
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else _NOT_PLAIN
    if kind in (int, float):
        return _number(kind, value, limits)
    return _NOT_PLAIN


def _number(kind: Any, text: str, limits: Any) -> Any:
    if not set(text) <= set("-0123456789."):
        return _NOT_PLAIN
    with contextlib.suppress(ValueError):
        number = kind(text)
        above = limits.min is None or number >= limits.min
        below = limits.max is None or number <= limits.max
        if above and below:
            return number
    return _NOT_PLAIN
