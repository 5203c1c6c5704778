"""DraftHead: a head on the CPU that predicts tokens from a model's own hidden states.

Its program is recorded once and replayed for every draft.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.model_part import Values
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.kv_cache import KvCache
from sharpi.ops.cpu.program import IntArray, Program
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.cpu.thread_pool import ThreadPool
from sharpi.tiers.settings import EngineSettings


class HeadOutput(NamedTuple):
    """The hidden state and logits of a draft head for its last token.

    Both are views that the next pass overwrites.
    """

    hidden: npt.NDArray[np.float32]  # (hidden,)
    logits: npt.NDArray[np.float32]  # (vocabulary,)


class DraftHead(ABC):
    """A head for multi-token prediction, with or without keys and values of its own.

    `pages` has the head's keys and values; its page ids are those of the model's KV cache. With
    `follows_drafts` each draft has its own position; otherwise all drafts have the position of the
    first. `pool` has the threads of the model's CPU part, which closes them; if None, the head
    starts threads of its own.
    """

    follows_drafts: bool
    pages: KvCache

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        pool: ThreadPool | None,
    ) -> None:
        self._config, self._weights, self._settings = config, weights, settings
        num_threads = max(settings.num_threads, settings.num_batch_threads)
        self._owns_pool = pool is None
        self._pool = pool or ThreadPool(num_threads, settings.places)

    @property
    def context_size(self) -> int:
        """The maximum number of positions of one sequence."""
        return self._settings.context_size

    @abstractmethod
    def fill(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> None:
        """Computes and stores the keys and values of any number of tokens, from `position` on.

        `hidden` (tokens, hidden) are the model's hidden states at these positions, and `ids`
        (tokens,) are the tokens that follow each of them.
        """

    @abstractmethod
    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        """Stores keys and values as `fill` does, and predicts the token after the last of `ids`.

        Raises ModelFileError where an expert could not be read.
        """

    @cached_property
    def _program(self) -> Program:
        head, recorder = self._weights.head, self._recorder()
        assert head is not None
        hidden = recorder.incoming(self._config.hidden_size)
        out, logits = head.step(recorder, self._config, hidden, self._weights.rope_divisors)
        return recorder.finish(logits, out)

    @abstractmethod
    def _recorder(self) -> Recorder:
        """Returns the recorder of the head's program."""

    def close(self) -> None:
        """Frees the head's memory, and ends the threads that it started."""
        if "_program" in self.__dict__:
            self._program.close()
            del self._program
        if self._owns_pool:
            self._pool.close()
