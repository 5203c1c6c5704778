"""TokenRate: tokens per second over the last seconds, whoever they were for."""

import threading
import time
from collections import deque

WINDOW_SECONDS = 10.0


class TokenRate:
    """`add` is called on the engine's thread, `per_second` on any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: deque[tuple[float, int]] = deque()
        self._count = 0

    def add(self, num_tokens: int) -> None:
        """So many tokens were generated now."""
        with self._lock:
            self._times.append((time.monotonic(), num_tokens))
            self._count += num_tokens
            self._forget()

    def per_second(self) -> float:
        """Of the window, or of the part of it since its first token; 0 where there was none."""
        with self._lock:
            self._forget()
            if not self._times:
                return 0.0
            seconds = time.monotonic() - self._times[0][0]
            return self._count / max(seconds, 1.0)

    def _forget(self) -> None:
        oldest = time.monotonic() - WINDOW_SECONDS
        while self._times and self._times[0][0] < oldest:
            self._count -= self._times.popleft()[1]
