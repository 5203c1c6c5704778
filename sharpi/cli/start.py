"""Starts the `sharpi` command: prepares Ctrl-C and the standard streams before imports.

Importing the program takes a quarter of a second. In that time a KeyboardInterrupt would print a
traceback, so Ctrl-C ends the process at once; only in the first 10 ms, while Python itself starts,
it prints one. Standard streams that the parent process closed are opened as the null device.
"""

import atexit
import gc
import os
import sys

from sharpi.cli.termination import exit_on_ctrl_c

_OBJECTS_BETWEEN_COLLECTIONS = 200_000


def main() -> int:
    """Runs the process's command line and returns its exit code."""
    exit_on_ctrl_c()
    try:
        open_missing_streams()
        collect_rarely()
        from sharpi.cli.main import main as run

        return run()
    finally:
        exit_on_ctrl_c()  # for the time while Python shuts down


def open_missing_streams() -> None:
    """Opens the null device as each standard stream that Python found closed."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def collect_rarely() -> None:
    """Makes scans of the 100,000 objects of imports rare: a tenth of the first token's time."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)
