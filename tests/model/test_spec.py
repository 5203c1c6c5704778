"""Architecture specs: all that ship parse, and unknown keys and values are refused."""

import pytest

from sharpi.errors import UnsupportedModelError
from sharpi.model.spec import load_spec, parse_spec, supported_architectures
from sharpi.ops.interface import Activation, Scoring

VARIANT = {
    "model": "X 27B",
    "sizes": {"block_count": 62, "expert_count": 128},
    "changes": {"head_norms": "none"},
}


@pytest.mark.parametrize("architecture", supported_architectures())
def test_every_shipped_spec_parses(architecture: str) -> None:
    spec = load_spec(architecture)
    assert spec.name
    assert spec.activation_kind in Activation
    assert spec.scoring_kind in Scoring


def test_the_foundation_architectures_are_there() -> None:
    wanted = {"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "olmoe", "granitemoe", "gemma3"}
    assert wanted <= set(supported_architectures())


def test_an_unknown_architecture_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'mamba9'.*llama.*qwen3moe"):
        load_spec("mamba9")


def test_diffusion_models_are_refused_by_name() -> None:
    for name in ("llada-moe", "rnd1"):
        with pytest.raises(UnsupportedModelError, match=f"{name} is a diffusion model"):
            load_spec(name)


def test_a_variant_is_known_by_all_of_its_sizes() -> None:
    spec = parse_spec("x", {"name": "x", "head_norms": "after_rope", "variants": [VARIANT]})
    own = {"block_count": 62, "expert_count": 128}
    assert spec.for_model(own.__getitem__).head_norms == "none"
    for key in own:
        assert spec.for_model((own | {key: 5}).__getitem__) is spec


@pytest.mark.parametrize(
    ("architecture", "sizes", "field", "value"),
    [
        ("llama4", {"expert_count": 128}, "head_norms", "none"),
        ("llama4", {"expert_count": 16}, "head_norms", "length_after_rope"),
        ("gemma3", {"block_count": 62}, "query_scale_size", "hidden_per_head"),
        ("gemma3", {"block_count": 48}, "query_scale_size", "head"),
    ],
)
def test_models_that_only_sizes_tell_apart(
    architecture: str, sizes: dict[str, int], field: str, value: str
) -> None:
    assert getattr(load_spec(architecture).for_model(sizes.__getitem__), field) == value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "x", "rope": 1}, "unknown keys rope"),
        ({"name": "x", "activation": "sine"}, "'sine' is not a value of Activation"),
        ({"name": "x", "scoring": "max"}, "'max' is not a value of Scoring"),
        ({"name": "x", "corrected_scoring": "max"}, "'max' is not a value of Scoring"),
        ({"name": "x", "rope_pairing": "odd"}, "rope_pairing 'odd'"),
        ({"name": "x", "attention": "none"}, "attention 'none'"),
        ({"name": "x", "window_period": 1.5}, "window_period 1.5"),
        ({"name": "x", "divides_logits": 1}, "divides_logits 1"),
        ({"name": "x", "tensors": "ffn_norm"}, "tensors 'ffn_norm'"),
        ({"name": "x", "variants": [{"model": "y"}]}, "variants: .*`sizes`"),
        ({"name": "x", "variants": [VARIANT | {"if": 1}]}, "variants: .*`if`"),
        ({"name": "x", "variants": [VARIANT | {"changes": {"rope": 1}}]}, "unknown keys rope"),
        ({"name": "x", "variants": [VARIANT | {"changes": {"scoring": "max"}}]}, "'max' is not"),
    ],
)
def test_what_a_spec_may_not_say(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_spec("x", values)
