"""Ctrl-C while a KeyboardInterrupt would be printed or lost: it ends the process at once.

This is imported before everything else, so it imports next to nothing.
"""

import os
import signal
from collections.abc import Callable

_INTERRUPTED = 130  # exit_codes has it, too


# What has to be undone before that, such as the modes of a terminal.
undo: list[Callable[[], None]] = []


def leave(number: int, frame: object) -> None:
    """Handles Ctrl-C: ends the process at once, and silently."""
    for each in undo:
        each()
    os._exit(_INTERRUPTED)


def leave_on_ctrl_c() -> None:
    """Makes Ctrl-C end the process silently, unless it is ignored; the main thread's to call."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, leave)
