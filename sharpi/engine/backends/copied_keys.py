"""CopiedKeys: keys and values that a GPU keeps, copied to a KV cache of the CPU.

Gemma 4's assistant reads them there. It needs the keys and values of at most two layers. Copying
them costs less than the VRAM that the assistant's weights and embedding would take.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sharpi.engine.backends.model_part import Values
from sharpi.engine.backends.program_limits import program_limits
from sharpi.engine.backends.recorded_part import PartCache
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, KvCache
from sharpi.ops.cpu.program import IntArray, Program, StepArrays
from sharpi.ops.cpu.recorder import Recorder
from sharpi.ops.cpu.thread_pool import ThreadPool
from sharpi.ops.interface import AttentionShape
from sharpi.tiers.settings import EngineSettings

if TYPE_CHECKING:
    from sharpi.ops.cuda.kv_cache import GpuKvCache


class CopiedKeys:
    """Copies the keys and values of some layers from GPUs to RAM.

    `sources` maps each layer to the KV cache that has its keys and values. `cache` has all layers
    that the assistant reads, and `copies` only those copied from a GPU.
    """

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
        """Frees the program that stores the copies."""
        if self._program is not None:
            self._program.close()
            self._program = None
