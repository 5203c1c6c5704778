"""Reads the text that a pipe or a redirected file sends to standard input.

At a terminal, nothing is read. If a pipe stays open and sends nothing for a while, a note says that
the command is waiting for it.
"""

import os
import select
import stat
import sys

from sharpi.cli.options.inputs.source_text import text_of_stdin
from sharpi.cli.output.terminal import print_note, stdin_is_terminal

LONGEST_WAIT_SECONDS = 2.0
_WAITING = "waiting for standard input, which comes before the prompt; `</dev/null` leaves it out"


def piped_text() -> str:
    """Returns the text on standard input; empty at a terminal or a device.

    Raises UsageError if the text is not UTF-8.
    """
    if sys.stdin is None or sys.stdin.closed or stdin_is_terminal():
        return ""
    descriptor = _descriptor()
    if descriptor is not None:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISCHR(kind):  # /dev/null, or a device that never ends
            return ""
        if not select.select([descriptor], [], [], LONGEST_WAIT_SECONDS)[0]:
            print_note(_WAITING)
    return text_of_stdin()


def _descriptor() -> int | None:
    """Returns the file descriptor of standard input; None if it is closed or not a file."""
    try:
        return sys.stdin.fileno()
    except (OSError, ValueError):
        return None
