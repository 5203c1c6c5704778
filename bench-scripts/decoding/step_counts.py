"""StepCounts: the seconds, tokens and disk reads of each decoding step of one answer."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sharpi.engine.engine import Engine
from sharpi.experts.layer_stats import sum_of

_MOST_ROWS = 16  # more are a prompt
_COUNTED = 8  # every so many steps, the distinct experts are counted


class Step(NamedTuple):
    """One step of `rows` tokens, and the `tokens` that it added to the answer."""

    rows: int
    tokens: int
    seconds: float
    accesses: int  # distinct experts that the step used, summed over layers
    misses: int  # the accesses to experts that were not in memory
    bytes_read: int


class Size(NamedTuple):
    """The number of steps with `rows` rows, and their means per step."""

    rows: int
    num_steps: int
    tokens: float
    seconds: float  # the median
    misses: float
    bytes_read: float


class StepCounts:
    """Records the steps of an engine from the construction of this object on.

    `distinct`: for every eighth step, the mean number of distinct experts in a layer.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self.steps, self.distinct = engine, list[Step](), list[float]()
        self._begun: tuple[int, int, float, tuple[int, int, int]] | None = None
        self._begin: Callable[..., Any] = engine.runner.begin
        self._num_begun = 0
        engine.runner.begin = self._counted  # type: ignore[method-assign]

    def _counted(self, segments: Sequence[Any], **options: Any) -> Any:
        rows, position = sum(len(each.ids) for each in segments), segments[0].position
        self._end(position)
        self._begun = (rows, position, time.perf_counter(), self._reads())
        begun = self._begin(segments, **options)
        self._num_begun += 1
        routes = self._engine.runner.routes
        if rows <= _MOST_ROWS and self._num_begun % _COUNTED == 0 and routes:
            self.distinct.append(statistics.fmean(len(np.unique(r[:rows])) for r in routes))
        return begun

    def _end(self, position: int) -> None:
        """Records the previous step when the step at `position` begins."""
        if self._begun is None:
            return
        rows, start, time_begun, before = self._begun
        grown = (new - old for new, old in zip(self._reads(), before, strict=True))
        if rows <= _MOST_ROWS and position > start:
            seconds = time.perf_counter() - time_begun
            self.steps.append(Step(rows, position - start, seconds, *grown))

    def _reads(self) -> tuple[int, int, int]:
        """Returns the accesses, misses and bytes read so far; zeros without slots to read into."""
        tier = self._engine._tier
        if tier is None or tier.is_mapped:
            return 0, 0, 0
        layers = tier.layer_stats()
        total = sum_of(each.total for each in layers)
        return total.accesses, total.accesses - total.hits, sum(each.bytes_read for each in layers)


def sizes(steps: Sequence[Step]) -> Iterator[Size]:
    """Yields the means of the steps, grouped by their number of rows."""
    for rows in sorted({step.rows for step in steps}):
        own = [step for step in steps if step.rows == rows]
        yield Size(
            rows,
            len(own),
            statistics.fmean(step.tokens for step in own),
            statistics.median(step.seconds for step in own),
            statistics.fmean(step.misses for step in own),
            statistics.fmean(step.bytes_read for step in own),
        )


def report(steps: Sequence[Step]) -> Iterator[str]:
    """Yields lines of text about the reads of all steps, and of the steps by number of rows.

    Yields nothing if the steps used no slots.
    """
    tokens, accesses = sum(step.tokens for step in steps), sum(step.accesses for step in steps)
    if not accesses:
        return
    hits = 1 - sum(step.misses for step in steps) / accesses
    read = sum(step.bytes_read for step in steps) / tokens / 1e6
    yield f"  {100 * hits:.1f} % of experts in memory, {read:.1f} MB read a token"
    for size in sizes(steps):
        yield (
            f"  {size.rows} rows: {size.num_steps} steps, {size.tokens:.2f} tokens,"
            f" {1e3 * size.seconds:.1f} ms, {size.misses:.1f} experts missing,"
            f" {size.bytes_read / 1e6:.1f} MB"
        )


def bounds(alone: Sequence[Step], drafted: Sequence[Step]) -> Iterator[str]:
    """Yields, for each number of rows, a line with the upper bound of the gain from drafts.

    `alone`: steps of answers without drafts. If the disk is the bottleneck, a drafted step that
    adds `tokens` and reads x times as many bytes as a step alone gains at most tokens / x. A second
    bound is derived from the steps' seconds.
    """
    seconds = statistics.median(step.seconds for step in alone)
    read = statistics.fmean(step.bytes_read for step in alone)
    for size in sizes(drafted):
        if size.rows > 1 and read:
            yield (
                f"  {size.rows} rows give {size.tokens:.2f} tokens and read"
                f" {size.bytes_read / read:.2f} times one token: bound"
                f" {size.tokens * read / max(1.0, size.bytes_read):.2f} by reads,"
                f" {size.tokens * seconds / size.seconds:.2f} by their time"
            )
