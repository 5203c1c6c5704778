"""`sharpi man`: man pages, made from the same declarations as the help."""

from pathlib import Path
from typing import Annotated

import click

from sharpi.cli.commands.table import NAMES
from sharpi.cli.options.option import argument, local_option
from sharpi.cli.output.man_page import command_page, program_page
from sharpi.cli.parsing.program import command_named, commands_of
from sharpi.errors import UsageError


def man(
    context: click.Context,
    command: Annotated[
        str | None, argument("COMMAND", "The command to describe.", autocompletion=lambda: NAMES)
    ] = None,
    folder: Annotated[
        Path | None, local_option("--folder", "Write the pages of all commands there.", "FOLDER")
    ] = None,
) -> None:
    """Print a man page, or write all of them.

    `sharpi man run | man -l -` shows a page. With --folder, the pages of all commands (sharpi.1,
    sharpi-run.1 and so on) are written into that folder, such as a man1 folder of the manual.
    """
    parent = context.parent or context
    if folder is not None:
        return _write_all(parent, folder)
    print(program_page(parent) if command is None else command_page(command_named(parent, command)))


def _write_all(parent: click.Context, folder: Path) -> None:
    pages = {f"sharpi-{name}.1": command_page(each) for name, each in commands_of(parent).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"sharpi.1": program_page(parent), **pages}.items():
            (folder / name).write_text(text + "\n", "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from error
    print(f"wrote {len(pages) + 1} pages to {folder}")
