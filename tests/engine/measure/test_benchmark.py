"""The benchmark's figures: bytes counted from real routes, rates, and the machine's limits."""

from collections.abc import Callable

import numpy as np
import pytest

from sharpi.engine.engine import Engine
from sharpi.engine.measure.benchmark import BenchmarkRow, BenchmarkTest, deviation, run_benchmark
from sharpi.engine.measure.benchmark_processor import WeightTraffic
from sharpi.engine.sequence import Sequence
from sharpi.engine.settings import active_bytes
from sharpi.model.weights import load_weights
from sharpi.ops.cpu import machine_limits
from sharpi.ops.cpu.machine_limits import int8_operations_per_second, read_bytes_per_second

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
PREFILL, DECODE = BenchmarkTest("pp", 40), BenchmarkTest("tg", 6)


@pytest.fixture(autouse=True)
def short_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "BYTES_A_TRY", 1 << 22)
    monkeypatch.setattr(machine_limits, "SECONDS_A_TRY", 1e-3)


def only_row(engine: Engine, test: BenchmarkTest, repetitions: int = 1) -> BenchmarkRow:
    (row,) = run_benchmark(engine, [test], repetitions)
    return row


def traffic(engine: Engine) -> WeightTraffic:
    return WeightTraffic(engine.file, load_weights(engine.file, engine.model_config))


def embedding_row_bytes(engine: Engine) -> int:
    table = engine.file.tensors["token_embd.weight"]
    return table.num_bytes // table.shape[0]


def test_a_dense_token_reads_every_weight_but_the_other_embeddings(load: Load) -> None:
    engine = load("llama")
    tensors = engine.file.tensors
    expected = sum(t.num_bytes for name, t in tensors.items() if name != "token_embd.weight")
    read = traffic(engine).of_pass(1, []).weight_bytes
    assert read == expected + embedding_row_bytes(engine)


def test_a_tied_output_is_read(load: Load) -> None:
    engine = load("qwen3")
    assert "output.weight" not in engine.file.tensors
    total = sum(t.num_bytes for t in engine.file.tensors.values())
    assert traffic(engine).of_pass(1, []).weight_bytes == total + embedding_row_bytes(engine)


@pytest.mark.parametrize("model", ["qwen3moe", "mixtral", "qwen2moe", "granitemoe-shared"])
def test_a_token_of_a_mixture_reads_its_experts(load: Load, model: str) -> None:
    engine = load(model)
    used = np.arange(engine.model_config.num_experts_per_token, dtype=np.int32)[None]
    read = traffic(engine).of_pass(1, [used] * engine.model_config.num_layers).weight_bytes
    active = active_bytes(engine.file, engine.model_config)
    assert read == active + embedding_row_bytes(engine)


def test_tokens_of_a_pass_share_their_experts(load: Load) -> None:
    engine = load("qwen3moe")
    counted, layers = traffic(engine), engine.model_config.num_layers
    same = np.tile(np.array([[3, 5]], np.int32), (4, 1))
    other = np.array([[0, 1], [2, 3], [4, 5], [6, 7]], np.int32)
    one = counted.of_pass(1, [same[:1]] * layers)
    together, apart = (counted.of_pass(4, [each] * layers) for each in (same, other))
    assert together.weight_bytes == one.weight_bytes + 3 * embedding_row_bytes(engine)
    assert apart.weight_bytes > together.weight_bytes
    assert apart.operations == together.operations


def test_the_last_layers_experts_meet_one_token(load: Load) -> None:
    engine = load("qwen3moe")
    assert engine.model_config.num_layers == 2
    counted = traffic(engine)
    some = np.tile(np.array([[3, 5]], np.int32), (4, 1))
    others = np.array([[3, 5], [2, 3], [4, 5], [6, 7]], np.int32)
    assert counted.of_pass(4, [some, others]) == counted.of_pass(4, [some, some])
    assert counted.of_pass(4, [others, some]) != counted.of_pass(4, [some, some])


def test_routes_of_a_batch_are_those_of_its_tokens(load: Load) -> None:
    """The counts use the engine's routes: all rows but in the last layer, which has row 0."""
    engine = load("qwen3moe")
    ids = [5, 9, 13, 17]
    sequence = Sequence(engine.runner)
    alone = []
    for token in ids:
        sequence.extend([token])
        alone.append([route[0].tolist() for route in engine.runner.routes])
    sequence.truncate(0)
    sequence.extend(ids)
    first, last = engine.runner.routes
    first = first[: len(ids)]
    assert first.tolist() == [route[0] for route in alone]
    assert last[0].tolist() == alone[-1][1]


def test_decode_row(load: Load) -> None:
    row = only_row(load("qwen3moe", num_threads=1), DECODE, repetitions=3)
    assert (row.test, row.threads, row.num_tokens, len(row.samples)) == ("tg6", 1, 6, 3)
    assert row.tokens_per_second == pytest.approx(np.mean(row.samples))
    assert row.deviation == pytest.approx(np.std(row.samples, ddof=1))
    assert row.gigabytes_per_second * 1e9 == pytest.approx(
        row.tokens_per_second * row.bytes_per_pass
    )
    limit = row.read_limit_gigabytes_per_second
    assert row.percent_of_limit == pytest.approx(100 * row.gigabytes_per_second / limit)
    assert row.percent_of_int8_peak is None


def test_prefill_row_of_two_batches(load: Load) -> None:
    row = only_row(load("qwen3moe", batch_size=32, num_batch_threads=2), PREFILL)
    assert (row.test, row.threads, row.tokens_per_pass, row.deviation) == ("pp40", 2, 20, 0)
    assert row.percent_of_int8_peak is not None
    assert row.percent_of_int8_peak > 0


def test_int16_activations_meet_every_weight_twice(load: Load) -> None:
    rows = [only_row(load("llama", precision=p), PREFILL) for p in ("int8", "int16", "f32")]
    reached = [
        row.gigaoperations_per_second and row.gigaoperations_per_second / row.tokens_per_second
        for row in rows
    ]
    assert reached[1] == pytest.approx(2 * (reached[0] or 0))
    assert reached[2] is None


def test_depth_fills_the_context_before(load: Load) -> None:
    engine = load("llama", context_size=128)
    row = only_row(engine, BenchmarkTest("tg", 4, depth=100))
    assert (row.test, row.depth) == ("tg4 @ d100", 100)
    assert engine.runner.pages.allocate() is not None  # all pages came back


def test_same_ids_each_time(load: Load) -> None:
    engine = load("qwen3moe")
    rows = list(run_benchmark(engine, [PREFILL, PREFILL], 1))
    assert rows[0].bytes_per_pass == rows[1].bytes_per_pass


def test_deviation() -> None:
    assert deviation([2.0]) == 0
    assert deviation([1.0, 2.0, 3.0]) == pytest.approx(1)


@pytest.mark.parametrize("least", [0, pytest.param(1e8, marks=pytest.mark.speed)])
def test_limits_are_rates(least: float) -> None:
    parts = [np.ones(size, np.uint8) for size in (0, 1, 129, 1 << 20)]
    for threads in (1, 2, 3):
        assert least < read_bytes_per_second(parts, threads, tries=1) < 1e13
    assert least < int8_operations_per_second("portable", 1, tries=1) < 1e13
