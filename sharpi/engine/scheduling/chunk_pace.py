"""ChunkPace: limits the prompt tokens of a step, so that decoding requests do not wait long."""

from itertools import takewhile

_STEP_SECONDS = 0.2  # of a step of both, where that is possible
_LEAST_TOKENS, _FIRST_TOKENS = 32, 64
# Even the fewest tokens of a prompt may read most experts: then more cost little, and a step may
# take so many times as long as one of the fewest.
_MOST_TIMES = 2.0
_ROOM_TO_DOUBLE = 1.6
_FORGOTTEN_AFTER = 32  # steps after which a size that took too long is tried again
_NEWEST_SHARE = 0.3


class ChunkPace:
    """Doubles and halves the chunk size by the time that steps took, up to `batch_size` tokens."""

    def __init__(self, batch_size: int) -> None:
        sizes = takewhile(lambda size: size < batch_size, (_LEAST_TOKENS << i for i in range(32)))
        self._sizes = [*sizes, batch_size]
        self._at = sum(size <= _FIRST_TOKENS for size in self._sizes[1:])
        self._seconds: dict[int, float] = {}
        self._num_steps = 0

    @property
    def num_tokens(self) -> int:
        """Prompt tokens of the next step beside decoding requests."""
        return self._sizes[self._at]

    def record(self, num_tokens: int, seconds: float) -> None:
        """Records the duration of a step with `num_tokens` prompt tokens."""
        if num_tokens not in self._sizes:
            return
        before = self._seconds.get(num_tokens, seconds)
        self._seconds[num_tokens] = before + (seconds - before) * _NEWEST_SHARE
        if num_tokens == self.num_tokens:
            self._follow(self._seconds[num_tokens])

    def _follow(self, seconds: float) -> None:
        self._num_steps += 1
        if self._num_steps % _FORGOTTEN_AFTER == 0:
            for size in self._sizes[self._at + 1 :]:
                self._seconds.pop(size, None)
        limit = max(_STEP_SECONDS, _MOST_TIMES * self._seconds.get(self._sizes[0], 0.0))
        if seconds > limit:
            self._at = max(0, self._at - 1)
        elif self._at + 1 < len(self._sizes):
            larger = self._seconds.get(self._sizes[self._at + 1], seconds * _ROOM_TO_DOUBLE)
            self._at += larger <= limit
