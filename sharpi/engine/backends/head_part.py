"""The head for multi-token prediction (MTP) on the CPU: recorded once, replayed for every draft.

The head has its own KV cache, with the page ids of the model's. The entry at a position is computed
from the model's hidden state at that position and from the next token.
"""

from typing import TYPE_CHECKING

from sharpi.engine.backends.draft_head import DraftHead, HeadOutput
from sharpi.engine.backends.model_part import Values
from sharpi.engine.backends.program_limits import program_limits
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.kv_cache import KvCache
from sharpi.ops.cpu.program import IntArray, Program, StepArrays
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.cpu.thread_pool import ThreadPool
from sharpi.tiers.planner import HEAD_BATCH
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.engine.backends.head_experts import HeadExperts

_DECODED = 4  # a pass of at most so many tokens runs on the threads for decoding


class HeadPart(DraftHead):
    """Runs an MTP head on the CPU, and owns its keys and values.

    `experts` has slots for the head's experts; it is None if RAM holds all of them.
    """

    follows_drafts = True

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        pool: ThreadPool | None,
        experts: "HeadExperts | None" = None,
    ) -> None:
        mixer = config.head_mixer
        assert mixer is not None
        assert mixer.kv_shape is not None
        super().__init__(config, weights, settings, pool)
        self._experts = experts
        self.pages = KvCache([mixer.kv_shape], settings.num_pages, settings.kv_types)
        self._inputs = StepArrays(HEAD_BATCH, 1, settings.pages_per_sequence)

    def fill(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> None:
        for first in range(0, len(ids), HEAD_BATCH):
            own = slice(first, first + HEAD_BATCH)
            self._run(ids[own], position + first, pages, hidden[own], num_outputs=0)

    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        most = len(ids) - HEAD_BATCH
        if most > 0:
            self.fill(ids[:most], position, pages, hidden[:most])
            ids, hidden, position = ids[most:], hidden[most:], position + most
        program = self._run(ids, position, pages, hidden, num_outputs=1)
        return HeadOutput(program.hidden[0], program.logits[0])

    def _run(
        self, ids: IntArray, position: int, pages: IntArray, hidden: Values, num_outputs: int
    ) -> Program:
        program, step, count = self._program, self._inputs.step, len(ids)
        self._inputs.write(0, 0, ids, position, pages)
        self._inputs.request_outputs(0, count - 1)
        step.num_tokens, step.num_outputs = count, num_outputs
        program.incoming[:count] = hidden
        s = self._settings
        threads = s.num_threads if count <= _DECODED else s.num_batch_threads
        if self._experts is not None:
            self._experts.begin_step(count)
        program.run(step, self._pool, threads)
        if self._experts is not None:
            self._experts.end_step()
        return program

    def _recorder(self) -> Recorder:
        limits = program_limits(self._settings, HEAD_BATCH, max_outputs=1)
        feed = None if self._experts is None else self._experts.feed
        return Recorder(limits, self.pages, feed)

    def close(self) -> None:
        super().close()
        if self._experts is not None:
            self._experts.close()
            self._experts = None
