"""Drafts on a GPU: a check has the tokens of single steps; heads and defaults stay off."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from with_head import with_head

from sharpi.config import USUAL_DRAFTS, GenerationRequest, SamplingParams
from sharpi.config import SpeculationConfig as Speculation
from sharpi.engine.engine import Engine

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
Load = Callable[..., Engine]
IDS = np.random.default_rng(3).integers(3, 280, 12).tolist()
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


def test_an_mtp_head_does_not_draft(load: Load, tmp_path: Path) -> None:
    path = with_head(REFERENCES / "qwen3moe.gguf", tmp_path / "head.gguf")
    speculation = Speculation(kinds=("ngram", "mtp"), max_drafts=2)
    engine = load(path, context_size=64, speculation=speculation)
    assert engine.runner.head is None
    assert any("MTP head does not draft: it runs on the CPU only" in n for n in engine.notes)
