"""Lets Ctrl-C and SIGTERM end a step of the model between two layers, rather than after it.

Python runs its signal handlers only when a native call returns, which may take many seconds in
prefill. But the signal number is written to `signal.set_wakeup_fd` at once. So a thread reads that
descriptor and interrupts the step, and then the signal handler runs.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sharpi.engine.generation import Generation

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(generation: "Generation") -> Iterator[None]:
    """Lets SIGINT and SIGTERM interrupt steps of the generation during the `with` block.

    Does nothing outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    thread = threading.Thread(target=_watch, args=(reader, generation), daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()
        os.close(reader)
        generation.interrupt(wanted=False)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays Ctrl-C until the end of the `with` block, so that drawings are complete.

    Does nothing outside the main thread, or if Ctrl-C is ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not callable(before) or not is_main:
        yield
        return
    numbers: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: numbers.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if numbers:
        signal.raise_signal(signal.SIGINT)  # also for an enclosing block


def _watch(reader: int, generation: "Generation") -> None:
    """Reads signal numbers from a pipe, and interrupts the generation at SIGINT and SIGTERM."""
    while numbers := os.read(reader, 64):
        if any(number in _ENDING for number in numbers):
            generation.interrupt()
