"""Formats errors of the command line in one line: the fault, its place, and a remedy."""

from typing import Any

import click

from sharpi.cli.parsing.variables import given_variable


def usage_message(error: click.ClickException) -> str:
    """Formats a Click error in one line, which names the flag or environment variable."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "sharpi"
    problem = _problem(error).rstrip(".")
    see = " See" if problem.endswith("?") else "; see"
    return f"{problem}{see} '{command} --help'"


def _problem(error: Any) -> str:
    match error:
        case click.NoSuchOption():
            close = " or ".join(error.possibilities or ())
            return f"there is no option {error.option_name}" + (
                f"; did you mean {close}?" if close else ""
            )
        case click.BadOptionUsage():
            return _misused(error)
        case click.MissingParameter():
            return f"{_name(error.param)} is missing"
        case click.BadParameter():
            return f"{_place(error)}: {error.message}"
    return str(error.format_message())


def _misused(error: click.BadOptionUsage) -> str:
    """Returns the message for an option without its value, or a switch with a value."""
    params = error.ctx.command.params if error.ctx is not None else []
    option: Any = next((each for each in params if error.option_name in each.opts), None)
    if option is None or option.is_flag:
        return f"{error.option_name} is a switch and takes no value"
    return f"{error.option_name} needs a value: {error.option_name} {option.metavar or '...'}"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    return f"{parameter.opts[-1]} {parameter.metavar}"


def _place(error: click.BadParameter) -> str:
    """Returns where a bad value came from: an environment variable, an option or an argument."""
    parameter: Any = error.param
    if parameter is None:
        return "sharpi"
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    if _came_from_variable(error.ctx, parameter):
        return f"variable {given_variable(parameter)}"
    return " / ".join(parameter.opts)


def _came_from_variable(context: click.Context | None, parameter: click.Parameter) -> bool:
    source = context.get_parameter_source(parameter.name or "") if context is not None else None
    return source is not None and source.name == "ENVIRONMENT"
