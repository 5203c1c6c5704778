"""ServerLog: writes log lines in a thread, so that the server never waits for stderr."""

import contextlib
import logging
import os
import threading
from collections import deque
from types import TracebackType

_STDERR = 2
_MOST_WAITING = 1000  # lines that may wait; beyond that, the oldest are dropped
_END_SECONDS = 1.0  # seconds at the end for writing lines that still wait


class ServerLog(logging.Handler):
    """A logging handler that writes lines to a file descriptor in a separate thread.

    If more than 1000 lines wait, the oldest are dropped and counted. It is the root logger's
    handler, so that it receives the records of other packages. The thread does not use sys.stderr,
    because the lock of that stream would delay the exit.
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
        """Ends the thread, which has up to a second to write the lines that still wait."""
        logging.getLogger().removeHandler(self)
        with self._wake:
            self._is_ending = True
            self._wake.notify()
        self._thread.join(_END_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a record of the standard library's logging."""
        self.line(self.format(record))

    def line(self, text: str) -> None:
        """Queues a line for writing; any thread may call it, and it never blocks."""
        with self._wake:
            self._num_lost += len(self._waiting) == _MOST_WAITING
            self._waiting.append(text)
            self._wake.notify()

    def note(self, text: str) -> None:
        """Queues a line that begins with "note: "."""
        self.line(f"note: {text}")

    def _write(self) -> None:
        while (lines := self._next()) is not None:
            for line in lines:
                _write_all(self._descriptor, line)

    def _next(self) -> list[str] | None:
        """Waits for the next line, and returns it in a list; returns None when the log ends."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._is_ending)
            if not self._waiting:
                return None
            num_lost, self._num_lost = self._num_lost, 0
            line = self._waiting.popleft()
        return [f"note: {num_lost} lines of the log were lost here", line] if num_lost else [line]


def _write_all(descriptor: int, line: str) -> None:
    """Writes a line completely; ignores errors, as of a closed stream."""
    left = f"{line}\n".encode("utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        while left:
            left = left[os.write(descriptor, left) :]
