"""Gemma 4's assistant on the CPU: a program recorded once and replayed for every draft.

The assistant has no keys and values of its own. It reads those of the model, which the CPU keeps or
which are copied from a GPU.
"""

from collections.abc import Mapping

import numpy as np

from sharpi.engine.backends.copied_keys import CopiedKeys, Source
from sharpi.engine.backends.draft_head import HeadOutput
from sharpi.engine.backends.model_part import Values
from sharpi.engine.backends.program_limits import program_limits
from sharpi.engine.settings import EngineSettings
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu.program import IntArray, Program, StepArrays, int_pointer
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.cpu.thread_pool import ThreadPool


class AssistantPart:
    """Runs the assistant on the CPU, over the model's `keys`.

    `pool` has the threads of the model's CPU part, which closes them. If None, the assistant starts
    threads of its own.
    """

    follows_drafts = False

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        settings: EngineSettings,
        pool: ThreadPool | None,
        sources: Mapping[int, Source],
    ) -> None:
        assert config.assistant is not None
        self._config, self._weights, self._settings = config, weights, settings
        self._owns_pool = pool is None
        self._pool = pool or ThreadPool(settings.num_threads, settings.places)
        shapes = {mixer.shape.layer: mixer.shape for mixer in config.assistant.mixers}
        self._keys = CopiedKeys(shapes.values(), sources, settings, self._pool)
        self.pages = self._keys.copies
        self._inputs = StepArrays(1, 1, settings.pages_per_sequence)
        # The position before the draft's: the last whose keys it reads.
        self._slots = np.zeros(1, np.int32)
        self._step = self._inputs.step
        self._step.num_tokens = self._step.num_outputs = 1
        self._step.slots = int_pointer(self._slots)
        self._program: Program | None = None

    @property
    def context_size(self) -> int:
        """The most positions of one sequence."""
        return self._settings.context_size

    def fill(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> None:
        """Copies the model's keys and values of these positions from a GPU, if one keeps them."""
        self._keys.take(position, len(ids), pages)

    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        """Predicts the token after the last of `ids`, from the last of the hidden states.

        `hidden` (tokens, hidden) are the model's hidden states at `position` and after it, and
        `ids` (tokens,) are the tokens that follow each of them. For a further draft, `ids` is the
        draft before it and `hidden` the state that came with it, at the same position.
        """
        if self._program is None:
            self._program = self._record()
        self._keys.take(position, len(ids), pages)
        program, last = self._program, position + len(ids) - 1
        self._inputs.write(0, 0, ids[-1:], last + 1, pages)
        self._slots[0] = last
        program.incoming[0] = hidden[-1]
        program.run(self._step, self._pool, self._settings.num_threads)
        return HeadOutput(program.hidden[0], program.logits[0])

    def _record(self) -> Program:
        head, config = self._weights.head, self._config
        assert head is not None
        limits = program_limits(self._settings, max_tokens=1, max_outputs=1)
        recorder = Recorder(limits, self._keys.cache)
        hidden = recorder.incoming(config.hidden_size)
        out, logits = head.step(recorder, config, hidden, self._weights.rope_divisors)
        return recorder.finish(logits, out)

    def close(self) -> None:
        """Frees its memory, and ends its own threads."""
        if self._program is not None:
            self._program.close()
            self._program = None
        self._keys.close()
        if self._owns_pool:
            self._pool.close()
