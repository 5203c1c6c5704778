"""Makes Markdown tables of the commands and their flags, from the command line's definitions."""

from collections.abc import Iterable, Sequence
from typing import Any

from markdown_table import table

from sharpi.cli.command import group_of, variables_of
from sharpi.cli.program import COMMANDS, load_command

_WITH_SECTIONS = ("run", "serve")  # commands whose flags have a section of their own


def commands() -> str:
    """Returns a table with a row for each command: its usage and its help's first paragraph."""
    rows = ((f"`{_usage(load_command(name))}`", each.summary) for name, each in COMMANDS.items())
    return table(("command", "what it does"), rows)


def run_flags() -> str:
    """Returns the flags of `run`, with a table for each heading of its help."""
    options = _options("run")
    return "".join(
        f"\n### {heading}\n\n{_flag_table(each for each in options if group_of(each) == heading)}"
        for heading in dict.fromkeys(map(group_of, options))
    )


def serve_flags() -> str:
    """Returns a table of the flags of `serve` that differ from those of `run`."""
    return _flag_table(_own_options("serve"))


def other_flags() -> str:
    """Returns a table for each command other than `run` and `serve`.

    A table has the flags that differ from those of `run`; commands without any are left out.
    """
    own = {name: _own_options(name) for name in COMMANDS if name not in _WITH_SECTIONS}
    return "".join(
        f"\n### sharpi {name}\n\n{_flag_table(options)}" for name, options in own.items() if options
    )


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
    options = [each for each in load_command(command).params if each.param_type_name == "option"]
    return [each for each in options if each.opts != ["-h"]]


def _own_options(command: str) -> list[Any]:
    """Returns a command's options that `run` lacks, or has with another default or help text."""
    shared = [_flag_row(each) for each in _options("run")]
    return [each for each in _options(command) if _flag_row(each) not in shared]


def _flag_table(options: Iterable[Any]) -> str:
    return table(("flag", "variable", "default", "what it does"), map(_flag_row, options))


def _flag_row(option: Any) -> Sequence[str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    variables = ", ".join(f"`{name}`" for name in variables_of(option)) or "-"
    return names + _values(option), variables, _default(option), option.help


def _values(option: Any) -> str:
    if option.metavar:
        return f" {option.metavar}"
    return " " + ", ".join(getattr(option.type, "choices", ()))


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return option.show_default
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return "none" if option.default is None else str(option.default)
