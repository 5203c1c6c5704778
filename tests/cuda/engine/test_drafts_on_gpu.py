"""Drafts on a GPU: a check has the tokens of single steps; heads run on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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


def test_recurrent_layers_and_assistants_say_why_they_do_not_draft(
    load: Load, tmp_path: Path
) -> None:
    recurrent = with_head(REFERENCES / "qwen3next.gguf", tmp_path / "recurrent.gguf")
    beside = REFERENCES.parent / "heads" / "gemma4-moe-assistant.gguf"
    assistant = Speculation(kinds=("mtp",), draft_model=beside)
    for path, speculation, why in (
        (recurrent, HEAD, "recurrent layers on a GPU"),
        (REFERENCES / "gemma4-moe.gguf", assistant, "reads keys that a GPU keeps"),
    ):
        engine = load(path, context_size=64, speculation=speculation)
        assert engine.runner.head is None
        assert any(f"MTP head does not draft: {why}" in n or why in n for n in engine.notes)
