"""How long a generation's parts took."""

from msgspec import Struct


class Timings(Struct):
    """Seconds and tokens; rates are 0 where nothing was measured.

    `num_prompt_tokens` counts those computed, `num_cached_tokens` those found in the KV cache.
    Decode counts the tokens after the first, which comes out of the prefill. The first token's time
    begins when the answer was asked for, the prefill's when its turn came.
    """

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    prefill_seconds: float = 0.0
    num_generated_tokens: int = 0
    decode_seconds: float = 0.0
    first_token_seconds: float = 0.0

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prefill speed."""
        return self.num_prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Decode speed, sampling and text included."""
        steps = self.num_generated_tokens - 1
        return steps / self.decode_seconds if self.decode_seconds and steps > 0 else 0.0
