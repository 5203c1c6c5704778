"""Runs the recorded model: tokens in, logits out, over a paged KV cache.

The step is recorded at the first use and replayed from then on; prefill and decode are the same
program with another number of tokens.
"""

import time

import numpy as np
import numpy.typing as npt

from sharpi.engine.expert_records import ExpertRecords
from sharpi.engine.expert_tier import ExpertTier
from sharpi.engine.settings import EngineSettings
from sharpi.model.config import ModelConfig
from sharpi.model.transformer import Transformer
from sharpi.model.weights import ModelWeights
from sharpi.ops import abi
from sharpi.ops.buffers import Buffer
from sharpi.ops.kv_cache import PAGE_POSITIONS, KvCache
from sharpi.ops.library import ThreadPool
from sharpi.ops.program import IntArray, Program, ProgramLimits, int_pointer
from sharpi.ops.recorder import Recorder

_SCORING_LOGITS_BYTES = 64 << 20  # of one batch when every token's logits are wanted


class Runner:
    """One loaded model on the CPU."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        tier: ExpertTier | None = None,
        records: ExpertRecords | None = None,
    ) -> None:
        self.settings = settings
        self._tier, self._records = tier, records
        self.vocab_size = weights.output.rows
        self._config, self._weights = config, weights
        self._num_pages = -(-settings.context_size // PAGE_POSITIONS)
        self.cache = KvCache(config.attention, self._num_pages)
        self._pool = ThreadPool(max(settings.num_threads, settings.num_batch_threads))
        self._programs: dict[int, Program] = {}
        self._ids, self._positions, self._sequences, self._outputs = (
            np.zeros(settings.batch_size, np.int32) for _ in range(4)
        )
        pointers = map(int_pointer, (self._ids, self._positions, self._sequences, self._outputs))
        self._step = abi.Step(0, 0, *pointers)

    @property
    def context_size(self) -> int:
        """Positions of the KV cache."""
        return self.settings.context_size

    @property
    def batch_size(self) -> int:
        """Tokens of one pass at most."""
        return self.settings.batch_size

    @property
    def scoring_batch(self) -> int:
        """Tokens of one batch when the logits of all are wanted."""
        fit = _SCORING_LOGITS_BYTES // (4 * self.vocab_size)
        return max(1, min(self.batch_size, fit))

    def forward(
        self, ids: IntArray, position: int, pages: IntArray, outputs: IntArray
    ) -> npt.NDArray[np.float32]:
        """Logits (outputs, vocabulary) of the rows `outputs` of one sequence's next tokens.

        `ids` (tokens,) at positions from `position` on; `pages` (pages,) covers them. The result
        is a view that the next call overwrites. Raises ModelFileError where an expert could not be
        read; the tokens are not in the cache then.
        """
        program = self._program(1 if len(outputs) <= 1 else self.scoring_batch)
        count, step = len(ids), self._step
        self._ids[:count] = ids
        self._positions[:count] = range(position, position + count)
        self._outputs[: len(outputs)] = outputs
        step.num_tokens, step.num_outputs = count, len(outputs)
        step.page_table, step.pages_per_sequence = int_pointer(pages), len(pages)
        self._run(program, position, count)
        if self._records is not None:
            self._records.step(position, self._ids[:count], program)
        return program.logits[: len(outputs)]

    def _run(self, program: Program, position: int, count: int) -> None:
        if self._tier is None:
            program.run(self._step, self._pool, self._threads(count))
            return
        guesses = self._tier.begin_step(position, count)
        self._step.num_guessed = int(guesses and count == 1)
        start = time.perf_counter()
        program.run(self._step, self._pool, self._threads(count))
        self._tier.end_step(count, time.perf_counter() - start)

    def prepare(self) -> None:
        """Records the step of a generation now rather than at its first token."""
        self._program(1)

    def _threads(self, num_tokens: int) -> int:
        s = self.settings
        return s.num_threads if num_tokens == 1 else s.num_batch_threads

    def routes(self, num_tokens: int) -> list[IntArray]:
        """The last single-output step's expert ids, (tokens, used) for each MoE layer.

        The last layer works for the wanted outputs only and has one row.
        """
        return [r[:num_tokens] for r in self._program(1).routes]

    def _program(self, max_outputs: int) -> Program:
        if max_outputs not in self._programs:
            limits = ProgramLimits(
                max_tokens=self.settings.batch_size,
                max_outputs=max_outputs,
                max_positions=self._num_pages * PAGE_POSITIONS,
                precision=self.settings.rounding,
                instruction_set=self.settings.instruction_set,
            )
            is_logged = self._records is not None and self._records.keeps_router_logits
            feed = self._tier.feed if self._tier else None
            recorder = Recorder(limits, self.cache, feed, keeps_router_logits=is_logged)
            model: Transformer[Buffer] = Transformer(
                self._config, self._weights, recorder, trims_last_layer=not is_logged
            )
            self._programs[max_outputs] = recorder.finish(model.step())
        return self._programs[max_outputs]

    def close(self) -> None:
        """Ends the threads and frees the native side."""
        self._pool.close()
        for program in self._programs.values():
            program.close()
