"""Measures a loaded model: prefill and decode speed, compared with the machine's limits.

Token ids are random with a fixed seed, so every repetition of a test uses the same experts. The
warm-up is one whole repetition: it brings the pages into memory and counts what a pass reads.
"""

import time
from collections.abc import Iterator, Sequence
from statistics import stdev
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from sharpi.engine.engine import Engine
from sharpi.engine.measure.benchmark_processor import Traffic, WeightTraffic, processor_of
from sharpi.engine.sequence import Sequence as TokenSequence
from sharpi.model.weights import load_weights

_NUM_CHECKS = 8  # of a repetition


class BenchmarkTest(Struct, frozen=True):
    """Prefill ("pp") or decode ("tg") after `depth` tokens, or checks of drafts ("ck")."""

    kind: Literal["pp", "tg", "ck"]
    num_tokens: int
    depth: int = 0

    @property
    def name(self) -> str:
        """The name that llama-bench gives it: `pp512`, `tg128 @ d4096`."""
        return f"{self.kind}{self.num_tokens}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def num_positions(self) -> int:
        return self.depth + self.num_measured

    @property
    def num_measured(self) -> int:
        return self.num_tokens * (_NUM_CHECKS if self.kind == "ck" else 1)

    @property
    def pass_size(self) -> int | None:
        """The tokens of a step; None for whole batches."""
        return {"tg": 1, "ck": self.num_tokens}.get(self.kind)


class BenchmarkRow(Struct, frozen=True):
    """One test's result; figures are means over the repetitions, and giga is 1e9."""

    test: str
    tokens_per_second: float
    deviation: float  # of `samples`
    gigabytes_per_second: float
    # of reading the mapped file with as many threads, or of a GPU's rate; None if both compute
    percent_of_limit: float | None
    # None, like the other int8 figures, for decode and for float activations
    percent_of_int8_peak: float | None
    threads: int | None  # None if a GPU computes everything
    num_tokens: int
    depth: int
    tokens_per_pass: float  # of a prefill batch; 1 in decode
    bytes_per_pass: float
    read_limit_gigabytes_per_second: float | None
    gigaoperations_per_second: float | None
    int8_peak_gigaoperations_per_second: float | None
    instruction_set: str | None  # None if a GPU computes everything
    precision: str
    batch_size: int
    samples: tuple[float, ...]  # tokens/s of each repetition
    device: str | None = None  # the GPU's name
    launches_per_token: int | None = None

    def record(self) -> dict[str, Any]:
        """Returns a dict for JSON, without fields that do not apply to the processor."""
        return {name: value for name, value in asdict(self).items() if self._has(name)}

    def _has(self, name: str) -> bool:
        if self.device is None:
            return name not in _OF_A_GPU
        return self.threads is not None or name not in _OF_THE_CPU


_OF_A_GPU = ("device", "launches_per_token")
_OF_THE_CPU = (
    "threads",
    "instruction_set",
    "percent_of_int8_peak",
    "gigaoperations_per_second",
    "int8_peak_gigaoperations_per_second",
)


def deviation(samples: Sequence[float]) -> float:
    """Returns the standard deviation of a sample, 0 for a single value."""
    return stdev(samples) if len(samples) > 1 else 0.0


_SEED = 1
# Int8 products that a weight takes part in for each token; None where activations are floats.
_PRODUCTS_OF_A_WEIGHT = {"int8": 1, "int16": 2, "f32": None}


