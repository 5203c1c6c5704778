"""A GPU that begins the next step of a greedy answer before the host knows the token."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpi import trial
from sharpi.engine.backends.gpu import miss_capabilities
from sharpi.engine.backends.gpu.part import GpuPart
from sharpi.engine.engine import Engine
from sharpi.experts.stats.stats_file import contradiction
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cuda.recorded import StepShape
from sharpi.ops.cuda.replay.program import NextStep, may_run_ahead
from sharpi.ops.cuda.replay.step_inputs import SequenceInputs
from sharpi.ops.cuda.replay.step_outputs import Reply
from sharpi.settings import ExpertConfig, GenerationRequest, SamplingParams

pytestmark = pytest.mark.native
DATA = Path(__file__).parents[2] / "references" / "data"
IDS = np.random.default_rng(3).integers(3, 280, 100).tolist()
Load = Callable[..., Engine]
REPLY = Reply(np.zeros(1, np.int32), None)
SHAPE = StepShape(1, 1, 256, largest=True)
QUIET = {"prefetch": False}  # nothing is timed but miss modes


def answer(engine: Engine, prompt: list[int], count: int) -> list[int]:
    request = GenerationRequest(
        max_tokens=count, ignore_end=True, sampling=SamplingParams(temperature=0)
    )
    generation = engine.session().generate(prompt, request)
    list(generation)
    return list(generation.ids)


def test_the_host_writes_the_first_token_only(load: Load, written: list[int]) -> None:
    """The host also writes the first token of each page; the GPU chose all others itself."""
    model, answers = DATA / "qwen3moe.gguf", []
    for disabled in ((), ("graphs",)):
        engine = load(model, context_size=128, batch_size=64, disabled=disabled)
        (part,) = engine.runner.parts
        assert isinstance(part, GpuPart)
        written.clear()
        answers.append(answer(engine, IDS[:60], 10))
        by_host = [1, 1] if not disabled else [1] * 9
        assert written == [60, *by_host]
        written.clear()
        answers.append(answer(engine, [*IDS[:60], 5, 6], 3))  # after a step that was in vain
    assert answers[:2] == answers[2:]


@pytest.mark.parametrize("case", ["qwen3next", "granitehybrid"])
def test_recurrent_states_come_back_from_a_step_in_vain(
    case: str, load: Load, written: list[int]
) -> None:
    """The last step that was started is unwanted: later readers find the states from before it."""
    answers, states = [], []
    for disabled in ((), ("graphs",)):
        engine = load(DATA / f"{case}.gguf", context_size=128, batch_size=64, disabled=disabled)
        written.clear()
        answers.append(answer(engine, IDS[:5], 6))
        assert written == ([5, 1] if not disabled else [5, *[1] * 5])
        states.append(all_states(engine))
        answers.append(answer(engine, [*IDS[:5], *answers[-1][:3], 7], 4))
        states.append(all_states(engine))
    assert answers[:2] == answers[2:]
    for ahead, in_turn in zip(states[:2], states[2:], strict=True):
        assert np.any(ahead)
        np.testing.assert_array_equal(ahead, in_turn)


def all_states(engine: Engine) -> Any:
    """Returns the bytes of all recurrent states, (states, state_bytes)."""
    runner = engine.runner
    found = np.zeros((runner.states.size, runner.memory.state_bytes), np.uint8)
    for state, row in enumerate(found):
        runner.memory.read_state(state, row)
    return found


@pytest.mark.parametrize("policy", ["slru", "learned-keep"])
def test_with_experts_in_slots(policy: str, load: Load, written: list[int]) -> None:
    """An unwanted step is taken out of the statistics, which equal those of single steps."""
    answers, counts = [], []
    asked = ExpertConfig(policy=policy, miss="bus", **QUIET)
    for disabled in ((), ("graphs",)):
        engine = slotted(load, experts=asked, disabled=disabled)
        written.clear()
        answers.append(answer(engine, IDS[:60], 10))
        assert written == ([60, 1, 1] if not disabled else [60, *[1] * 9])
        answers.append(answer(engine, [*IDS[:60], 5, 6], 3))
        stats = engine.expert_stats()
        assert stats is not None
        assert contradiction(stats) is None
        counts.append([(layer.decode.accesses, sum(layer.uses)) for layer in stats.layers])
    assert answers[:2] == answers[2:]
    assert counts[0] == counts[1]


def test_a_gpu_with_slots_reads_the_embedding_in_ram(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = []
    for lends in (True, False):
        if not lends:
            monkeypatch.setattr(miss_capabilities, "page_locked_embedding", lambda *_: None)
        engine = slotted(load)
        assert engine.model_config.num_layers == len(engine.runner.parts[-1]._own.layers)
        assert len(engine.runner.parts) == (1 if lends else 2)
        data = engine.file.tensors["token_embd.weight"]
        assert data.mapped_data is not None
        logits.append(engine.logits(np.array(IDS[:40], np.int32)))
    np.testing.assert_array_equal(*logits)


def test_all_experts_in_vram_but_no_room_for_the_embedding(load: Load, written: list[int]) -> None:
    """The GPU reads the embedding from RAM, and still feeds its own tokens back."""
    model, answers = DATA / "qwen3moe.gguf", []
    vram = None
    for embeds in (True, False):
        engine = load(model, context_size=128, batch_size=64, vram=vram)
        assert engine.plan is not None
        (place,) = engine.plan.gpus
        assert place.embeds == embeds
        vram = place.num_bytes - 1
        assert not engine.plan.slotted_layers
        assert len(engine.runner.parts) == 1
        written.clear()
        answers.append(answer(engine, IDS[:60], 10))
        assert written == [60, 1, 1]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("asked", "num_alone"),
    [({"miss": "cpu"} | QUIET, 5), ({"miss": "auto"} | QUIET, 5), ({"miss": "bus"}, 4)],
    # Of the last one's tokens the first comes before the trial.
    ids=["the CPU computes", "modes are compared", "prefetching is tried"],
)
def test_steps_take_turns_while_the_host_has_a_part(
    asked: dict[str, Any],
    num_alone: int,
    load: Load,
    written: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "TRIAL_TOKENS", 1)  # the first trial begins after one token
    engine = slotted(load, experts=ExpertConfig(**asked))
    answer(engine, IDS[:3], 6)
    assert written == [3, *[1] * num_alone]


def slotted(load: Load, **options: Any) -> Engine:
    options = {"context_size": 128, "batch_size": 64, "moe_slots": 2} | options
    return load(DATA / "qwen3moe.gguf", **options)


def inputs(token: int, position: int, pages: tuple[int, ...] = (4, 2), state: int = 0) -> Any:
    ids, rows = np.array([token], np.int32), np.zeros(1, np.int32)
    return SequenceInputs(ids, position, rows, np.array(pages, np.int32), state)


def test_only_the_very_step_is_taken() -> None:
    before = inputs(7, 62)
    started = NextStep.after(before, SHAPE, REPLY)
    before.pages[:] = 5  # a table goes on to change
    assert started.is_for([inputs(9, 63)], SHAPE, 9)
    assert started.is_for([inputs(9, 63, (4, 8))], SHAPE, 9)  # a page beyond it
    others = [inputs(9, 64), inputs(8, 63), inputs(9, 63, (3, 2)), inputs(9, 63, state=1)]
    assert not any(started.is_for([other], SHAPE, 9) for other in others)
    assert not started.is_for([inputs(9, 63)], SHAPE, 8)
    assert not started.is_for([inputs(9, 63), inputs(9, 63)], SHAPE, 9)


def test_the_next_page_may_not_be_the_sequences_own() -> None:
    last = PAGE_POSITIONS - 1
    assert [may_run_ahead(inputs(7, last + i)) for i in (-1, 0, 1)] == [True, False, True]
