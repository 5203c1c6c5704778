"""Makes Ctrl-C end the process at once, for times when a KeyboardInterrupt is printed or lost.

This is imported before everything else, so it imports next to nothing.
"""

import os
import signal
from collections.abc import Callable

_INTERRUPTED = 130  # equal to the value in exit_codes


# Undoes the modes of a terminal and the like, before the process ends.
undo: list[Callable[[], None]] = []


def leave(number: int, frame: object) -> None:
    """Handles Ctrl-C: ends the process at once, and silently."""
    for each in undo:
        each()
    os._exit(_INTERRUPTED)


def leave_on_ctrl_c() -> None:
    """Makes Ctrl-C end the process silently, unless it is ignored; call it in the main thread."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, leave)
