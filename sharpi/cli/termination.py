"""Turns SIGTERM and SIGHUP into SystemExit, so that engines close and write their files.

During imports, a KeyboardInterrupt would be printed, or lost in a callback. So Ctrl-C then ends the
process at once. This module is imported before all others, so it imports as little as possible.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

# Exit codes of shells and sysexits.h; a SharpiError has its code in `exit_code`.
USAGE = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h: waiting may help
HUNG_UP = 129  # 128 + SIGHUP
INTERRUPTED = 130  # 128 + SIGINT
TERMINATED = 143  # 128 + SIGTERM

_CODES = {signal.SIGTERM: TERMINATED, signal.SIGHUP: HUNG_UP}


# Functions that are called before the process ends, such as one that restores terminal modes.
exit_handlers: list[Callable[[], None]] = []


def exit_silently(number: int, frame: object) -> None:
    """Handles SIGINT: runs the `exit_handlers` and ends the process without a message."""
    for each in exit_handlers:
        each()
    os._exit(INTERRUPTED)


def exit_on_ctrl_c() -> None:
    """Makes Ctrl-C end the process silently, unless it is ignored; call it in the main thread."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, exit_silently)


def raise_on_termination() -> None:
    """Makes SIGTERM and SIGHUP raise SystemExit, and Ctrl-C raise KeyboardInterrupt.

    The exceptions are raised in the main thread. A signal that the parent ignores, as `nohup` does
    with SIGHUP, stays ignored.
    """
    for number in _CODES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) is exit_silently:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def exiting_on_ctrl_c() -> Iterator[None]:
    """Makes Ctrl-C end the process silently during the `with` block.

    It does nothing if `raise_on_termination` is not in effect, as in a program that uses sharpi as
    a library.
    """
    is_own = signal.getsignal(signal.SIGTERM) is _end
    if not is_own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, exit_silently)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays Ctrl-C, SIGTERM and SIGHUP to the block's end, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    delayed = list[int]()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *_CODES)}
    before = {number: handler for number, handler in before.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, frame: delayed.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if delayed:
        signal.raise_signal(delayed[0])  # also for an enclosing block


def exit_immediately(end: SystemExit | KeyboardInterrupt) -> NoReturn:
    """Ends the process at once with the code of `end`, even if a thread is in native code.

    If Python exited as usual, it would unwind that thread, and C++ would abort the process.
    """
    code = end.code if isinstance(end, SystemExit) else INTERRUPTED
    for each in exit_handlers:
        each()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """Raises SystemExit, and ignores later signals, such as the second one that `timeout` sends."""
    for each in _CODES:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(_CODES[signal.Signals(number)])
