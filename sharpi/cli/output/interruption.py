"""Lets Ctrl-C and SIGTERM end a step of the model between two layers, rather than after it.

Python runs its signal handlers when a native call returns, which for a batch of a prompt may take
many seconds. But the `signal` module's wakeup descriptor is written at once. So a thread reads it
and interrupts the step, and Python raises the handler's exception right after.
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
    """Interrupts the generation's steps by signals while the block runs, in the main thread."""
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
    """Delays a Ctrl-C in the block until its end, so that nothing is left half drawn.

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
    """Reads the numbers of the signals that arrive, until the writer is closed."""
    while numbers := os.read(reader, 64):
        if any(number in _ENDING for number in numbers):
            generation.interrupt()
