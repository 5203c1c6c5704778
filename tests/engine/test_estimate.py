"""Plans of models that are not there: bytes that add up, and speeds that follow the machine."""

import pytest
from msgspec.structs import replace

from sharpi.engine.placement.estimate import (
    approximate_facts,
    estimate,
    least_bytes,
    whole_bytes,
)
from sharpi.hardware.info import HardwareInfo, Rates
from sharpi.hub.catalogue import CATALOGUE, CatalogueEntry, find_entry

GIB = 1 << 30
MACHINE = HardwareInfo(
    physical_cores=8,
    logical_cores=16,
    total_ram=64 * GIB,
    free_ram=60 * GIB,
    instruction_set="avx2",
    rates=Rates(ram_read=60e9),
)


def entry(name: str) -> CatalogueEntry:
    found = find_entry(name)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("each", CATALOGUE, ids=lambda each: each.name)
def test_parts_add_up_to_the_file(each: CatalogueEntry) -> None:
    facts = approximate_facts(each, each.quant)
    experts = sum(layer.experts_bytes for layer in facts.layers)
    total = facts.dense_weights_bytes + experts
    assert total == pytest.approx(each.file_bytes(each.quant), rel=0.1)
    least, whole = (f(each, each.quant, MACHINE) for f in (least_bytes, whole_bytes))
    assert least <= 1.1 * whole
    if each.num_experts > 8:
        assert least < 0.7 * whole


def test_bandwidth_over_active_bytes_is_within_the_range() -> None:
    plan = estimate(entry("qwen3:30b"), "Q4_K_M", MACHINE)
    assert plan.fits
    active = 3.3e9 * 4.85 / 8
    least, most = plan.speed.least_tokens_per_second, plan.speed.tokens_per_second
    assert least < 60e9 / active < most <= 2.001 * least


def test_a_small_machine_reads_experts_from_disk_and_refuses_dense_models() -> None:
    small = replace(MACHINE, total_ram=16 * GIB, free_ram=12 * GIB)
    moe = estimate(entry("qwen3:30b"), "Q4_K_M", small)
    assert moe.fits
    assert moe.speed.bytes_per_token["disk read"] > 0
    assert not estimate(entry("qwen3:32b"), "Q4_K_M", small).fits


def test_a_gpu_is_faster() -> None:
    with_gpu = replace(MACHINE, free_vram=24 * GIB)
    on_gpu, on_cpu = (
        estimate(entry("qwen3:30b"), "Q4_K_M", machine).speed.tokens_per_second
        for machine in (with_gpu, MACHINE)
    )
    assert on_gpu > 2 * on_cpu
