"""Threads that wait in native code: Python must not end while one is left.

It would unwind that thread where it returns to Python, and C++ would abort the process.
"""

from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from threading import Thread

_threads: WeakSet["Thread"] = WeakSet()  # those that have ended leave it


def start_native(thread: "Thread") -> None:
    """Starts a thread that will wait in native code."""
    _threads.add(thread)
    thread.start()


def are_left() -> bool:
    """Returns True if such a thread still runs."""
    return any(thread.is_alive() for thread in _threads)
