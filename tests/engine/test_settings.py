"""Decisions from request, model and machine, as a table."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sharpi.engine.backends.gpu.part import gpu_scratch_bytes
from sharpi.engine.kv.kv_choice import gpu_buffers
from sharpi.engine.settings import active_bytes, decide
from sharpi.errors import UsageError
from sharpi.gguf.header import is_routed
from sharpi.gguf.reader import open_gguf
from sharpi.hardware.info import HardwareInfo
from sharpi.hardware.topology import Core, Topology
from sharpi.model.config import read_config
from sharpi.model.weights import load_weights
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, kv_bytes
from sharpi.settings import RunConfig
from sharpi.tiers.facts import read_facts
from sharpi.tiers.settings import EngineSettings

MODEL = Path(__file__).parents[1] / "references" / "data" / "qwen3moe.gguf"
MACHINE = HardwareInfo(
    physical_cores=8, logical_cores=16, total_ram=8 << 30, free_ram=4 << 30, instruction_set="avx2"
)


def settings(**options: object) -> EngineSettings:
    with open_gguf(MODEL) as file:
        config = RunConfig(model=MODEL, **options)  # type: ignore[arg-type]
        return decide(config, file, read_config(file), MACHINE)


def test_defaults_are_modest() -> None:
    decided = settings()
    assert decided.context_size == 2048  # the model's own, below 4,096
    assert decided.batch_size == 512
    assert decided.rounding == "int16"  # a small model
    assert decided.num_batch_threads == 8
    assert decided.num_threads == 1  # too little to read for more threads
    assert decided.notes == ()


def test_what_is_asked_for_counts() -> None:
    decided = settings(
        context_size=100, batch_size=300, precision="int8", num_threads=3, num_batch_threads=5
    )
    assert (decided.context_size, decided.batch_size) == (100, 100)
    assert decided.rounding == "int8"
    assert (decided.num_threads, decided.num_batch_threads) == (3, 5)
    assert settings(num_threads=3).num_batch_threads == 3


def test_a_token_reads_its_share_of_the_experts() -> None:
    with open_gguf(MODEL) as file:
        model = read_config(file)
        routed = sum(t.num_bytes for n, t in file.tensors.items() if "_exps." in n)
        embedding = file.tensors["token_embd.weight"].num_bytes
        everything = sum(t.num_bytes for t in file.tensors.values())
        share = model.num_experts_per_token / model.num_experts
        expected = everything - embedding - routed * (1 - share)
        assert active_bytes(file, model) == pytest.approx(expected, rel=0.01)


def test_threads_are_the_performance_cores_by_default() -> None:
    cores = [Core(i, (0, i), capacity=1.0 if i < 3 else 0.5) for i in range(8)]
    machine = replace(MACHINE, topology=Topology(tuple(cores)))
    with open_gguf(MODEL) as file:
        decided = decide(RunConfig(model=MODEL), file, read_config(file), machine)
    assert decided.num_batch_threads == 3
    assert [place.cores for place in decided.places] == [(0, 1, 2)] * 3


def test_more_threads_than_cores_are_noted() -> None:
    assert settings(num_threads=16).notes == ()
    (note,) = settings(num_threads=17).notes
    assert "17 threads on 16 cores" in note


@pytest.mark.parametrize(("size", "message"), [(0, "at least 1"), (1 << 30, r"KV cache.*-c")])
def test_a_context_that_cannot_be_is_refused(size: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings(context_size=size)


def test_several_sequences_have_a_context_each_where_there_is_room() -> None:
    decided = settings(num_parallel=4, context_size=1000)
    assert (decided.pages_per_sequence, decided.num_pages) == (16, 64)
    assert decided.notes == ()


def test_where_there_is_no_room_they_share_what_there_is() -> None:
    with open_gguf(MODEL) as file:
        page = kv_bytes(read_config(file).attention, PAGE_POSITIONS)
        weights = sum(tensor.num_bytes for tensor in file.tensors.values())
    decided = settings(num_parallel=4, context_size=1000, ram=weights + 40 * page)
    assert decided.num_pages == 40
    assert "2560 positions" in decided.notes[0]
    assert settings(num_parallel=4, context_size=1000, ram=1).num_pages == 16


def test_keys_and_values_are_f16_where_there_is_room_else_q8_0() -> None:
    with open_gguf(MODEL) as file:
        needed = kv_bytes(read_config(file).attention, 1000)
        dense = sum(t.num_bytes for name, t in file.tensors.items() if not is_routed(name))
    roomy = settings(context_size=1000, ram=dense + needed)
    assert (str(roomy.kv_types), roomy.notes) == ("f16", ())
    tight = settings(context_size=1000, ram=dense + needed - 1)
    assert str(tight.kv_types) == "q8_0"
    assert "keys and values are q8_0" in tight.notes[-1]


def test_on_a_gpu_the_type_follows_from_what_vram_leaves_for_layers_and_slots() -> None:
    """Of 2 layers with 8 experts, 4 of them recommended; 32,768 positions are 16 MiB of f16."""
    found = {
        kib: settings(context_size=32768, vram=(512 << 20) + (kib << 10))
        for kib in (64_152, 70_252, 70_452, 70_652)
    }
    assert [str(each.kv_types) for each in found.values()] == ["q8_0", "q8_0", "q8_0", "f16"]
    said = [each.kv_notes[0] if each.kv_notes else "" for each in found.values()]
    assert "574.6 MiB of VRAM would have room for 1 of 2 layers, not for 2;" in said[0]
    assert "room for 0 of the 4 recommended experts of a layer, not for 4;" in said[1]
    assert "room for 3 of the 4 recommended experts of a layer, not for 4;" in said[2]
    assert said[3] == ""
    asked = settings(context_size=32768, vram=574 << 20, kv_type="f16")
    assert (str(asked.kv_types), asked.notes[1:]) == ("f16", ())
    on_cpu = settings(context_size=32768, vram=574 << 20, device="cpu")
    assert str(on_cpu.kv_types) == "f16"


@pytest.mark.parametrize("context_size", [4096, 32768])
def test_a_gpus_buffers_are_estimated_a_little_above_those_of_the_plan(context_size: int) -> None:
    config = RunConfig(model=MODEL, context_size=context_size, vram=8 << 30)
    with open_gguf(MODEL) as file:
        model = read_config(file)
        decided = decide(config, file, model, MACHINE)
        counted = gpu_scratch_bytes(model, load_weights(file, model), decided)
        estimated = gpu_buffers(read_facts(file, model), model, decided)
    assert counted <= estimated <= counted + (32 << 20)


def test_ram_is_asked_for_what_no_gpu_keeps() -> None:
    little = settings(context_size=2048, ram=1 << 20)
    assert str(little.kv_types) == "q8_0"
    beside = settings(context_size=2048, ram=1 << 20, vram=2 << 30)
    assert (str(beside.kv_types), beside.kv_notes) == ("f16", ())


@pytest.mark.parametrize(
    ("asked", "types"),
    [
        ({"kv_type": "q4_0"}, "q4_0"),
        ({"kv_type": "q8_0", "value_type": "q5_0"}, "q8_0 keys and q5_0 values"),
        ({"key_type": "q5_1"}, "q5_1 keys and f16 values"),
    ],
)
def test_types_that_are_asked_for_are_taken(asked: dict[str, Any], types: str) -> None:
    decided = settings(ram=1, **asked)
    assert (str(decided.kv_types), decided.notes) == (types, ())


@pytest.mark.parametrize("num_parallel", [0, 65])
def test_more_sequences_than_there_may_be_are_refused(num_parallel: int) -> None:
    with pytest.raises(UsageError, match="1 to 64"):
        settings(num_parallel=num_parallel)


def test_a_batch_has_a_token_of_each_sequence_at_least() -> None:
    assert settings(num_parallel=4, batch_size=2).batch_size == 4
