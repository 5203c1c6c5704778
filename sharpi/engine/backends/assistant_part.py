"""Gemma 4's assistant on the CPU: a program recorded once and replayed for every draft.

The assistant has no keys and values of its own. It reads those of the model, which the CPU keeps or
which are copied from a GPU.
"""

from collections.abc import Mapping

import numpy as np

from sharpi.engine.backends.copied_keys import CopiedKeys
from sharpi.engine.backends.draft_head import DraftHead, HeadOutput
from sharpi.engine.backends.model_part import Values
from sharpi.engine.backends.program_limits import program_limits
from sharpi.engine.backends.recorded_part import PartCache
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.program import IntArray, StepArrays, int_pointer
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.cpu.thread_pool import ThreadPool
from sharpi.tiers.settings import EngineSettings


class AssistantPart(DraftHead):
    """Runs Gemma 4's assistant on the CPU.

    `sources` maps each layer to the KV cache that has the model's keys and values of that layer.
    """

    follows_drafts = False

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        pool: ThreadPool | None,
        sources: Mapping[int, PartCache],
    ) -> None:
        assert config.assistant is not None
        super().__init__(config, weights, settings, pool)
        shapes = {mixer.shape.layer: mixer.shape for mixer in config.assistant.mixers}
        self._keys = CopiedKeys(shapes.values(), sources, settings, self._pool)
        self.pages = self._keys.copies
        self._inputs = StepArrays(1, 1, settings.pages_per_sequence)
        # The position before the draft's: the last whose keys it reads.
        self._slots = np.zeros(1, np.int32)
        self._step = self._inputs.step
        self._step.num_tokens = self._step.num_outputs = 1
        self._step.slots = int_pointer(self._slots)

    def fill(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> None:
        """Copies the model's keys and values of `len(ids)` positions from a GPU, if one keeps them.

        The first of these positions is `position`.
        """
        self._keys.take(position, len(ids), pages)

    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        """Predicts the token after the last of `ids`, from the last of the hidden states.

        `hidden` (tokens, hidden) are the model's hidden states at `position` and after it, and
        `ids` (tokens,) are the tokens that follow each of them. To predict a further draft, `ids`
        is the previous draft and `hidden` the hidden state predicted with it; `position` stays the
        same.
        """
        self._keys.take(position, len(ids), pages)
        program, last = self._program, position + len(ids) - 1
        self._inputs.write(0, 0, ids[-1:], last + 1, pages)
        self._slots[0] = last
        program.incoming[0] = hidden[-1]
        program.run(self._step, self._pool, self._settings.num_threads)
        return HeadOutput(program.hidden[0], program.logits[0])

    def _recorder(self) -> Recorder:
        limits = program_limits(self._settings, max_tokens=1, max_outputs=1)
        return Recorder(limits, self._keys.cache)

    def close(self) -> None:
        super().close()
        self._keys.close()
