"""Makes Ctrl-C end the process at once, while a KeyboardInterrupt would be printed or lost.

This module is imported before all others, so it imports as little as possible.
"""

import os
import signal
from collections.abc import Callable

_INTERRUPTED = 130  # equal to the value in sharpi.cli.termination


# Functions that are called before the process ends, such as one that restores terminal modes.
exit_handlers: list[Callable[[], None]] = []


def exit_silently(number: int, frame: object) -> None:
    """Handles SIGINT: runs the `exit_handlers` and ends the process without a message."""
    for each in exit_handlers:
        each()
    os._exit(_INTERRUPTED)


def exit_on_ctrl_c() -> None:
    """Makes Ctrl-C end the process silently, unless it is ignored; call it in the main thread."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, exit_silently)
