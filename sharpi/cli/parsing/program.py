"""Finds the commands of the running program, for `sharpi help` and `sharpi man`."""

import click

from sharpi.cli.parsing.command import Command
from sharpi.cli.parsing.commands import Commands


def command_named(program: click.Context, name: str) -> Command:
    """Returns the command `name`; raises UsageError, which lists similar names."""
    _, command, _ = _group(program).resolve_command(program, [name])
    assert isinstance(command, Command)
    return command


def commands_of(program: click.Context) -> dict[str, Command]:
    """Returns all commands by name."""
    group = _group(program)
    return {name: command_named(program, name) for name in group.list_commands(program)}


def _group(program: click.Context) -> Commands:
    assert isinstance(program.command, Commands)
    return program.command
