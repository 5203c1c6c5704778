"""Keeps the terminal from echoing text that is typed during an answer.

Such text becomes part of the next message. The terminal would echo it between the words of the
answer. It would also turn the Enter key into Ctrl-J, which only begins a new line in the editor.
"""

import atexit
import sys
import termios
from contextlib import suppress
from functools import partial

from sharpi.cli.ctrl_c import exit_handlers

_LOCAL, _INPUT = 3, 0  # indices of a terminal's flags


def quiet_terminal() -> None:
    """Switches off echo and the translation of Enter to a newline, until the process ends."""
    with suppress(termios.error, OSError):
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        flags = termios.tcgetattr(descriptor)
        flags[_LOCAL] &= ~termios.ECHO
        flags[_INPUT] &= ~termios.ICRNL
        termios.tcsetattr(descriptor, termios.TCSANOW, flags)
        restore = partial(_restore, descriptor, before)
        atexit.register(restore)
        exit_handlers.append(restore)


def _restore(descriptor: int, flags: list[int | list[bytes | int]]) -> None:
    with suppress(termios.error, OSError):
        termios.tcsetattr(descriptor, termios.TCSADRAIN, flags)
