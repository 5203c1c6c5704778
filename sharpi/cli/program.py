"""The group of all commands, which imports a command when it runs, and its one-line errors."""

import sys
from itertools import groupby
from shlex import quote
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sharpi.cli.command import markup_mode, write_examples
from sharpi.cli.commands.table import COMMANDS, PROGRAM_EXAMPLES, load_command
from sharpi.cli.option_sources import given_variable
from sharpi.cli.output.terminal import print_note
from sharpi.cli.termination import USAGE
from sharpi.errors import did_you_mean

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
            with formatter.section(section):
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
        rich_markup_mode=markup_mode(),
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="\n\n".join((*PROGRAM_EXAMPLES, _MORE)),
        invoke_without_command=True,
    )
    app.callback()(_program)
    program = get_command(app)
    assert isinstance(program, Program)
    for name, entry in COMMANDS.items():
        program.add_command(TyperCommand(name, help=entry.summary, rich_help_panel=entry.section))
    return program


def _print_version(wanted: bool) -> None:
    if wanted:
        from sharpi.cli.commands.version import version

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
    from sharpi.cli.unknown_variables import refuse_conflicts, unknown_note

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
