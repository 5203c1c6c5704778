"""Threads that wait in native code: Python must not end while one is left.

It would unwind that thread where it returns to Python, and C++ would abort the process.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threading import Thread

_threads: list["Thread"] = []


def start_native(thread: "Thread") -> None:
    """Starts a thread that will wait in native code."""
    _threads.append(thread)
    thread.start()


def are_left() -> bool:
    """Returns True if such a thread still runs."""
    return any(thread.is_alive() for thread in _threads)
