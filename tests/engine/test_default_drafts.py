"""Which drafts are looked for where nobody asked for any, and where a head cannot draft."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from sharpi.engine.head_choice import known_to_pay, where_keys_are, why_no_head
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


def test_an_assistant_needs_keys_that_can_be_read() -> None:
    few = replace(USUAL, key_type="q4_0")
    assert where_keys_are(few, has_gpu=False) is None
    assert where_keys_are(USUAL, has_gpu=True) is None
    assert where_keys_are(replace(USUAL, kv_type="q8_0"), has_gpu=True) is None
    assert where_keys_are(few, has_gpu=True) == "a GPU keeps in few bits"
    assert where_keys_are(USUAL, has_gpu=False, is_shared=True) == "other machines keep"


def test_a_head_is_on_the_first_machine_and_needs_all_keys() -> None:
    assert why_no_head(USUAL) is None
    assert why_no_head(USUAL, is_follower=True) == "the first machine has it"
    assert "--kv-keep" in str(why_no_head(replace(USUAL, kv_keep=256)))
