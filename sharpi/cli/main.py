"""The `sharpi` program: its commands, with every failure turned into one line and an exit code.

Only what the command's `--help` needs is imported; a command imports the engine when it runs.
"""

import atexit
import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from sharpi import __version__
from sharpi.cli import exit_codes
from sharpi.cli.commands.table import wanted_commands
from sharpi.cli.options.grouping import GroupedCommand, takes_groups
from sharpi.cli.options.plain_values import PlainGroup
from sharpi.cli.output.terminal import complain
from sharpi.cli.termination import raise_on_sigterm
from sharpi.errors import SharpiError

_OBJECTS_BETWEEN_COLLECTIONS = 200_000


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sharpi {__version__}")
        typer.echo(f"CPU kernels: {_kernels_in_use()}")
        raise typer.Exit


def _kernels_in_use() -> str:
    """Returns the instruction set of the CPU kernels, and why a better one is not used."""
    from sharpi.ops.cpu.library import better_instruction_sets, instruction_set

    try:
        used, better = instruction_set(), better_instruction_sets()
    except SharpiError as error:
        return f"none; {error}"
    if not better:
        return used
    name, features = list(better.items())[-1]
    return f"{used} ({name} needs what this processor lacks: {', '.join(features)})"


def sharpi(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and the CPU kernels in use.",
        ),
    ] = False,
) -> None:
    """Run GGUF mixture-of-experts models on your own machine."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(exit_codes.USAGE)


def make_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """Returns the app with the command that the arguments begin with, or with all commands.

    Each command takes a while to build.
    """
    app = typer.Typer(
        name="sharpi",
        cls=PlainGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(sharpi)
    for name, command in wanted_commands(arguments).items():
        app.command(name, cls=GroupedCommand)(takes_groups(command))
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line (by default the process's) and returns its exit code.

    SIGTERM is only handled if the process runs nothing else.
    """
    _print_any_character()
    if arguments is None:
        _collect_rarely()
        raise_on_sigterm()
    try:
        app = make_app(sys.argv[1:] if arguments is None else arguments)
        code = app(args=arguments, prog_name="sharpi", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return 1  # the same as Typer's own exit code for a broken pipe
    except SharpiError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _device_failed(error)
    except MemoryError as error:
        return _fail(f"not enough memory: {error}; try a smaller -c or -b", exit_code=1)
    except Exception as error:
        return _fail_unexpectedly(error)


def _collect_rarely() -> None:
    """Makes garbage collections rare: imports create 100,000 lasting objects that each would scan.

    Those scans took a tenth of the time to the first token, and most of the time to exit.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)


def _print_any_character() -> None:
    """Makes a terminal without UTF-8 show `?` instead of raising an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _forget_output() -> None:
    """Discards buffered output that cannot be written; Python would report it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _device_failed(error: OSError) -> int:
    """Reports an error of the system in its own words: a full disk, or a drive that was removed."""
    if os.environ.get("SHARPI_DEBUG"):
        traceback.print_exception(error)
    _forget_output()
    where = error.filename or "cannot read or write"
    return _fail(f"{where}: {error.strerror or error}", exit_code=1)


def _fail_unexpectedly(error: Exception) -> int:
    if isinstance(error, typer.Abort):
        return exit_codes.INTERRUPTED
    if hasattr(error, "format_message"):  # all exceptions of Typer's and Click's parsers have it
        return _fail(_usage_message(error), getattr(error, "exit_code", exit_codes.USAGE))
    if os.environ.get("SHARPI_DEBUG"):
        traceback.print_exception(error)
        return exit_codes.INTERNAL
    fault = f"{type(error).__name__}: {error}".rstrip(": ")
    return _fail(
        f"{fault} (a bug in sharpi; run again with SHARPI_DEBUG=1 to see where)",
        exit_codes.INTERNAL,
    )


def _usage_message(error: Any) -> str:
    """Returns the parser's error; it names the variable if the value came from one."""
    context: Any = getattr(error, "ctx", None)
    variable = _variable_at_fault(context, getattr(error, "param", None))
    message = error.format_message()
    if variable is not None:
        value = os.environ.get(variable)
        message = f"Invalid value {value!r} in variable {variable}: {error.message}"
    command = context.command_path if context is not None else "sharpi"
    return f"{message.replace('Value error, ', '').rstrip('.')}; see '{command} --help'"


def _variable_at_fault(context: Any, parameter: Any) -> str | None:
    if context is None or parameter is None:
        return None
    source = context.get_parameter_source(parameter.name)
    return str(parameter.envvar) if source is not None and source.name == "ENVIRONMENT" else None


def _fail(message: str, exit_code: int) -> int:
    complain(message)
    return exit_code
