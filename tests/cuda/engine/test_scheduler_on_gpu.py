"""Several answers at once on a GPU share steps."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sharpi.engine.engine import Engine
from sharpi.engine.sampling.generation_state import FinishInfo
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.experts.trace.trace import read_trace
from sharpi.settings import ExpertConfig, GenerationRequest, SamplingParams

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
Load = Callable[..., Engine]
IDS = np.random.default_rng(3).integers(3, 280, 300).tolist()
# The last begins as the first does, of which some of a page is copied.
PROMPTS = [IDS[:20], IDS[100:105], [*IDS[:18], 5, 6]]
REQUEST = GenerationRequest(max_tokens=6, ignore_end=True, sampling=SamplingParams(temperature=0))


def together(engine: Engine) -> tuple[list[list[int]], list[FinishInfo]]:
    """Returns the tokens of all answers; the later ones begin while the first runs."""
    scheduler = Scheduler(engine, 3)
    ids: list[list[int]] = [[] for _ in PROMPTS]
    finish_infos: list[FinishInfo] = []
    for prompt, own in zip(PROMPTS, ids, strict=True):
        scheduler.submit(
            prompt,
            REQUEST,
            on_delta=lambda delta, own=own: own.extend(c.id for c in delta.tokens),  # type: ignore[misc]
            on_end=finish_infos.append,
        )
        scheduler.step()
    while scheduler.step():
        pass
    scheduler.cache.clear()
    assert engine.runner.pages.num_free == engine.runner.pages.size
    return ids, finish_infos


@pytest.mark.parametrize(
    ("case", "layers"), [("qwen3moe", None), ("qwen3moe", 1), ("qwen3next", None), ("gpt-oss", 1)]
)
def test_greedy_tokens_are_the_same_beside_others(
    case: str, layers: int | None, load: Load
) -> None:
    options = {"num_parallel": 3, "context_size": 128, "gpu_layers": layers}
    engine = load(REFERENCES / f"{case}.gguf", **options)
    expected = []
    for prompt in PROMPTS:
        session = engine.session()
        generation = session.generate(prompt, REQUEST)
        list(generation)
        expected.append(generation.ids)
        session.reset()
    ids, finish_infos = together(engine)
    assert ids == expected
    if case != "qwen3next":
        assert sorted(each.timings.num_cached_tokens for each in finish_infos) == [0, 0, 18]


def test_with_slots_for_a_few_experts(load: Load) -> None:
    options = {"num_parallel": 3, "context_size": 128}
    whole = load(REFERENCES / "qwen3moe.gguf", **options)
    some = load(
        REFERENCES / "qwen3moe.gguf", moe_slots=2, experts=ExpertConfig(miss="bus"), **options
    )
    assert together(some)[0] == together(whole)[0]


def test_half_a_page_of_8_bits_is_copied_as_it_is(load: Load) -> None:
    options = {"num_parallel": 3, "context_size": 128, "kv_type": "q8_0"}
    engine = load(REFERENCES / "qwen3moe.gguf", **options)
    session = engine.session()
    whole = session.generate(PROMPTS[2], REQUEST)
    list(whole)
    session.reset()
    assert together(engine)[0][2] == whole.ids


def test_routes_of_all_answers_are_in_the_trace(load: Load, tmp_path: Path) -> None:
    experts = ExpertConfig(trace=tmp_path / "t.npz")
    options = {"num_parallel": 3, "context_size": 128, "experts": experts}
    with load(REFERENCES / "qwen3moe.gguf", **options) as engine:
        together(engine)
    assert read_trace(tmp_path / "t.npz").lengths.tolist() == [5, 5, 5]
