"""Which drafts are looked for where nobody asked for any."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from sharpi.engine.head_choice import known_to_pay
from sharpi.settings import USUAL_DRAFTS, ExpertConfig, RunConfig, SpeculationConfig

USUAL = RunConfig(model=Path("model.gguf"), speculation=USUAL_DRAFTS)


def kinds(config: RunConfig, *, has_gpu: bool, is_shared: bool) -> tuple[str, ...]:
    return known_to_pay(config, has_gpu=has_gpu, is_shared=is_shared).speculation.kinds


def test_the_default_is_for_the_cpu_and_without_a_head_for_several_machines() -> None:
    assert kinds(USUAL, has_gpu=False, is_shared=False) == ("ngram", "suffix", "mtp")
    assert kinds(USUAL, has_gpu=False, is_shared=True) == ("ngram", "suffix")
    assert kinds(USUAL, has_gpu=True, is_shared=False) == ()
    traced = replace(USUAL, experts=ExpertConfig(trace=Path("trace.npz")))
    assert kinds(traced, has_gpu=False, is_shared=False) == ()


@pytest.mark.parametrize("has_gpu", [True, False])
@pytest.mark.parametrize("is_shared", [True, False])
def test_what_was_asked_for_stays(has_gpu: bool, is_shared: bool) -> None:
    asked = replace(USUAL_DRAFTS, is_default=False)
    config = replace(USUAL, speculation=asked)
    assert known_to_pay(config, has_gpu=has_gpu, is_shared=is_shared) == config
    nothing = replace(USUAL, speculation=SpeculationConfig())
    assert known_to_pay(nothing, has_gpu=has_gpu, is_shared=is_shared) == nothing
