"""What concerns the whole process: threads in native code, its heaps, notes, and closing.

Python must not exit while a thread waits in native code: it would unwind a thread that returns from
there, and C++ would abort the process.
"""

import contextlib
import ctypes
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self
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


class Closing:
    """A context manager that calls `close` at the end of the `with` statement."""

    @abstractmethod
    def close(self) -> None:
        """Frees the resources of the object; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_waiting: list[str] | None = None


def print_running_note(text: str) -> None:
    """Prints a note now, or after the answer that is being printed to a terminal."""
    if _waiting is None:
        _print(text)
    else:
        _waiting.append(text)


@contextmanager
def notes_after_answer() -> Iterator[None]:
    """Delays notes to the end of the context if stdout, where an answer is, is a terminal."""
    global _waiting
    if not sys.stdout.isatty():
        yield
        return
    waiting = _waiting = list[str]()
    try:
        yield
    finally:
        _waiting = None
        for text in waiting:
            _print(text)


def _print(text: str) -> None:
    with suppress(OSError):  # the terminal may have been closed
        print(f"note: {text}", file=sys.stderr, flush=True)


_ARENA_MAX, _NUM_HEAPS = -8, 2  # glibc's number of the setting, and its value


def share_heaps() -> None:
    """Makes threads that start later share two heaps; by default glibc has many more."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has mallopt
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _NUM_HEAPS)


def trim_heaps() -> None:
    """Returns the free pages of all heaps to the system; other Python threads run meanwhile."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
