"""How many tokens of prompts go beside decoded ones, so that these are not kept waiting long."""

_STEP_SECONDS = 0.2  # of a step of both, if it can be so short
_LEAST_TOKENS = 32  # fewer share too little of what is read for them
_FIRST_TOKENS = 64


class ChunkPace:
    """Follows the speed of the last prompts; at most `batch_size` tokens."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self.num_tokens = min(_FIRST_TOKENS, batch_size)

    def record(self, num_tokens: int, seconds: float) -> None:
        """A step with so many tokens of prompts took so long."""
        if num_tokens < min(_LEAST_TOKENS, self._batch_size) or seconds <= 0:
            return
        fitting = int(num_tokens * _STEP_SECONDS / seconds)
        self.num_tokens = max(_LEAST_TOKENS, min(fitting, 2 * self.num_tokens))
        self.num_tokens = min(self.num_tokens, self._batch_size)
