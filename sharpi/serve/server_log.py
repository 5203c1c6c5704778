"""ServerLog: writes a server's log lines without ever waiting for the reader of stderr."""

import contextlib
import logging
import os
import threading
from collections import deque
from types import TracebackType

_STDERR = 2
_MOST_WAITING = 1000  # lines that may wait; beyond that, the oldest are lost
_END_SECONDS = 1.0  # seconds at the end for writing lines that still wait


class ServerLog(logging.Handler):
    """Writes lines to a stream in a thread of its own.

    If too many lines wait, the oldest are lost and counted. It also takes the lines of other
    packages, which would otherwise print them themselves. The thread writes to the file descriptor,
    because a lock on Python's own stream would delay the exit.
    """

    def __init__(self, descriptor: int = _STDERR) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._waiting: deque[str] = deque(maxlen=_MOST_WAITING)
        self._num_lost = 0
        self._is_ending = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)

    def __enter__(self) -> "ServerLog":
        self._thread.start()
        logging.getLogger().addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends the thread; lines that nobody reads within a second are lost."""
        logging.getLogger().removeHandler(self)
        with self._wake:
            self._is_ending = True
            self._wake.notify()
        self._thread.join(_END_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a record of the standard library's logging."""
        self.line(self.format(record))

    def line(self, text: str) -> None:
        """Takes a line from any thread, without ever waiting."""
        with self._wake:
            self._num_lost += len(self._waiting) == _MOST_WAITING
            self._waiting.append(text)
            self._wake.notify()

    def note(self, text: str) -> None:
        """Takes a note from the server."""
        self.line(f"note: {text}")

    def _write(self) -> None:
        while (lines := self._next()) is not None:
            for line in lines:
                _write_all(self._descriptor, line)

    def _next(self) -> list[str] | None:
        """Waits for the next line and returns it; returns None once the log ends.

        If lines before it were lost, a note with their number comes first.
        """
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._is_ending)
            if not self._waiting:
                return None
            num_lost, self._num_lost = self._num_lost, 0
            line = self._waiting.popleft()
        return [f"note: {num_lost} lines of the log were lost here", line] if num_lost else [line]


def _write_all(descriptor: int, line: str) -> None:
    """Writes a line; ignores a stream that has been closed in the meantime."""
    left = f"{line}\n".encode("utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        while left:
            left = left[os.write(descriptor, left) :]
