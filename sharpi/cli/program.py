"""The group of all commands: their table, their import when one runs, and one-line errors.

SHARPI_* variables that no command reads are named, with what was probably meant.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Struct
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sharpi.cli.command import (
    Command,
    Function,
    build_command,
    given_variable,
    heading,
    variables_of,
    write_examples,
)
from sharpi.cli.output.terminal import print_note
from sharpi.cli.termination import USAGE, exiting_on_ctrl_c
from sharpi.errors import UsageError, close_matches, did_you_mean

PROGRAM_EXAMPLES = ("sharpi run", "sharpi models", "sharpi pull qwen3:30b", "sharpi chat qwen3:30b")


class Entry(Struct, frozen=True):
    """What the program's help says of a command, and where its function is."""

    section: str
    function: str  # its module in sharpi.cli.commands, and its name
    summary: str  # the first line of the function's docstring
    examples: tuple[str, ...]


COMMANDS = msgspec.json.decode(
    Path(__file__).with_name("commands.json").read_bytes(), type=dict[str, Entry]
)


@cache
def load_command(name: str) -> Command:
    """Imports and returns the command `name`."""
    entry = COMMANDS[name]
    with exiting_on_ctrl_c():
        return build_command(name, function_of(entry), entry.examples)


def function_of(entry: Entry) -> Function:
    """Imports and returns the function of a command."""
    module, _, name = entry.function.partition(".")
    function: Function = getattr(import_module(f"sharpi.cli.commands.{module}"), name)
    return function


_MORE = (
    "`sharpi COMMAND -h` shows a command's everyday options, `--help` all of them. Most have a "
    "variable: SHARPI_CTX_SIZE is --ctx-size."
)


class Program(TyperGroup):
    """The group of all commands; for its help it has their summaries alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; refuses a command's flag where the command should be."""
        own = [name for each in self.get_params(ctx) for name in each.opts]
        if args and args[0].startswith("-") and args[0][:2] != "--" and args[0] not in own:
            ctx.fail(f"name a command before {args[0]}, as in `sharpi run {args[0]}`")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Imports and returns the command that `args[0]` names."""
        name = args[0]
        if name in COMMANDS:
            return name, _checked(load_command(name), ctx), args[1:]
        if not name.startswith("-"):
            ctx.fail(f"{name!r} is no command of sharpi{_hint(name)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands under the headings of their sections."""
        width = max(map(len, COMMANDS))
        for section, names in groupby(COMMANDS, lambda name: COMMANDS[name].section):
            with formatter.section(heading(section)):
                formatter.write_dl([(n.ljust(width), COMMANDS[n].summary) for n in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the examples, and a line about further help."""
        write_examples(PROGRAM_EXAMPLES, formatter)
        formatter.write_paragraph()
        formatter.write_text(_MORE)


def make_program() -> Program:
    """Returns the Typer group of all commands."""
    app = typer.Typer(
        cls=Program,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        invoke_without_command=True,
    )
    app.callback()(_program)
    program = get_command(app)
    assert isinstance(program, Program)
    for name, entry in COMMANDS.items():
        program.add_command(TyperCommand(name, help=entry.summary))
    return program


def _print_version(wanted: bool) -> None:
    if wanted:
        from sharpi.cli.commands.doctor import version

        version()
        raise typer.Exit


def _program(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "-V",
            "-v",
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Print the version and the CPU kernels in use.",
        ),
    ] = False,
) -> None:
    """Run GGUF mixture-of-experts models on your own machine."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(USAGE)


def _checked(command: Any, context: typer.Context) -> Any:
    """Notes unknown variables, and refuses contradictory ones, before a command is parsed."""
    if not context.resilient_parsing:
        refuse_conflicts(command.params)
        if line := unknown_note(command.params):
            print_note(line)
    return command


def _hint(word: str) -> str:
    """Returns a hint for a word that is no command: a model, a prompt or a misspelt command."""
    if word.lower().endswith(".gguf") or "/" in word or ":" in word:
        return f"; did you mean `sharpi run {quote(word)}`?"
    if " " in word:
        return f"; did you mean `sharpi run MODEL {quote(word)}`?"
    return did_you_mean(word, COMMANDS, 2)


def usage_message(error: Any) -> str:
    """Formats an error of Typer in one line, which names the flag or variable."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "sharpi"
    problem = " ".join(_problem(error, context).split()).rstrip(".")
    see = " See" if problem.endswith("?") else "; see"
    return f"{problem}{see} '{command} --help'"


def _problem(error: Any, context: Any) -> str:
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        flags = [flag for each in context.command.params for flag in each.opts] if context else []
        return f"there is no option {option}{did_you_mean(option, flags)}"
    parameter = getattr(error, "param", None)
    if parameter is not None and error.message and context is not None:
        source = context.get_parameter_source(parameter.name)
        if source is not None and source.name == "ENVIRONMENT":
            return f"variable {given_variable(parameter)}: {error.message}"
    return str(error.format_message())


_PREFIX = "SHARPI_"
_OTHERS = ("SHARPI_DEBUG", "SHARPI_NATIVE_LIBRARY")  # variables that belong to no option


def refuse_conflicts(parameters: Iterable[Any]) -> None:
    """Raises UsageError if two environment variables for one option have different values."""
    for parameter in parameters:
        given = [name for name in variables_of(parameter) if os.environ.get(name)]
        if len({os.environ[name] for name in given}) > 1:
            raise UsageError(f"{given[0]} and {given[1]} contradict each other; keep one")


def unknown_note(parameters: Iterable[Any]) -> str | None:
    """Returns one note on all SHARPI_* variables that no command reads; None if all are known.

    `parameters` are those of the running command. The other commands are imported only if one of
    the variables belongs to none of `parameters`.
    """
    given = {name for name, value in os.environ.items() if name.startswith(_PREFIX) and value}
    unknown = given - _variables(parameters)
    if not unknown:
        return None
    every = [each for name in COMMANDS for each in load_command(name).params]
    words = _documented(every)
    return (
        "; ".join(_described(name, words) for name in sorted(unknown - _variables(every))) or None
    )


def _variables(parameters: Iterable[Any]) -> set[str]:
    return {name for each in parameters for name in variables_of(each)}.union(_OTHERS)


def _documented(parameters: Iterable[Any]) -> dict[str, str]:
    """Maps the names that a user may try for a variable, such as long flags, to the right one."""
    names = {name: name for name in _OTHERS}
    for parameter in parameters:
        for variable in variables_of(parameter)[:1]:
            flags = [name[2:].replace("-", "_").upper() for name in parameter.opts]
            names |= dict.fromkeys([*flags, *variables_of(parameter)], variable)
    return {name.removeprefix(_PREFIX): variable for name, variable in names.items()}


def _described(name: str, words: Mapping[str, str]) -> str:
    close = close_matches(name.removeprefix(_PREFIX), words)
    meant = f": did you mean {words[close[0]]}?" if close else ""
    return f"{name} is not a variable of sharpi and has no effect{meant}"
