"""Pages and states of a GPU go to disk and come back, with layers on the CPU beside it or not."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sharpi.engine.engine import Engine
from sharpi.settings import GenerationRequest, SamplingParams

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
REQUEST = GenerationRequest(max_tokens=4, ignore_end=True, sampling=SamplingParams(temperature=0))
PROMPT = np.random.default_rng(3).integers(3, 280, 90).tolist()


def answered(engine: Engine, prompt: list[int]) -> tuple[list[int], int]:
    generation = engine.session().generate(prompt, REQUEST)
    list(generation)
    engine.close()
    assert engine.exit_notes == ()
    return generation.ids, generation.timings.num_cached_tokens


@pytest.mark.parametrize(("case", "layers"), [("qwen3moe", 1), ("qwen3next", None)])
def test_the_next_turn_comes_from_disk(
    case: str, layers: int | None, load: Callable[..., Engine], tmp_path: Path
) -> None:
    options = {"context_size": 128, "gpu_layers": layers}
    model = REFERENCES / f"{case}.gguf"
    answer, _ = answered(load(model, prompt_cache=tmp_path, **options), PROMPT)
    longer = [*PROMPT, *answer, 5]
    expected, _ = answered(load(model, **options), longer)
    again, cached = answered(load(model, prompt_cache=tmp_path, **options), longer)
    assert (again, cached) == (expected, len(longer) - 2)
    _, cached = answered(load(model, prompt_cache=tmp_path, device="cpu"), longer)
    assert cached == 0
