"""PromptScores: the log probability of each token of a prompt, computed between other steps."""

from collections.abc import Sequence

import numpy as np

from sharpi.engine.runner import Runner
from sharpi.engine.sampling.sampler import with_logprobs
from sharpi.engine.sampling.text_delta import SampledToken
from sharpi.engine.scheduling.page_table import PageTable
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.errors import ContextFullError

_NO_TOKEN = -1  # begins no cached prompt, so that every token is computed


class PromptScores:
    """Scores one prompt on the engine's thread, a batch at a time; `close` gives its pages back.

    `tokens` are those scored so far. The first one has no log probability, since nothing
    comes before it.
    """

    def __init__(
        self, runner: Runner, cache: PrefixCache, ids: Sequence[int], num_best: int
    ) -> None:
        if len(ids) >= runner.context_size:
            size = runner.context_size
            raise ContextFullError(f"the prompt has {len(ids)} tokens and the context {size}")
        self._runner, self._ids, self._num_best = runner, list(ids), num_best
        self._table = PageTable(cache, [_NO_TOKEN], runner.settings.pages_per_sequence)
        self.tokens = [SampledToken(each) for each in self._ids[:1]]

    @property
    def is_complete(self) -> bool:
        """True once all tokens are scored."""
        return len(self.tokens) == len(self._ids)

    def step(self) -> None:
        """Scores the next batch; raises ContextFullError if no KV pages are free."""
        start = self._table.length
        part = self._ids[start : start + self._runner.scoring_batch]
        if not self._table.reserve(len(part)):
            raise ContextFullError("all KV pages are in use by other requests; try again later")
        rows = np.arange(len(part), dtype=np.int32)
        logits = self._runner.step((self._table.segment(part, rows),))
        self._table.finish(part)
        following = self._ids[start + 1 : start + 1 + len(part)]
        self.tokens += [
            with_logprobs(token, row, self._num_best)
            for token, row in zip(following, logits, strict=False)
        ]

    def close(self) -> None:
        """Gives the KV pages of the prompt back."""
        self._table.release()
