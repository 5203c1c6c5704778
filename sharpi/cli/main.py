"""The `sharpi` program: runs a command, and turns each failure into one line and an exit code.

Only what `--help` needs is imported here; a command imports the engine when it runs.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import typer

from sharpi.cli.command import USAGE_ERROR, BrokenStdout
from sharpi.cli.output.terminal import print_error
from sharpi.cli.program import make_program, usage_message
from sharpi.cli.termination import (
    INTERNAL,
    INTERRUPTED,
    USAGE,
    exit_immediately,
    raise_on_termination,
)
from sharpi.errors import SharpiError
from sharpi.system.process import are_left


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `arguments`, or the command line of the process, and returns the exit code."""
    code = _run(arguments)
    if arguments is None and are_left():
        exit_immediately(SystemExit(code))
    return code


def _run(arguments: Sequence[str] | None) -> int:
    """Runs the command line, and returns its exit code whether it succeeds or fails."""
    _print_any_character()
    try:
        if arguments is None:
            raise_on_termination()
        code = make_program().main(arguments, prog_name="sharpi", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except (BrokenPipeError, BrokenStdout):
        _forget(sys.stdout)
        return 0  # a reader such as `head` has read all it wants
    except SharpiError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _device_failed(error)
    except MemoryError as error:
        return _fail(f"not enough memory: {error}; try a smaller -c or -b", exit_code=1)
    except Exception as error:
        return _fail_unexpectedly(error)
    finally:
        if arguments is None:
            _forget_unwritable()


def _print_any_character() -> None:
    """Makes stdout print `?` for characters that its encoding lacks, rather than raise errors."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _forget(stream: TextIO) -> None:
    """Discards buffered output that cannot be written, which Python would report at exit."""
    with suppress(OSError):  # the stream may be a replacement without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _forget_unwritable() -> None:
    """Flushes stdout and stderr, discarding text for a closed terminal, to keep the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _forget(stream)


def _device_failed(error: OSError) -> int:
    """Prints the system's message for an OSError, such as a full disk; returns the exit code."""
    if os.environ.get("SHARPI_DEBUG"):
        traceback.print_exception(error)
    _forget(sys.stdout)
    where = error.filename or "cannot read or write"
    return _fail(f"{where}: {error.strerror or error}", exit_code=1)


def _fail_unexpectedly(error: Exception) -> int:
    if isinstance(error, USAGE_ERROR):
        return _fail(usage_message(error), USAGE)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("sharpi"):
        from sharpi.resources import install_command

        return _fail(f"the package {error.name} is missing; type {install_command()}", USAGE)
    if os.environ.get("SHARPI_DEBUG"):
        traceback.print_exception(error)
        return INTERNAL
    fault = f"{type(error).__name__}: {error}".rstrip(": ")
    return _fail(
        f"{fault} (a bug in sharpi; run again with SHARPI_DEBUG=1 to see where)",
        INTERNAL,
    )


def _fail(message: str, exit_code: int) -> int:
    print_error(message)
    return exit_code
