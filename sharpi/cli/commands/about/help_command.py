"""`sharpi help`: the help of the program, or the full help of a command."""

from typing import Annotated

import click

from sharpi.cli.commands.table import NAMES
from sharpi.cli.options.option import argument
from sharpi.cli.parsing.program import command_named


def help_command(
    context: click.Context,
    command: Annotated[
        str | None, argument("COMMAND", "The command to explain.", autocompletion=lambda: NAMES)
    ] = None,
) -> None:
    """Explain the program or a command."""
    parent = context.parent or context
    if command is None:
        print(parent.get_help())
        return
    named = command_named(parent, command)
    print(named.get_help(named.make_context(command, [], parent, resilient_parsing=True)))
