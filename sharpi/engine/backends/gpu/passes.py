"""Decides which segments of a step a GPU computes together, and which separately."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharpi.engine.backends.model_part import Segment, batches
from sharpi.ops.cuda.recorder.f16_matmul import PRODUCT_TOKENS


class GpuPass(NamedTuple):
    """Segments that one pass computes together, keyed by their first row in the step."""

    segments: dict[int, Segment]

    @property
    def rows(self) -> list[int]:
        """The row in the step of each token of the pass, in the order of the pass."""
        return [
            row
            for first, segment in self.segments.items()
            for row in range(first, first + len(segment.ids))
        ]


def gpu_passes(
    segments: Sequence[Segment], batch_size: int, most_tokens: int = PRODUCT_TOKENS - 1
) -> Iterator[GpuPass]:
    """Yields one pass for all short segments, then one for each batch of each longer segment.

    Short segments have at most `most_tokens` tokens; if that is 0, no segments share a pass. Longer
    segments belong to prompts, whose matmuls are faster separately, in batches of `batch_size`.
    """
    together: dict[int, Segment] = {}
    alone: dict[int, Segment] = {}
    row = 0
    for segment in segments:
        (together if len(segment.ids) <= most_tokens else alone)[row] = segment
        row += len(segment.ids)
    if together:
        yield GpuPass(together)
    for first, segment in alone.items():
        for own, batch in batches(segment, batch_size):
            yield GpuPass({first + own.start: batch})
