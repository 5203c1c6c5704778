"""Replaces the RoPE scaling of a model file by the one that the user requests."""

from collections.abc import Iterator
from typing import TypeGuard

from msgspec.structs import replace

from sharpi.errors import UsageError
from sharpi.model.config import ModelConfig
from sharpi.model.mixers.attention import AttentionSettings
from sharpi.model.mixers.mixer import MixerSettings, SideBySideSettings
from sharpi.model.mixers.rope import Rope, RopeScaling, yarn_attention_factor
from sharpi.settings import RopeRequest


def with_rope(model: ModelConfig, asked: RopeRequest) -> ModelConfig:
    """Returns the configuration with the requested scaling in all layers with the file's scaling.

    Sliding-window layers with separate frequencies keep these. Raises UsageError if no layer has a
    rope, or if the architecture sets the scaling itself.
    """
    found = list(_scalings(model))
    if not found:
        raise UsageError(_refusal(model))
    scaling = _scaling(found[0], model.context_length, asked)
    length = (scaling.original_context or model.context_length) * max(scaling.factor, 1.0)
    return replace(
        model,
        mixers=tuple(_rescaled(mixer, scaling) for mixer in model.mixers),
        head_mixer=model.head_mixer and _rescaled(model.head_mixer, scaling),
        context_length=int(length),
    )


def _rescaled(mixer: MixerSettings, scaling: RopeScaling) -> MixerSettings:
    if isinstance(mixer, SideBySideSettings):
        attention = _rescaled(mixer.attention, scaling)
        return replace(mixer, attention=attention, rope=attention.rope)
    if isinstance(mixer, AttentionSettings) and _is_scaled(mixer.rope):
        return replace(mixer, rope=replace(mixer.rope, scaling=scaling))
    return mixer


def _scalings(model: ModelConfig) -> Iterator[RopeScaling]:
    for mixer in model.mixers:
        if isinstance(mixer, AttentionSettings | SideBySideSettings) and _is_scaled(mixer.rope):
            yield mixer.rope.scaling


def _is_scaled(rope: Rope | None) -> TypeGuard[Rope]:
    """Returns True if a rope has the file's scaling and this can be replaced.

    Ropes of sliding-window layers with another base are not scaled. A scaling of the kind "divided"
    cannot be replaced.
    """
    return rope is not None and rope.is_divided and rope.scaling.kind != "divided"


def _refusal(model: ModelConfig) -> str:
    rotates = any(mixer.rope is not None for mixer in model.mixers)
    why = "sets its scaling itself" if rotates else "has no rotary embedding"
    return f"RoPE scaling cannot be changed: {model.architecture} {why}; omit the --rope- flags"


def _scaling(file: RopeScaling, context: int, asked: RopeRequest) -> RopeScaling:
    factor = asked.factor or (file.factor if file.kind != "none" else None)
    kind = asked.kind or (file.kind if file.kind != "none" else "linear")
    if kind == "none":
        return RopeScaling()
    if factor is None:
        raise UsageError(f"--rope-scaling {kind} needs --rope-scale N, the factor of the context")
    if kind == "linear":
        return RopeScaling("linear", factor, asked.original_context or context)
    extrapolation = 1.0 if asked.extrapolation is None else asked.extrapolation
    own = yarn_attention_factor(factor) if extrapolation else 1.0
    given = asked.attention_factor
    return RopeScaling(
        kind="yarn",
        factor=factor,
        original_context=asked.original_context or file.original_context or context,
        attention_factor=file.attention_factor if given is None else given * own,
        beta_fast=file.beta_fast if asked.beta_fast is None else asked.beta_fast,
        beta_slow=file.beta_slow if asked.beta_slow is None else asked.beta_slow,
        extrapolation=extrapolation,
        rounds_ramp=file.rounds_ramp,
    )
