"""Reads the parameters of a command, including the fields of its option Structs.

Options that commands share are fields of a Struct in `sharpi.cli.options`, whose `heading` is
printed above them in the help. A Struct may contain other Structs. Click needs one parameter per
option, so `fields_of` lists all options, and `with_groups` builds the Structs from their values.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
from msgspec import Struct

from sharpi.cli.parsing.declared import Declared

Function = Callable[..., None]

REQUIRED = inspect.Parameter.empty

# A command's types are asked for when it is built and again when it runs.
_hints: Callable[..., dict[str, Any]] = cache(get_type_hints)


class Field(Struct, frozen=True):
    """One option or argument of a command, and the parameter or Struct field it belongs to."""

    name: str
    hint: Any  # the type of its values, without None
    default: Any  # REQUIRED if there is none
    declared: Declared
    heading: str | None = None


def fields_of(command: Function) -> Iterator[Field]:
    """Yields all options and arguments of a command, in the order of its signature."""
    hints = _hints(command, include_extras=True)
    groups = _groups(command)
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            yield from _fields_of_group(groups[parameter.name])
        elif hints[parameter.name] is not click.Context:
            yield _field(parameter, hints[parameter.name])


def with_groups(command: Function, values: dict[str, Any], context: click.Context) -> None:
    """Builds the option Structs from `values`, and calls the command with them.

    A parameter annotated with click.Context receives `context`.
    """
    for name, hint in _hints(command).items():
        if hint is click.Context:
            values[name] = context
    for name, group in _groups(command).items():
        values[name] = _taken_from(values, group)
    command(**values)


def _taken_from(values: dict[str, Any], group: type[Any]) -> Any:
    inner = _groups(group)
    return group(
        **{
            name: _taken_from(values, inner[name]) if name in inner else values.pop(name)
            for name in group.__struct_fields__
        }
    )


def _groups(owner: Function | type[Any]) -> dict[str, type[Any]]:
    """Returns the option Structs among a command's parameters or a Struct's fields, by name."""
    return {
        name: hint
        for name, hint in _hints(owner).items()
        if inspect.isclass(hint) and issubclass(hint, Struct)
    }


def _fields_of_group(group: type[Any]) -> Iterator[Field]:
    hints = _hints(group, include_extras=True)
    inner = _groups(group)
    for parameter in inspect.signature(group).parameters.values():
        if parameter.name in inner:
            yield from _fields_of_group(inner[parameter.name])
        else:
            yield _field(parameter, hints[parameter.name], group.heading)


def _field(parameter: inspect.Parameter, hint: Any, heading: str | None = None) -> Field:
    assert get_origin(hint) is Annotated, f"{parameter.name} declares no option"
    kind, declared = get_args(hint)[:2]
    return Field(parameter.name, _without_none(kind), parameter.default, declared, heading)


def _without_none(hint: Any) -> Any:
    """Returns a type annotation without None: `int` for `int | None`."""
    alternatives = [each for each in get_args(hint) if each is not type(None)]
    is_optional = type(None) in get_args(hint)
    return alternatives[0] if is_optional and len(alternatives) == 1 else hint
