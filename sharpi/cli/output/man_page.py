"""Writes man pages, in roff, from the declarations of commands."""

import textwrap
from collections.abc import Iterator
from typing import Any

import click

from sharpi import __version__
from sharpi.cli.parsing.command import Command
from sharpi.cli.parsing.help_page import heading_of, names_of, rank, variables_rule
from sharpi.cli.parsing.program import commands_of


def command_page(command: Command) -> str:
    """Returns the man page of a command."""
    context = click.Context(command, info_name=f"sharpi {command.name}", **command.context_settings)
    return "\n".join(_command_lines(command, context))


def program_page(program: click.Context) -> str:
    """Returns the man page of the program, with the summary of each command."""
    return "\n".join(_program_lines(program))


def _command_lines(command: Command, context: click.Context) -> Iterator[str]:
    summary, _, rest = (command.help or "").partition("\n\n")
    yield from _head(f"sharpi-{command.name}", summary)
    usage = " ".join(command.collect_usage_pieces(context))
    yield ".SH SYNOPSIS"
    yield f"\\fBsharpi {command.name}\\fR {_roff(usage)}"
    yield ".SH DESCRIPTION"
    yield _roff(f"{summary} {' '.join(rest.split())}".strip())
    yield from _option_lines(command, context)
    if command.examples:
        yield ".SH EXAMPLES"
        yield from (".nf", *map(_roff, command.examples), ".fi")
    yield from (".SH SEE ALSO", "\\fBsharpi\\fR(1)")


def _option_lines(command: Command, context: click.Context) -> Iterator[str]:
    parameters: list[Any] = command.get_params(context)
    headings = sorted(dict.fromkeys(map(heading_of, parameters)), key=rank)
    for heading in headings:
        yield f'.SH "{heading.upper()}"'
        for each in parameters:
            if heading_of(each) == heading:
                yield from (".TP", f"\\fB{_roff(names_of(each, context))}\\fR", _roff(_help(each)))
    if rule := variables_rule(parameters):
        yield from (".SH ENVIRONMENT", _roff(rule))


def _help(parameter: Any) -> str:
    field = getattr(parameter, "field", None)
    return str(field.declared.help if field is not None else parameter.help)


def _program_lines(program: click.Context) -> Iterator[str]:
    yield from _head("sharpi", program.command.help or "")
    yield from (".SH SYNOPSIS", "\\fBsharpi\\fR COMMAND [ARGUMENTS]", ".SH COMMANDS")
    for name, command in commands_of(program).items():
        summary = (command.help or "").partition("\n\n")[0]
        yield from (".TP", f"\\fBsharpi-{name}\\fR(1)", _roff(summary))
    yield from (".SH DESCRIPTION", _roff(program.command.help or ""))


def _head(name: str, summary: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "1" "" "sharpi {__version__}" "sharpi"'
    yield ".ad l"  # aligned left, since lists of choices have no spaces
    yield from (".SH NAME", f"{_roff(name)} \\- {_roff(' '.join(summary.split()).rstrip('.'))}")


def _roff(text: str) -> str:
    """Escapes text for roff, and wraps it at 100 characters so that pages are easy to diff."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    lines = textwrap.wrap(escaped, 100, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines)
