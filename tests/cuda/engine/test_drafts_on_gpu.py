"""Drafts on a GPU: a check has the tokens of single steps; heads run on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import with_oracle
from with_head import with_head

from sharpi.config import USUAL_DRAFTS, GenerationRequest, SamplingParams
from sharpi.config import SpeculationConfig as Speculation
from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.sequence import Sequence
from sharpi.tiers.plan import Tier

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
Load = Callable[..., Engine]
IDS = np.random.default_rng(7).integers(3, 280, 12).tolist()  # of which the head knows the next
REQUEST = GenerationRequest(max_tokens=8, ignore_end=True, sampling=SamplingParams(temperature=0))


def answer(engine: Engine) -> list[int]:
    generation = engine.session().generate(IDS, REQUEST)
    list(generation)
    return generation.ids


@pytest.mark.parametrize(("case", "layers"), [("qwen3moe", None), ("qwen3moe", 1)])
def test_greedy_text_is_the_same(case: str, layers: int | None, load: Load) -> None:
    options = {"context_size": 64, "gpu_layers": layers}
    path = REFERENCES / f"{case}.gguf"
    plain = answer(load(path, **options))
    engine = load(path, speculation=Speculation(kinds=("suffix",), max_drafts=3), **options)
    assert [answer(engine), answer(engine)] == [plain, plain]
    assert engine.speculator.statistics.num_accepted > 0


def test_nothing_is_drafted_unless_it_is_asked_for(load: Load) -> None:
    engine = load(REFERENCES / "qwen3moe.gguf", context_size=64, speculation=USUAL_DRAFTS)
    assert engine.runner.settings.max_drafts == 0
    assert not engine.speculator.is_on


@pytest.fixture
def headed(tmp_path: Path) -> Path:
    return with_head(REFERENCES / "qwen3moe.gguf", tmp_path / "head.gguf")


HEAD = Speculation(kinds=("mtp",), max_drafts=3)
PLACES: dict[str, dict[str, Any]] = {
    "whole": {},
    "one layer": {"gpu_layers": 1},
    "slots": {"moe_slots": 3},
    "batches": {"batch_size": 5},
    "slots and batches": {"moe_slots": 3, "batch_size": 5},
}


@pytest.mark.parametrize("place", PLACES)
def test_an_mtp_head_drafts_on_the_cpu(place: str, headed: Path, load: Load) -> None:
    options = {"context_size": 64} | PLACES[place]
    plain = answer(load(headed, **options))
    engine = load(headed, speculation=HEAD, **options)
    assert engine.plan is not None
    assert engine.plan.layers[-1].dense_weights is Tier.RAM  # the head's
    assert [answer(engine), answer(engine)] == [plain, plain]
    statistics = engine.speculator.statistics.kinds["mtp"]
    assert statistics.num_accepted > 0


@pytest.mark.parametrize("place", PLACES)
def test_the_head_gets_the_hidden_states_of_all_tokens(
    place: str, headed: Path, load: Load
) -> None:
    engine = load(headed, context_size=64, speculation=HEAD, **PLACES[place])
    on_cpu = load(headed, context_size=64, speculation=HEAD, device="cpu")
    for each in (engine, on_cpu):
        Sequence(each.runner).extend(IDS)
    hidden, expected = engine.runner.hidden, on_cpu.runner.hidden
    count = len(hidden)  # those of the last batch
    assert count == (len(IDS) - 1) % engine.runner.prompt_batch + 1
    gap = np.linalg.norm(hidden - expected[-count:]) / np.linalg.norm(expected[-count:])
    assert gap < 0.02


def test_a_draft_model_drafts_beside_a_gpu(load: Load) -> None:
    path = REFERENCES / "qwen3moe.gguf"
    plain = answer(load(path, context_size=64))
    speculation = Speculation(kinds=("draft",), max_drafts=3, draft_model=path)
    engine = load(path, context_size=64, speculation=speculation)
    assert answer(engine) == plain
    assert engine.speculator.statistics.num_accepted > 0


def together(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    scheduler = Scheduler(engine, len(prompts))
    found: list[list[int]] = [[] for _ in prompts]
    for prompt, ids in zip(prompts, found, strict=True):
        scheduler.submit(
            prompt,
            REQUEST,
            on_delta=lambda delta, ids=ids: ids.extend(c.id for c in delta.tokens),  # type: ignore[misc]
            on_end=lambda info: None,
        )
    while scheduler.step():
        pass
    return found


def test_several_sequences_have_drafts_of_the_head(headed: Path, load: Load) -> None:
    prompts = [IDS, IDS[3:], IDS[5:]]
    texts = []
    for speculation in (Speculation(), HEAD):
        engine = load(headed, context_size=64, num_parallel=3, speculation=speculation)
        texts.append(together(engine, prompts))
    assert texts[0] == texts[1]
    assert engine.speculator.statistics.num_accepted > 0


RECURRENT: dict[str, dict[str, Any]] = {
    "qwen3next": {},
    "qwen3next beside the CPU": {"gpu_layers": 1},
    "qwen3next in slots": {"moe_slots": 3},
    "nemotron_h_moe": {},
    "lfm2moe": {},
}


@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent_layers_take_wrong_drafts_back(case: str, load: Load) -> None:
    path, options = REFERENCES / f"{case.split()[0]}.gguf", {"context_size": 64} | RECURRENT[case]
    prompts = [IDS, IDS[3:]]
    plain = together(load(path, num_parallel=2, **options), prompts)
    drafts = Speculation(kinds=("draft",), max_drafts=4)
    engine = load(path, num_parallel=2, speculation=drafts, **options)
    texts = [prompt + ids for prompt, ids in zip(prompts, plain, strict=True)]
    with_oracle(engine, *texts, share_right=0.5)
    assert together(engine, prompts) == plain
    counts = engine.speculator.statistics
    assert 0 < counts.num_accepted < counts.num_checked


def test_the_head_of_a_recurrent_model_drafts(load: Load, tmp_path: Path) -> None:
    path = with_head(REFERENCES / "qwen3next.gguf", tmp_path / "recurrent.gguf")
    prompts = [IDS, IDS[3:], IDS[5:]]
    plain = together(load(path, context_size=64, num_parallel=3), prompts)
    engine = load(path, context_size=64, num_parallel=3, speculation=HEAD)
    assert together(engine, prompts) == plain
    assert engine.speculator.statistics.num_checked > 0


def test_an_assistant_says_why_it_does_not_draft(load: Load) -> None:
    beside = REFERENCES.parent / "heads" / "gemma4-moe-assistant.gguf"
    speculation = Speculation(kinds=("mtp",), draft_model=beside)
    engine = load(REFERENCES / "gemma4-moe.gguf", context_size=64, speculation=speculation)
    assert engine.runner.head is None
    assert any("reads keys that a GPU keeps" in note for note in engine.notes)
