"""The limits of a benchmark on a GPU: its rate, the bus's rate, or none."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from sharpi.engine.engine import Engine
from sharpi.engine.measure.benchmark import BenchmarkRow
from sharpi.engine.measure.benchmark_processor import (
    BusTraffic,
    Processor,
    WeightTraffic,
    processor_of,
)
from sharpi.model.weights import load_weights
from sharpi.ops.cuda import gpu_limits as gpu_limits

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
ROW = BenchmarkRow(
    test="tg1",
    tokens_per_second=2.0,
    deviation=0.0,
    gigabytes_per_second=1.0,
    percent_of_limit=50.0,
    percent_of_int8_peak=None,
    threads=2,
    num_tokens=1,
    depth=0,
    tokens_per_pass=1,
    bytes_per_pass=1,
    read_limit_gigabytes_per_second=2.0,
    gigaoperations_per_second=None,
    int8_peak_gigaoperations_per_second=None,
    instruction_set="avx2",
    precision="int8",
    batch_size=512,
    samples=(2.0,),
)
GIVEN = {name: getattr(ROW, name) for name in BenchmarkRow.__struct_fields__}


class SteadyLimits:
    """Ten bytes per second from the GPU's memory, one over the bus."""

    def __init__(self, device: object) -> None:
        self.bytes_per_second, self.bus_bytes_per_second = 10.0, 1.0
        self.measured: list[str] = []

    def measure(self) -> None:
        self.measured.append("gpu")

    def measure_bus(self) -> None:
        self.measured.append("bus")


def bus_traffic(engine: Engine, resident: int) -> BusTraffic:
    weights = load_weights(engine.file, engine.model_config)
    config = engine.model_config
    traffic = WeightTraffic(engine.file, weights)
    return BusTraffic(traffic, [resident] * config.num_layers, config.num_experts)


def test_the_cpus_row_has_nothing_of_a_gpu(load: Load) -> None:
    engine = load("qwen3moe")
    weights = load_weights(engine.file, engine.model_config)
    traffic = WeightTraffic(engine.file, weights)
    processor = processor_of(engine, traffic)
    assert (processor.device, processor.has_cpu_layers) == (None, True)
    processor.measure(1)
    assert processor.bytes_per_second(1, 1, 0)
    record = ROW.record()
    assert not {"device", "launches_per_token"} & record.keys()
    assert record["instruction_set"] == "avx2"
    assert record["percent_of_int8_peak"] is None


def test_a_gpus_row_names_the_gpu() -> None:
    gpu = GIVEN | {"device": "Some GPU", "launches_per_token": 9, "threads": None}
    record = BenchmarkRow(**(gpu | {"instruction_set": None})).record()
    assert (record["device"], record["launches_per_token"]) == ("Some GPU", 9)
    assert not {"instruction_set", "threads", "percent_of_int8_peak"} & record.keys()
    both = BenchmarkRow(**(GIVEN | {"device": "Some GPU", "percent_of_limit": None})).record()
    assert (both["device"], both["instruction_set"], both["threads"]) == ("Some GPU", "avx2", 2)
    assert both["percent_of_limit"] is None


def test_experts_beyond_the_resident_come_over_the_bus(load: Load) -> None:
    engine = load("qwen3moe")
    config, bus = engine.model_config, bus_traffic(engine, resident=3)
    expert = sum(
        tensor.num_bytes // config.num_experts
        for name, tensor in engine.file.tensors.items()
        if name.startswith("blk.0.ffn_") and "_exps" in name
    )
    routes = [np.array([[0, 5], [5, 2], [7, 5]], np.int32), np.array([[3, 1], [6, 7]], np.int32)]
    assert bus.of_pass(routes) == 3 * expert  # 5 and 7, then 3: the last layer's first row counts
    assert bus.of_pass([np.array([[0, 2]], np.int32)] * 2) == 0
    assert bus_traffic(engine, resident=0).of_pass(routes) == 6 * expert


def test_resident_experts_do_not_ask_for_the_bus(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_limits, "GpuLimits", SteadyLimits)
    gpu = SimpleNamespace(device=SimpleNamespace(name="Some GPU"))
    for resident, measured in ((8, ["gpu"]), (3, ["gpu", "bus"])):
        processor = Processor([gpu], bus=bus_traffic(load("qwen3moe"), resident))
        processor.measure(1)
        assert processor._gpu.measured == measured


@pytest.mark.parametrize(
    ("bus_bytes", "limit"),
    [(0, 10), (5, 10), (10, 10), (50, 2), (100, 1)],
)
def test_the_slower_link_is_the_limit(
    load: Load, monkeypatch: pytest.MonkeyPatch, bus_bytes: int, limit: float
) -> None:
    """Some of 100 bytes cross the bus, which is a tenth as fast."""
    monkeypatch.setattr(gpu_limits, "GpuLimits", SteadyLimits)
    gpu = SimpleNamespace(
        device=SimpleNamespace(name="Some GPU"), calls_of_token=lambda position: [None] * position
    )
    processor = Processor([gpu], bus=bus_traffic(load("qwen3moe"), 3))
    seconds = max((100 - bus_bytes) / 10, bus_bytes)
    assert processor.bytes_per_second(1, 100, bus_bytes) == pytest.approx(100 / seconds)
    assert processor.bytes_per_second(1, 100, bus_bytes) == pytest.approx(limit, rel=0.12)
    assert processor.launches(7) == 7
    several = Processor([gpu, gpu])
    assert several.bytes_per_second(1, 100, 0) is None
    assert (several.device, several.launches(7)) == ("Some GPU and Some GPU", 14)
