"""Models of which a GPU has only some experts: the tokens are the same for all miss modes."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_device import CpuDevice
from msgspec.structs import replace
from short_demo import LAYERS, short_demo

from sharpi.device.device import Device
from sharpi.engine.backends.parts import gpu_tier_of
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.errors import DeviceError, ModelFileError
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import RunFacts
from sharpi.settings import ExpertConfig, RunConfig

pytestmark = pytest.mark.native
SMALL = {"context_size": 128, "batch_size": 36}
PROMPT = [1, 200, 31, 77, 402, 9]
ANSWER = 6  # tokens after it: experts leave their slots and graphs are replayed
TWO_BATCHES, LONG = 72, 76  # tokens of prompts, both longer than a page of keys
MIB = 1 << 20
Load = Callable[..., Engine]


@pytest.fixture
def quick(device: Device) -> Device:
    return quick_of(device)


def load_on(device: Device, **options: Any) -> Engine:
    config = RunConfig(**({"model": short_demo(), "device": "cuda"} | SMALL | options))
    return load_engine(config, open_device=lambda _: device)


def greedy(engine: Engine, prompt: list[int], count: int) -> list[int]:
    """Returns greedy tokens after a prompt that is computed in batches."""
    sequence = Sequence(engine.runner)
    tokens = [int(np.argmax(sequence.extend(prompt)))]
    while len(tokens) < count:
        tokens.append(sequence.extend_largest(tokens[-1]))
    sequence.truncate(0)
    return tokens


def stats_of(engine: Engine) -> ExpertStats:
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    stats = tier.stats(RunFacts("model"))
    assert stats is not None
    return stats


def long_prompt(count: int) -> list[int]:
    return [1, *np.random.default_rng(count).integers(3, 2000, count - 1).tolist()]


def quick_of(device: Device) -> Device:
    """Returns a device without checks on the CPU, for whole models and many tokens."""
    return CpuDevice(check=False) if isinstance(device, CpuDevice) else device


def has_bits(device: Device, miss: str) -> bool:
    """Says if the tokens are promised: the last bits of what the CPU computes may differ."""
    return isinstance(device, CpuDevice) or miss == "bus"


@pytest.fixture(scope="module")
def answers(device: Device) -> dict[int, list[int]]:
    """Returns answers by prompt length, from the same GPU with all experts."""
    engine = load_on(quick_of(device))
    wanted = {len(PROMPT): greedy(engine, PROMPT, ANSWER)}
    wanted |= {n: greedy(engine, long_prompt(n), 4) for n in (30, LONG)}
    engine.close()
    return wanted


@pytest.mark.parametrize("miss", ["bus", "cpu"])
def test_with_all_checks(
    miss: str, load: Load, device: Device, answers: dict[int, list[int]]
) -> None:
    engine = load(short_demo(), **SMALL, moe_slots=3, experts=ExpertConfig(miss=miss))
    found = greedy(engine, PROMPT, 4)
    assert found == answers[len(PROMPT)][:4] or not has_bits(device, miss)


@pytest.mark.parametrize(("miss", "slots"), [("bus", 1), ("bus", 15), ("cpu", 1), ("auto", 5)])
def test_any_number_of_slots_and_miss_mode(
    slots: int, miss: str, quick: Device, answers: dict[int, list[int]]
) -> None:
    engine = load_on(quick, moe_slots=slots, experts=ExpertConfig(miss=miss))
    assert greedy(engine, PROMPT, ANSWER) == answers[len(PROMPT)] or not has_bits(quick, miss)
    stats = stats_of(engine)
    assert 0 < stats.total.hit_count.hits < stats.total.hit_count.accesses
    assert all(layer.num_slots == slots for layer in stats.layers)
    assert stats.bytes_read > 0
    engine.close()


@pytest.mark.parametrize("policy", ["slru", "learned-keep"])
def test_any_policy(policy: str, quick: Device, answers: dict[int, list[int]]) -> None:
    engine = load_on(quick, moe_slots=4, experts=ExpertConfig(policy=policy, miss="bus"))
    assert greedy(engine, PROMPT, ANSWER) == answers[len(PROMPT)]
    counts = stats_of(engine).decode
    assert counts.loads > 4 * LAYERS, "more than there are slots"
    assert counts.prefetch_used > 0
    engine.close()


@pytest.mark.parametrize(
    "asked",
    [
        ExpertConfig(resident="first-n", policy="static"),
        ExpertConfig(resident="ids", policy="static", resident_ids="3,5,9"),
        ExpertConfig(resident="frequency", policy="static", warmup_tokens=2),
        ExpertConfig(warm_pin=1, warm_pin_after=20),
    ],
    ids=["first-n", "ids", "frequency", "warm pin"],
)
def test_sets_that_stay(asked: ExpertConfig, quick: Device, answers: dict[int, list[int]]) -> None:
    engine = load_on(quick, moe_slots=4, experts=replace(asked, miss="bus"))
    assert greedy(engine, PROMPT, ANSWER) == answers[len(PROMPT)]
    pinned = [layer.pinned for layer in stats_of(engine).layers]
    if asked.resident == "ids":
        assert set(pinned) == {(3, 5, 9)}
    elif asked.resident == "first-n":
        assert set(pinned) == {(0, 1, 2, 3)}
    else:
        assert all(len(ids) == (asked.warm_pin or 4) for ids in pinned)
    engine.close()


@pytest.mark.parametrize("tokens", [LONG])
def test_prompts_pass_through_the_buffers(
    tokens: int, quick: Device, answers: dict[int, list[int]]
) -> None:
    engine = load_on(quick, moe_slots=4, experts=ExpertConfig(miss="bus"))
    assert greedy(engine, long_prompt(tokens), 4) == answers[tokens]
    engine.close()


@cache
def emulated_answer() -> list[int]:
    engine = load_on(CpuDevice(check=False))
    answer = greedy(engine, PROMPT, ANSWER)
    engine.close()
    return answer


def test_the_cpu_computes_what_cannot_be_page_locked() -> None:
    """No second copy is made: the emulation cannot allocate page-locked memory for one."""
    engine = load_on(CpuDevice(check=False, can_register=False), moe_slots=4)
    assert any("does not page-lock the experts" in note for note in engine.notes)
    assert greedy(engine, PROMPT, ANSWER) == emulated_answer()
    stats = stats_of(engine)
    assert any("computed by the CPU" in note for note in stats.notes)
    engine.close()


@pytest.mark.parametrize("miss", ["auto", "cpu"])
def test_a_driver_without_stream_words(miss: str) -> None:
    """The emulation fails the test if a word is written."""
    device = CpuDevice(check=False, has_stream_words=False)
    engine = load_on(device, moe_slots=4, experts=ExpertConfig(miss=miss))
    assert any("no stream memory operations" in note for note in engine.notes)
    assert greedy(engine, PROMPT, ANSWER) == emulated_answer()
    assert not any("computed by the CPU" in note for note in stats_of(engine).notes)
    engine.close()


@pytest.mark.parametrize("asked", [{"cpu_moe": True}, {"num_cpu_moe": 2}, {"can_register": False}])
def test_no_way_to_the_experts_is_left(asked: dict[str, Any]) -> None:
    options = dict(asked)
    device = CpuDevice(has_stream_words=False, can_register=options.pop("can_register", True))
    with pytest.raises(DeviceError, match=r"no stream memory operations.*--device cpu"):
        load_on(device, moe_slots=4, **options)


@pytest.mark.parametrize(("load", "is_copied"), [("auto", True), ("map", False), ("copy", True)])
def test_what_the_gpu_reads_lies_in_huge_pages(load: str, is_copied: bool) -> None:
    """One range of anonymous memory can be page-locked everywhere, a read-only mapping cannot."""
    locked: list[np.ndarray] = []
    device = CpuDevice(check=False)
    device.page_lock = lambda arrays: locked.extend(arrays) or True  # type: ignore[method-assign]
    engine = load_on(device, moe_slots=4, load=load)
    tensors = engine.file.tensors
    experts = [each for name, each in tensors.items() if "_exps" in name]
    read = [*experts, tensors["token_embd.weight"]]
    assert all((each.mapped_data is not None) == is_copied for each in read)
    assert (tensors["output_norm.weight"].mapped_data is not None) == (load == "copy")
    assert len(locked) == len(read)
    engine.close()


def test_a_look_at_the_slots(quick: Device) -> None:
    engine = load_on(quick, moe_slots=4, experts=ExpertConfig(miss="bus"))
    greedy(engine, PROMPT, ANSWER)
    view, stats = engine.expert_view(), engine.expert_stats()
    assert view is not None
    assert stats is not None
    assert view.counts is not None
    assert view.layers == tuple(layer.layer for layer in stats.layers)
    assert np.array_equal(view.resident.sum(axis=1), view.slots)
    assert view.uses.sum() > 0
    assert [each.total.hits for each in view.counts] == [layer.total.hits for layer in stats.layers]
    engine.close()


def test_what_is_written_at_the_end(quick: Device, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    asked = ExpertConfig(stats=tmp_path / "stats.json", profile=profile)
    engine = load_on(quick, moe_slots=4, experts=asked)
    first = greedy(engine, PROMPT, ANSWER)
    engine.close()
    assert engine.exit_notes == ()
    assert {path.name for path in tmp_path.iterdir()} == {"stats.json", "profile.json"}
    engine = load_on(quick, moe_slots=4, experts=ExpertConfig(profile=profile))
    engine.session()
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    assert all(len(ids) == 4 for ids in tier.residents().values()), "warm from the start"
    assert greedy(engine, PROMPT, ANSWER) == first or not has_bits(quick, "auto")
    engine.close()


def test_a_prompt_evicts_nobody(quick: Device) -> None:
    """A prompt fills free slots with the experts that it used most."""
    engine = load_on(quick, moe_slots=4, experts=ExpertConfig(policy="lru"))
    tier = gpu_tier_of(engine.runner.parts)
    assert tier is not None
    greedy(engine, PROMPT, ANSWER)
    before = tier.residents()
    assert all(len(ids) == 4 for ids in before.values())
    greedy(engine, long_prompt(LONG), 1)
    last = max(before)  # which decodes one row of the prompt
    after = tier.residents()
    assert {n: after[n] for n in before if n != last} == {n: before[n] for n in before if n != last}
    engine.close()


def test_three_tiers_at_once(quick: Device, answers: dict[int, list[int]]) -> None:
    """Slots in VRAM, slots in RAM for what those lack, and the file for the rest."""
    engine = load_on(quick, moe_slots=4, ram=9 * MIB // 2, batch_size=16)
    assert engine.plan is not None
    assert not engine.plan.is_mapped
    found = greedy(engine, PROMPT, ANSWER), greedy(engine, long_prompt(30), 4)
    assert found == (answers[len(PROMPT)], answers[30]) or not has_bits(quick, "cpu")
    assert engine.streams_experts
    engine.close()


def test_an_expert_that_cannot_be_read_ends_the_step(quick: Device, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(short_demo().read_bytes())
    engine = load_on(quick, model=model, moe_slots=2, ram=7 * MIB // 2, batch_size=16)
    engine.session()  # makes it ready
    with model.open("r+b") as file:
        file.truncate(short_demo().stat().st_size // 2)
    with pytest.raises(ModelFileError, match="start again with the complete file"):
        greedy(engine, PROMPT, ANSWER)
    engine.close()


def logits_of(engine: Engine, tokens: int) -> list[np.ndarray]:
    """Returns the logits after a prompt of so many tokens, and after each of two more."""
    sequence = Sequence(engine.runner)
    rows = [sequence.extend(ids).copy() for ids in (long_prompt(tokens), [5], [200])]
    sequence.truncate(0)
    return rows


@pytest.fixture(scope="module")
def references(device: Device) -> dict[int, list[np.ndarray]]:
    """Returns the logits of a GPU that has all experts, by the number of the prompt's tokens."""
    engine = load_on(quick_of(device))
    wanted = {tokens: logits_of(engine, tokens) for tokens in (len(PROMPT), 30, TWO_BATCHES)}
    engine.close()
    return wanted


@pytest.mark.parametrize(
    "asked",
    [
        {"cpu_moe": True},
        {"num_cpu_moe": LAYERS},
        {"num_cpu_moe": 2},
        {"num_cpu_moe": 1, "moe_slots": 5},
        {"num_cpu_moe": 0, "moe_slots": 2, "experts": ExpertConfig(miss="cpu")},
    ],
    ids=["all", "all layers", "others on the GPU", "others with slots", "misses"],
)
def test_layers_whose_experts_the_cpu_computes(
    asked: dict[str, Any], quick: Device, references: dict[int, list[np.ndarray]]
) -> None:
    """Their host copies are not page-locked, and whichever layers ask, each gets its own
    experts.
    """
    engine = load_on(quick, **asked)
    for tokens, rows in references.items():
        for found, wanted in zip(logits_of(engine, tokens), rows, strict=True):
            assert np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max()
    stats = stats_of(engine)
    computed = asked.get("num_cpu_moe", LAYERS)
    assert all(layer.bytes_read == 0 for layer in stats.layers[:computed])
    assert any("computed by the CPU" in note for note in stats.notes)
    engine.close()
