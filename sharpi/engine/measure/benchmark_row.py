"""BenchmarkTest and BenchmarkRow: a test of a benchmark, and its result."""

from collections.abc import Sequence
from statistics import stdev
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

_NUM_CHECKS = 8  # of a repetition


class BenchmarkTest(Struct, frozen=True):
    """Prefill ("pp") or decode ("tg") of `num_tokens` after `depth` tokens in the KV cache.

    A test of kind "ck" checks drafts: its steps have `num_tokens` rows, with the logits of all
    rows.
    """

    kind: Literal["pp", "tg", "ck"]
    num_tokens: int
    depth: int = 0

    @property
    def name(self) -> str:
        """The name that llama-bench gives it: `pp512`, `tg128 @ d4096`."""
        return f"{self.kind}{self.num_tokens}" + (f" @ d{self.depth}" if self.depth else "")

    @property
    def num_positions(self) -> int:
        """The context size that the test needs."""
        return self.depth + self.num_measured

    @property
    def num_measured(self) -> int:
        """The tokens of one repetition."""
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
