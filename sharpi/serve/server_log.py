"""ServerLog: lines of a server's log, which never wait for whoever reads stderr."""

import contextlib
import logging
import os
import threading
from collections import deque
from types import TracebackType

_STDERR = 2
_MOST_WAITING = 1000  # lines
_END_SECONDS = 1.0  # in which lines that wait at the end are written


class ServerLog(logging.Handler):
    """Writes lines to a stream in a thread of its own.

    Where too many wait to be read, the oldest are lost and counted. It takes the lines of other
    packages, too, which would print them themselves. The thread writes to the descriptor: a lock of
    Python's own stream would hold up the exit.
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
        """Ends the thread; what nobody reads within a second is lost."""
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
        """Takes a note of the server."""
        self.line(f"note: {text}")

    def _write(self) -> None:
        while (lines := self._next()) is not None:
            for line in lines:
                _write_all(self._descriptor, line)

    def _next(self) -> list[str] | None:
        """Waits for a line, and returns it after what has to be said of lost ones; None at the end.

        The lost ones came before it.
        """
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._is_ending)
            if not self._waiting:
                return None
            num_lost, self._num_lost = self._num_lost, 0
            line = self._waiting.popleft()
        return [f"note: {num_lost} lines of the log were lost here", line] if num_lost else [line]


def _write_all(descriptor: int, line: str) -> None:
    """Writes a line; a stream that was closed meanwhile is no error."""
    left = f"{line}\n".encode("utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        while left:
            left = left[os.write(descriptor, left) :]
