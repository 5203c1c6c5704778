"""Keeps track of threads that wait in native code, as Python must not exit while one is running.

At exit, Python would unwind a thread that returns from native code, and C++ would abort the
process.
"""

from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from threading import Thread

_threads: WeakSet["Thread"] = WeakSet()  # those that have ended leave it


def start_native(thread: "Thread") -> None:
    """Starts a thread that will wait in native code, and keeps track of it."""
    _threads.add(thread)
    thread.start()


def are_left() -> bool:
    """Returns True if a thread that `start_native` started is still running."""
    return any(thread.is_alive() for thread in _threads)
