"""Tables of the commands and of their flags, from the options that the command line defines."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args, get_origin

from markdown_table import table
from typer.main import get_command

from sharpi.cli.main import make_app

_WITH_SECTIONS = ("run", "serve")  # commands whose flags have a section of their own
_WITHOUT_HEADING = "Prompt and output"


def commands() -> str:
    """One row for each command: how it is called, and the first paragraph of its help."""
    rows = ((f"`{_usage(each)}`", each.help.partition("\n\n")[0]) for each in _commands().values())
    return table(("command", "what it does"), rows)


def run_flags() -> str:
    """The flags of `run`, a table for each heading of its help."""
    options = _options("run")
    return "".join(
        f"\n### {heading}\n\n{_flag_table(each for each in options if _heading(each) == heading)}"
        for heading in dict.fromkeys(map(_heading, options))
    )


def serve_flags() -> str:
    """The flags that `serve` has and `run` has not."""
    return _flag_table(_own_options("serve"))


def other_flags() -> str:
    """A table for each other command with flags of its own."""
    own = {name: _own_options(name) for name in _commands() if name not in _WITH_SECTIONS}
    return "".join(
        f"\n### sharpi {name}\n\n{_flag_table(options)}" for name, options in own.items() if options
    )


def _commands() -> dict[str, Any]:
    commands: dict[str, Any] = get_command(make_app()).commands  # type: ignore[attr-defined]
    return commands


def _usage(command: Any) -> str:
    """The command with its arguments, and the options that it cannot do without."""
    return " ".join(["sharpi", command.name, *filter(None, map(_usage_of, command.params))])


def _usage_of(parameter: Any) -> str:
    if parameter.param_type_name == "option":
        return f"{parameter.opts[-1]} {parameter.metavar}" if parameter.required else ""
    name = parameter.metavar
    return name if parameter.required else f"[{name.strip('[]')}]"


def _options(command: str) -> list[Any]:
    """A command's options; `hint` is the type that its function gives each."""
    parameters = inspect.signature(_function(command)).parameters
    options = [each for each in _commands()[command].params if each.param_type_name == "option"]
    for each in options:
        each.hint = get_args(parameters[each.name].annotation)[0]
    return options


def _function(command: str) -> Callable[..., None]:
    functions = [each for each in make_app().registered_commands if each.name == command]
    assert functions[0].callback is not None
    return functions[0].callback


def _own_options(command: str) -> list[Any]:
    """The options that `run` has not, or means otherwise."""
    shared = [_flag_row(each) for each in _options("run")]
    return [each for each in _options(command) if _flag_row(each) not in shared]


def _heading(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or _WITHOUT_HEADING


def _flag_table(options: Iterable[Any]) -> str:
    return table(("flag", "variable", "default", "what it does"), map(_flag_row, options))


def _flag_row(option: Any) -> Sequence[str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    variable = f"`{option.envvar}`" if option.envvar else "-"
    return names + _values(option), variable, _default(option), option.help or ""


def _values(option: Any) -> str:
    hints = (option.hint, *get_args(option.hint))
    choices = [each for each in hints if get_origin(each) is Literal]
    if choices:
        return " " + ", ".join(get_args(choices[0]))
    return f" {option.metavar}" if option.metavar else ""


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if isinstance(option.show_default, str):
        return option.show_default
    if isinstance(option.default, bool):
        return "on" if option.default else "off"
    return "none" if option.default in (None, [], ()) else str(option.default)
