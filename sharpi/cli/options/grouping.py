"""Turns Structs of options into flat parameters of a command, and headings of its help.

Options shared by commands are fields of a Struct in a file of this folder; its `heading` stands
above them in the help. A group may consist of groups. Typer needs one parameter per option, so
`takes_groups` derives that signature from the fields and passes the values back in groups.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

from msgspec import Struct
from typer.core import TyperCommand

from sharpi.cli.options.plain_values import PlainValues

Command = Callable[..., None]


def takes_groups(command: Command) -> Command:
    """Returns the command with each Struct parameter expanded to one parameter per option."""
    parameters = list(_flat_parameters(command))
    groups = _groups(command)

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = _taken_from(values, group)
        command(**values)

    flat.__dict__["__signature__"] = inspect.Signature(parameters)
    flat.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    return flat


def _taken_from(values: dict[str, Any], group: type[Any]) -> Any:
    inner = _groups(group)
    return group(
        **{
            name: _taken_from(values, inner[name]) if name in inner else values.pop(name)
            for name in group.__struct_fields__
        }
    )


def _groups(owner: Command | type[Any]) -> dict[str, type[Any]]:
    """Returns the parameters of a command, or the fields of a group, that are groups."""
    return {
        name: hint
        for name, hint in get_type_hints(owner).items()
        if inspect.isclass(hint) and issubclass(hint, Struct)
    }


def _flat_parameters(command: Command) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(command, include_extras=True)
    groups = _groups(command)
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            yield from _field_parameters(groups[parameter.name])
        else:
            yield parameter.replace(
                kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name]
            )


def _field_parameters(group: type[Any]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    inner = _groups(group)
    for field in inspect.signature(group).parameters.values():
        if field.name in inner:
            yield from _field_parameters(inner[field.name])
            continue
        for option in get_args(hints[field.name])[1:]:
            option.rich_help_panel = group.heading
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )


class GroupedCommand(PlainValues, TyperCommand):
    """A command with its options under headings in the help.

    The headings are Typer's help panels, printed without Rich, since importing Rich alone would
    take half of the time that `--help` is allowed.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(_heading(parameter), []).append(record)
        for heading, records in filter(lambda section: section[1], sections.items()):
            with formatter.section(heading):
                formatter.write_dl(records)


def _heading(parameter: Any) -> str:
    fallback = "Arguments" if parameter.param_type_name == "argument" else "Options"
    return getattr(parameter, "rich_help_panel", None) or fallback
