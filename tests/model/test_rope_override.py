"""RoPE scaling that the user asks for: what it becomes, and where it is refused."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from sharpi.errors import UsageError
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import ModelConfig, read_config
from sharpi.model.mixers.attention import AttentionSettings
from sharpi.model.mixers.rope import RopeScaling, rope_table
from sharpi.model.rope_override import with_rope
from sharpi.settings import RopeRequest

DATA = Path(__file__).parents[1] / "references" / "data"


def model(name: str) -> ModelConfig:
    with open_gguf(DATA / f"{name}.gguf") as file:
        return read_config(file)


def scaling(asked: RopeRequest, of: ModelConfig | None = None) -> RopeScaling:
    scaled = with_rope(of or model("qwen3moe"), asked)
    (found,) = {mixer.rope.scaling for mixer in scaled.mixers if mixer.rope}
    return found


def test_a_factor_alone_is_linear() -> None:
    plain = model("qwen3moe")
    scaled = with_rope(plain, RopeRequest(factor=4.0))
    assert scaling(RopeRequest(factor=4.0)).kind == "linear"
    assert scaled.context_length == 4 * plain.context_length


def test_yarn_has_the_defaults_of_the_paper() -> None:
    found = scaling(RopeRequest("yarn", 4.0, original_context=1024))
    assert found == RopeScaling("yarn", 4.0, 1024)
    assert rope_table(64, 1e4, found).scale == pytest.approx(1 + 0.1 * np.log(4))


def test_yarn_takes_every_setting() -> None:
    asked = RopeRequest("yarn", 4.0, 1024, 0.5, 2.0, 16.0, 2.0)
    found = scaling(asked)
    assert (found.beta_fast, found.beta_slow, found.extrapolation) == (16.0, 2.0, 0.5)
    assert found.attention_factor == pytest.approx(2 * (1 + 0.1 * np.log(4)))


def test_yarn_without_extrapolation_is_linear_with_a_factor() -> None:
    found = scaling(RopeRequest("yarn", 4.0, extrapolation=0.0, attention_factor=1.5))
    linear = rope_table(64, 1e4, RopeScaling("linear", 4.0))
    table = rope_table(64, 1e4, found)
    assert np.allclose(table.frequencies, linear.frequencies)
    assert table.scale == 1.5


def test_the_scaling_of_a_file_can_be_removed_and_its_factor_kept() -> None:
    plain = model("qwen3moe")
    in_file = RopeScaling("yarn", 8.0, 512)
    mixers = []
    for mixer in plain.mixers:
        assert isinstance(mixer, AttentionSettings)
        assert mixer.rope is not None
        mixers.append(replace(mixer, rope=replace(mixer.rope, scaling=in_file)))
    scaled = replace(plain, mixers=tuple(mixers))
    assert scaling(RopeRequest("none"), scaled) == RopeScaling()
    assert scaling(RopeRequest(beta_fast=20.0), scaled) == replace(in_file, beta_fast=20.0)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_a_kind_without_a_factor_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"--rope-scaling {kind} needs --rope-scale N"):
        scaling(RopeRequest(kind))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["deepseek2-lite"])
def test_families_that_scale_themselves_are_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"cannot be changed: deepseek2 .*; omit the --rope- flags"
    ):
        with_rope(model(name), RopeRequest(factor=2.0))
