"""Gemma 4's assistant on the CPU: a program recorded once and replayed for every draft.

The assistant has no keys and values of its own. It reads those of the model, which the CPU keeps or
which are copied from a GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sharpi.engine.backends.draft_head import DraftHead, HeadOutput
from sharpi.engine.backends.model_part import Values
from sharpi.engine.backends.recorded_part import PartCache, program_limits
from sharpi.model.config import ModelConfig
from sharpi.model.weights import ModelWeights
from sharpi.ops.attention_shape import AttentionShape
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, KvCache
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import IntArray, Program, StepArrays, int_pointer
from sharpi.ops.cpu.recorder import Recorder
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.ops.cuda.kv_cache import GpuKvCache


class CopiedKeys:
    """Copies keys and values of `shapes` from GPUs to RAM; `sources` has each layer's cache."""

    def __init__(
        self,
        shapes: Iterable[AttentionShape],
        sources: Mapping[int, PartCache],
        settings: EngineSettings,
        pool: ThreadPool,
    ) -> None:
        self._settings, self._pool = settings, pool
        self._copied: list[tuple[AttentionShape, GpuKvCache]] = []
        self.cache = KvCache((), settings.num_pages, settings.kv_types)
        for shape in shapes:
            source = sources[shape.layer]
            if isinstance(source, KvCache):
                self.cache.layers[shape.layer] = source.layers[shape.layer]
            else:
                self._copied.append((shape, source))
        copied = [shape for shape, _ in self._copied]
        self.copies = KvCache(copied, settings.num_pages, settings.kv_types)
        self.cache.layers |= self.copies.layers
        self._inputs = StepArrays(PAGE_POSITIONS, 1, settings.pages_per_sequence)
        self._program: Program | None = None

    def take(self, position: int, count: int, pages: IntArray) -> None:
        """Copies the keys and values of `count` positions of a sequence, from `position` on."""
        end = position + count
        while self._copied and position < end:
            index, first = divmod(position, PAGE_POSITIONS)
            last = min(PAGE_POSITIONS, first + end - position)
            rows = [
                each
                for shape, source in self._copied
                for each in source.read_positions(shape.layer, int(pages[index]), first, last)
            ]
            self._store(position, pages, rows)
            position += last - first

    def _store(self, position: int, pages: IntArray, rows: Sequence[Values]) -> None:
        """Stores rows (tokens, width) of each copied layer's keys and values in the cache."""
        if self._program is None:
            self._program = self._record([each.shape[1] for each in rows])
        step, count = self._inputs.step, len(rows[0])
        self._inputs.write(0, 0, np.zeros(count, np.int32), position, pages)
        step.num_tokens, step.num_outputs = count, 0
        np.concatenate(rows, axis=1, out=self._program.incoming[:count])
        self._program.run(step, self._pool, self._settings.num_threads)

    def _record(self, widths: Sequence[int]) -> Program:
        limits = program_limits(self._settings, PAGE_POSITIONS, max_outputs=1)
        recorder = Recorder(limits, self.cache)
        x = recorder.incoming(sum(widths))
        parts = iter(recorder.split(x, widths))
        for shape, _ in self._copied:
            keys = next(parts)
            recorder.store(keys, None if shape.values_in_keys else next(parts), shape)
        return recorder.finish(x)

    def close(self) -> None:
        if self._program is not None:
            self._program.close()
            self._program = None


class AssistantPart(DraftHead):
    """Runs Gemma 4's assistant; `sources` has the KV cache of each layer of the model."""

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
        """Copies the model's keys and values from `position` on from a GPU, if one keeps them."""
        self._keys.take(position, len(ids), pages)

    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        """Predicts from hidden (tokens, hidden) at `position` the token after the last of `ids`.

        A further draft has the previous one as `ids` and its hidden state, at the same position.
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
