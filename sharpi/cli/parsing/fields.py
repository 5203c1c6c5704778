"""Reads the parameters of a command, including the fields of its option Structs.

Options that commands share are fields of a Struct in `sharpi.cli.options`, whose `heading` is
printed above them in the help. A Struct may contain others. The parser needs one parameter per
option, so `fields_of` lists them all, and `with_groups` passes the values back in Structs.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import click
from msgspec import Struct

from sharpi.cli.parsing.declared import Declared

Function = Callable[..., None]

REQUIRED = inspect.Parameter.empty


class Field(Struct, frozen=True):
    """A parameter with its own option or argument."""

    name: str
    hint: Any  # the type of its values, without None
    default: Any  # REQUIRED if there is none
    declared: Declared
    heading: str | None = None


def fields_of(command: Function) -> Iterator[Field]:
    """Yields the fields of a command in the order of its signature."""
    hints = get_type_hints(command, include_extras=True)
    groups = _groups(command)
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            yield from _fields_of_group(groups[parameter.name])
        elif hints[parameter.name] is not click.Context:
            yield _field(parameter, hints[parameter.name])


def with_groups(command: Function, values: dict[str, Any], context: click.Context) -> None:
    """Calls the command with the values in their Structs, and with the context if it takes one."""
    for name, hint in get_type_hints(command).items():
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
    """Returns those parameters of a command, or fields of a Struct, that are Structs of options."""
    return {
        name: hint
        for name, hint in get_type_hints(owner).items()
        if inspect.isclass(hint) and issubclass(hint, Struct)
    }


def _fields_of_group(group: type[Any]) -> Iterator[Field]:
    hints = get_type_hints(group, include_extras=True)
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
    """Returns the type of the values that an option takes: `int` of `int | None`."""
    alternatives = [each for each in get_args(hint) if each is not type(None)]
    is_optional = type(None) in get_args(hint)
    return alternatives[0] if is_optional and len(alternatives) == 1 else hint