class Benchmark:
    """Runs tests on one engine; every test begins with a warm-up."""

    def __init__(self, engine: Engine, repetitions: int) -> None:
        self._runner, self._settings = engine.runner, engine.runner.settings
        self._repetitions = repetitions
        self._sequence = TokenSequence(engine.runner)
        weights = load_weights(engine.file, engine.model_config)
        self._traffic = WeightTraffic(engine.file, weights)
        self._processor = processor_of(engine, self._traffic)

    def run(self, test: BenchmarkTest) -> BenchmarkRow:
        """Runs one test; of the processor's limits before and after it, the higher ones count."""
        passes = self._passes(test)
        threads = self._threads(test)
        try:
            self._fill(test.depth)
            total, bus_bytes = self._warm_up(test, passes)
            self._processor.measure(threads)
            seconds = [self._timed(test, passes) for _ in range(self._repetitions)]
            self._processor.measure(threads)
        finally:
            self._sequence.truncate(0)
        return self._row(test, len(passes), total, bus_bytes, seconds)

    def _fill(self, depth: int) -> None:
        self._sequence = TokenSequence(self._runner, depth)
        if depth:
            self._sequence.extend(self._random_ids(depth))
            self._sequence.save_snapshot()

    def _threads(self, test: BenchmarkTest) -> int:
        s = self._settings
        return s.num_batch_threads if test.kind == "pp" else s.num_threads

    def _random_ids(self, count: int) -> list[int]:
        random = np.random.default_rng(_SEED)
        return [int(i) for i in random.integers(0, self._runner.vocab_size, count)]

    def _passes(self, test: BenchmarkTest) -> list[list[int]]:
        ids = self._random_ids(test.num_positions)[test.depth :]
        batch = min(self._runner.batch_size, self._runner.prompt_chunk(len(ids)))
        size = test.pass_size or batch
        return [ids[i : i + size] for i in range(0, len(ids), size)]

    def _warm_up(self, test: BenchmarkTest, passes: Sequence[list[int]]) -> tuple[Traffic, int]:
        """Runs all passes once; returns what they read, and the bytes that crossed a GPU's bus."""
        total, bus_bytes = Traffic(), 0
        for ids in passes:
            self._extend(test, ids)
            routes = [r[: len(ids)] for r in self._runner.routes]
            total += self._traffic.of_pass(len(ids), routes)
            bus_bytes += self._processor.bus_bytes(routes)
        self._go_back(test)
        return total, bus_bytes

    def _extend(self, test: BenchmarkTest, ids: list[int]) -> None:
        if test.kind == "ck":
            self._sequence.extend_checked(ids)
        else:
            self._sequence.extend(ids)

    def _timed(self, test: BenchmarkTest, passes: Sequence[list[int]]) -> float:
        if self._runner.num_ranks > 1 and test.kind == "pp":  # all at work at once
            passes = [[token for ids in passes for token in ids]]
        start = time.perf_counter()
        for ids in passes:
            self._extend(test, ids)
        seconds = time.perf_counter() - start
        self._go_back(test)
        return seconds

    def _go_back(self, test: BenchmarkTest) -> None:
        self._sequence.truncate(test.depth)
        self._sequence.recompute()

    def _row(
        self,
        test: BenchmarkTest,
        num_passes: int,
        total: Traffic,
        bus_bytes: int,
        seconds: list[float],
    ) -> BenchmarkRow:
        samples = tuple(test.num_measured / each for each in seconds)
        mean = sum(samples) / len(samples)
        repetitions_per_second = mean / test.num_measured
        threads, processor = self._threads(test), self._processor
        limit = processor.bytes_per_second(threads, total.weight_bytes, bus_bytes)
        read = total.weight_bytes * repetitions_per_second
        operations, peak = self._int8_rates(test, total, repetitions_per_second)
        return BenchmarkRow(
            test=test.name,
            tokens_per_second=mean,
            deviation=deviation(samples),
            gigabytes_per_second=read / 1e9,
            percent_of_limit=100 * read / limit if limit else None,
            percent_of_int8_peak=100 * operations / peak if operations and peak else None,
            threads=threads if processor.has_cpu_layers else None,
            num_tokens=test.num_measured,
            depth=test.depth,
            tokens_per_pass=test.num_measured / num_passes,
            bytes_per_pass=total.weight_bytes / num_passes,
            read_limit_gigabytes_per_second=limit / 1e9 if limit else None,
            gigaoperations_per_second=operations / 1e9 if operations else None,
            int8_peak_gigaoperations_per_second=peak / 1e9 if peak else None,
            instruction_set=self._settings.instruction_set if processor.has_cpu_layers else None,
            precision=self._settings.rounding,
            batch_size=self._settings.batch_size,
            samples=samples,
            device=processor.device,
            launches_per_token=self._launches(test),
        )

    def _launches(self, test: BenchmarkTest) -> int | None:
        """Returns the kernel launches of the last token of a decode test; None for other tests."""
        return self._processor.launches(test.num_positions - 1) if test.kind == "tg" else None

    def _int8_rates(
        self, test: BenchmarkTest, total: Traffic, repetitions_per_second: float
    ) -> tuple[float | None, float | None]:
        """Returns the int8 operations per second of prefill: those reached, and the peak."""
        products = _PRODUCTS_OF_A_WEIGHT[self._settings.rounding]
        if test.kind != "pp" or products is None:
            return None, None
        peak = self._processor.operations_per_second(self._threads(test))
        if peak is None:
            return None, None
        return total.operations * products * repetitions_per_second, peak


def run_benchmark(
    engine: Engine, tests: Sequence[BenchmarkTest], repetitions: int
) -> Iterator[BenchmarkRow]:
    """Yields a row per test that fits a step's drafts, as it is done; raises ContextFullError."""
    benchmark = Benchmark(engine, repetitions)
    for test in tests:
        if test.kind == "ck" and test.num_tokens > 1 + engine.runner.settings.max_drafts:
            continue  # recurrent layers have no room for so many states
        yield benchmark.run(test)
