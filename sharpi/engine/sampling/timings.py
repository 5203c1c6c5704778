"""Timings: seconds and tokens of an answer's prefill and decode."""

from msgspec import Struct

from sharpi.speculation.statistics import DraftStatistics


class Timings(Struct):
    """Seconds and tokens of one answer; rates are 0 where nothing was measured.

    `num_prompt_tokens` were computed, `num_cached_tokens` were found in the KV cache. The decode
    rate leaves out the first token, which comes out of the prefill. `first_token_seconds` count
    from the arrival of the request, `prefill_seconds` from when it leaves the queue.
    """

    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    prefill_seconds: float = 0.0
    num_generated_tokens: int = 0
    decode_seconds: float = 0.0
    first_token_seconds: float = 0.0
    drafts: DraftStatistics | None = None  # of the steps that might have drafts

    @property
    def prompt_tokens_per_second(self) -> float:
        """The tokens per second of the prefill, without cached tokens."""
        return self.num_prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """The tokens per second of decoding, sampling and conversion to text included."""
        steps = self.num_generated_tokens - 1
        return steps / self.decode_seconds if self.decode_seconds and steps > 0 else 0.0
