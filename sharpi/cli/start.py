"""Starts the `sharpi` command: what has to be in place before its modules are imported.

Importing them takes a quarter of a second. A KeyboardInterrupt in that time would print a
traceback, so Ctrl-C ends the process at once. No package can change what happens earlier: while
Python starts and runs the installer's script, Ctrl-C prints a traceback for about 13 ms, from the
5th on (Python 3.11, quiet machine). Standard streams that the parent closed lead to the null
device.
"""

import os
import sys

from sharpi.cli.ctrl_c import leave_on_ctrl_c


def main() -> int:
    """Runs the process's command line and returns its exit code."""
    leave_on_ctrl_c()
    try:
        open_missing_streams()
        from sharpi.cli.main import main as run

        return run()
    finally:
        leave_on_ctrl_c()  # while Python shuts down


def open_missing_streams() -> None:
    """Opens the null device as each standard stream that Python found closed."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
