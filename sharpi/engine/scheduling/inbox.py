"""What other threads want of the scheduler: new answers, and the ends of some."""

from collections import deque
from threading import Lock

from sharpi.engine.scheduling.answer import Answer, RequestId


class Inbox:
    """Filled by any thread, emptied by the engine's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._answers: deque[Answer] = deque()
        self._cancelled: set[RequestId] = set()
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._answers)

    def number(self) -> RequestId:
        """The next request id."""
        with self._lock:
            self._last_number += 1
            return RequestId(self._last_number)

    def put(self, answer: Answer) -> None:
        """One answer more."""
        with self._lock:
            self._answers.append(answer)

    def cancel(self, request_id: RequestId) -> None:
        """One less, if it has not ended."""
        with self._lock:
            self._cancelled.add(request_id)

    def empty(self) -> tuple[deque[Answer], set[RequestId]]:
        """All that came since the last call."""
        with self._lock:
            answers, cancelled = self._answers, self._cancelled
            self._answers, self._cancelled = deque(), set()
            return answers, cancelled
