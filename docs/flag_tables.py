"""Makes Markdown tables of the commands and their flags, from the command line's definitions."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import click
from markdown_table import table

from sharpi.cli.main import make_app
from sharpi.cli.parsing.parameters import DeclaredOption
from sharpi.cli.parsing.variables import variables_of

_WITH_SECTIONS = ("run", "serve")  # commands whose flags have a section of their own
_WITHOUT_HEADING = "Prompt and output"


def commands() -> str:
    """Returns a table with a row for each command: its usage and its help's first paragraph."""
    rows = ((f"`{_usage(each)}`", each.help.partition("\n\n")[0]) for each in _commands().values())
    return table(("command", "what it does"), rows)


def run_flags() -> str:
    """Returns the flags of `run`, with a table for each heading of its help."""
    options = _options("run")
    return "".join(
        f"\n### {heading}\n\n{_flag_table(each for each in options if _heading(each) == heading)}"
        for heading in dict.fromkeys(map(_heading, options))
    )


def serve_flags() -> str:
    """Returns a table of the flags of `serve` that differ from those of `run`."""
    return _flag_table(_own_options("serve"))


def other_flags() -> str:
    """Returns a table for each command other than `run` and `serve`.

    A table has the flags that differ from those of `run`; commands without any are left out.
    """
    own = {name: _own_options(name) for name in _commands() if name not in _WITH_SECTIONS}
    return "".join(
        f"\n### sharpi {name}\n\n{_flag_table(options)}" for name, options in own.items() if options
    )


@cache
def _commands() -> dict[str, Any]:
    app = make_app()
    context = click.Context(app, info_name="sharpi")
    return {name: app.get_command(context, name) for name in app.list_commands(context)}


def _usage(command: Any) -> str:
    """Returns a command's usage: its name, arguments and required options."""
    return " ".join(["sharpi", command.name, *filter(None, map(_usage_of, command.params))])


def _usage_of(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return f"{parameter.opts[-1]} {parameter.metavar}" if parameter.required else ""
    name = parameter.metavar
    return name if parameter.required else f"[{name.strip('[]')}]"


def _options(command: str) -> list[Any]:
    """Returns the options that a command declares, without `--help`."""
    params = _commands()[command].params
    return [each for each in params if isinstance(each, DeclaredOption)]


def _own_options(command: str) -> list[Any]:
    """Returns a command's options that `run` lacks, or has with another default or help text."""
    shared = [_flag_row(each) for each in _options("run")]
    return [each for each in _options(command) if _flag_row(each) not in shared]


def _heading(option: Any) -> str:
    return option.field.heading or _WITHOUT_HEADING


def _flag_table(options: Iterable[Any]) -> str:
    return table(("flag", "variable", "default", "what it does"), map(_flag_row, options))


def _flag_row(option: Any) -> Sequence[str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    variables = ", ".join(f"`{name}`" for name in variables_of(option)) or "-"
    return names + _values(option), variables, _default(option), option.field.declared.help


def _values(option: Any) -> str:
    if choices := getattr(option.type, "choices", ()):
        return " " + ", ".join(choices)
    return f" {option.metavar}" if option.metavar else ""


def _default(option: Any) -> str:
    default = option.field.default
    if option.required:
        return "required"
    if option.field.declared.show_default:
        return str(option.field.declared.show_default)
    if isinstance(default, bool):
        return "on" if default else "off"
    return "none" if default in (None, [], ()) else str(default)
