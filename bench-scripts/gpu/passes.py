"""Times prefill and decode of an engine on a GPU, and counts hits and bytes over the bus."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.sequence import Sequence
from sharpi.experts.stats.stats_collect import RunFacts
from sharpi.ops.cuda.recorded import MissMode
from sharpi.trial import Trial


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of tokens and repetitions of each measurement."""

    prompts: tuple[int, ...] = (512, 2048)
    prefix: int = 16  # before the decoded tokens
    decoded: int = 96
    warm_up: int = 32
    auto: int = 600  # tokens to find the fastest miss mode and to time it
    repetitions: int = 3
    greedy: int = 24
    batch_size: int = 512

    @property
    def context_size(self) -> int:
        """The context size that the longest pass needs."""
        return max(*self.prompts, 64 + self.warm_up + self.decoded, 64 + self.auto) + 64


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of a decode measurement, with means per token."""

    mode: str  # the miss mode
    seconds: float
    typical_seconds: float  # the median of the tokens' seconds
    hit_rate: float | None  # None if all experts are in one place
    bus_bytes: float | None  # None if all experts are in one place
    fastest: str | None = None


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The result of a prefill measurement, with the median time of a prompt."""

    tokens: int
    seconds: float
    must_cross_bytes: int  # bytes of the used experts that had no slot when the prompt began


class Passes:
    """The measurements of one engine; `MODES` are the miss modes to be measured."""

    MODES: ClassVar[tuple[MissMode, ...]] = ("bus", "cpu")

    def __init__(self, engine: Engine, sizes: Sizes) -> None:
        self._engine, self._sizes = engine, sizes
        self._sequence = Sequence(engine.runner)
        self._tier = gpu_tier_of(engine.runner.parts)
        (self._part,) = (p for p in engine.runner.parts if isinstance(p, GpuPart))

    def prefills(self) -> Iterator[Prefilled]:
        """Measures prompts of each length from an empty KV cache, after a warm-up."""
        for count in self._sizes.prompts:
            ids, seconds, crossed = self._ids(count), list[float](), 0
            for _ in range(self._sizes.repetitions + 1):
                before = {} if self._tier is None else self._tier.residents()
                start = time.perf_counter()
                self._sequence.extend(ids)
                seconds.append(time.perf_counter() - start)
                crossed = self._must_cross(before)
                self._sequence.truncate(0)
            yield Prefilled(count, median(seconds[1:]), crossed)

    def _must_cross(self, residents: dict[int, tuple[int, ...]]) -> int:
        """Returns the bytes of the experts that the last step used and that were not resident.

        `residents`: the resident experts before the prompt, by layer. If a prompt had several
        steps, only its last step counts.
        """
        plan = self._engine.plan
        assert plan is not None
        if self._engine.config.cpu_moe:
            return 0
        moe = [layer for layer in plan.layers if layer.num_experts]
        total = 0
        for layer, routes in zip(moe, self._engine.runner.routes, strict=True):
            if layer.index in residents:
                missing = np.setdiff1d(routes, residents[layer.index])
                total += len(missing) * (layer.expert_bytes or 0)
        return total

    def decode(self, mode: str, *, by_launches: bool = False) -> Decoded:
        """Measures decode of random tokens in one miss mode.

        `by_launches`: launches kernels without CUDA graphs.
        """
        if self._tier is not None and mode in self.MODES:
            self._tier.miss = Trial([next(m for m in self.MODES if m == mode)])
        return self._decode(mode, self._sizes.warm_up, self._sizes.decoded, by_launches)

    def decode_auto(self) -> Decoded:
        """Measures decode with automatic choice of the miss mode; times the last third of it."""
        assert self._tier is not None
        self._tier.miss = Trial(self.MODES)
        timed = self._sizes.auto // 3
        found = self._decode("auto", self._sizes.auto - timed, timed, False)
        return Decoded(
            "auto", found.seconds, found.typical_seconds, found.hit_rate, found.bus_bytes,
            self._tier.miss.fastest,
        )  # fmt: skip

    def _decode(self, mode: str, warm_up: int, count: int, by_launches: bool) -> Decoded:
        self._sequence.extend(self._ids(self._sizes.prefix))
        ids, seconds = self._ids(warm_up + count), list[float]()
        before = self._counts()
        for number, token in enumerate(ids):
            if number == warm_up:
                before = self._counts()
            if by_launches:
                self._part.drop_graphs()
            start = time.perf_counter()
            self._sequence.extend_largest(token)
            seconds.append(time.perf_counter() - start)
        accesses, hits, bus = (b - a for a, b in zip(before, self._counts(), strict=True))
        self._sequence.truncate(0)
        timed, has_slots = seconds[warm_up:], self._tier is not None and accesses > 0
        return Decoded(
            mode, sum(timed) / count, median(timed),
            hits / accesses if has_slots else None, bus / count if has_slots else None,
        )  # fmt: skip

    def _counts(self) -> tuple[int, int, int]:
        """Returns the accesses, hits and bytes over the bus so far; zeros without slots."""
        if self._tier is None:
            return 0, 0, 0
        stats = self._tier.stats(RunFacts(""))
        return stats.total.hit_count.accesses, stats.total.hit_count.hits, stats.bytes_read

    def logits(self) -> npt.NDArray[np.float32]:
        """Decodes 16 random tokens; returns the logits (tokens, vocabulary) after each of them."""
        rows = [self._sequence.extend([token]).copy() for token in self._ids(16)]
        self._sequence.truncate(0)
        return np.stack(rows)

    def greedy(self) -> list[int]:
        """Returns greedy tokens after a short prompt.

        Only miss modes are used whose results equal those with all experts in VRAM.
        """
        if self._tier is not None:
            modes = [mode for mode in self._tier.miss.options if mode != "cpu"]
            self._tier.miss = Trial(modes or self._tier.miss.options)
        tokens = [int(np.argmax(self._sequence.extend(self._ids(8))))]
        while len(tokens) < self._sizes.greedy:
            tokens.append(self._sequence.extend_largest(tokens[-1]))
        self._sequence.truncate(0)
        return tokens

    def _ids(self, count: int) -> list[int]:
        vocabulary = self._engine.runner.vocab_size
        return [int(i) for i in np.random.default_rng(5).integers(0, vocabulary, count)]
