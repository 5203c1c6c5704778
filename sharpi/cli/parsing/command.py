"""Command: a Click command, built from the annotated parameters of a function."""

import inspect
from collections.abc import Sequence
from typing import Any

import click

from sharpi.cli.parsing.fields import Function, fields_of, with_groups
from sharpi.cli.parsing.help_page import short_help, write_examples, write_options
from sharpi.cli.parsing.parameters import parameter

SETTINGS = {"help_option_names": ["--help"], "max_content_width": 100}


class BrokenStdout(Exception):
    """Raised if the reader of stdout closed the pipe; Click would exit with 1 instead."""


class Command(click.Command):
    """A command that calls a function with the values of its declared parameters."""

    def __init__(self, name: str, function: Function, examples: Sequence[str] = ()) -> None:
        self.examples = tuple(examples)
        super().__init__(
            name,
            params=[*map(parameter, fields_of(function)), _short_help_option()],
            callback=click.pass_context(
                lambda context, **values: with_groups(function, values, context)
            ),
            help=inspect.getdoc(function),
            context_settings=SETTINGS | {"allow_extra_args": True},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments; raises click's UsageError, also for surplus arguments."""
        try:
            super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        if ctx.args and not ctx.resilient_parsing:
            ctx.fail(f"{ctx.args[0]!r} is one argument too many{_takes(self, ctx)}")
        return ctx.args

    def invoke(self, ctx: click.Context) -> Any:
        """Calls the command's function; turns BrokenPipeError into BrokenStdout."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise BrokenStdout from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under the headings of their groups."""
        write_options(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        write_examples(self.examples, formatter)


def _short_help_option() -> click.Option:
    return click.Option(
        ["-h", "short_help"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_print_short_help,
        help="Show the everyday options and exit.",
    )


def _print_short_help(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        assert isinstance(context.command, Command)
        print(short_help(context, context.command.examples))
        context.exit()


def _takes(command: click.Command, context: click.Context) -> str:
    """Returns the end of a message with the arguments that the command accepts."""
    places = [each for each in command.params if each.param_type_name == "argument"]
    names = " ".join(each.make_metavar(context) for each in places)
    return f"; '{context.command_path}' takes {names or 'none'}"
