"""ArchitectureSpec: an architecture as data, read from `models/<architecture>.toml`.

Tensor names and sizes come from the model's file. A spec adds only behaviours that the file does
not tell, and it computes nothing.
"""

import tomllib
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct, field

from sharpi.errors import UnsupportedModelError
from sharpi.ops.interface import Activation, Scoring
from sharpi.ops.recurrent import HeadOrder
from sharpi.resources import models_folder

RopePairing = Literal["half", "interleaved"]
RopeUse = Literal["always", "flagged", "never"]
RecurrentKind = Literal["none", "short_convolution", "delta_net", "mamba2"]
HeadNorms = Literal["before_rope", "after_rope", "length_after_rope", "none"]


class ArchitectureSpec(Struct, frozen=True):
    """One architecture's named behaviours.

    - `attention`: with keys and values of each KV head, or of one latent vector for all.
    - `rope_pairing`: values i and i + half rotate together, or 2i and 2i + 1.
    - `rope_use`: whether layers rotate at all, or if `rope.scaling.finetuned` says so.
    - `ropes_windows_only`: whether layers that see everything leave positions out, in a model where
      others have a window.
    - `yarn_rounds_ramp`: see RopeScaling.
    - `long_rope_factor`: what replaces the file's attention factor where its divisors depend on the
      context, 0 for nothing.
    - `local_rope_base`: RoPE base of windowed layers when the file has no key, 0 for that of the
      others.
    - `window_period`: every so many layers one sees everything, when the file has no pattern; 0 for
      a window on all.
    - `chunk_size`: windows are chunks, and of so many positions where the file does not say.
    - `attention_scale`: of queries where the file has none, 0 for 1 / sqrt(head size).
    - `values_may_be_keys`: in layers without a matrix for values.
    - `norms_values`: see AttentionSettings.
    - `head_norms`: whether queries and keys are normed before or after they are rotated, or after
      it and by length alone.
    - `unnormed_expert_count`: they are not in models of so many experts.
    - `temperature_interval`, `temperature_rate`: layers without positions scale queries by 1 + rate
      * ln(1 + floor((position + 1) / interval)), unless the file has other numbers.
    - `query_holds_gate`: see AttentionSettings.
    - `recurrent`: what the layers without attention have in its place; which these are the file
      tells by flags, by a period for which `attention_period` stands in, or by KV heads of 0.
    - `delta_net_heads`: see DeltaNetShape.
    - `activation`, `scoring`: names of the enums.
    - `corrected_scoring`: the scoring of files with a score correction and no key, where it
      differs.
    - `router_normalises`: whether the chosen weights are rescaled to sum to one when the file has
      no key for it.
    - `weighs_expert_input`: see ExpertWeights.
    - `gates_feed_forward`: whether the activation is that of a gate, rather than of what goes up.
    - `has_one_branch`: whether a layer has a mixer or a feed-forward, never both; a layer with a
      feed-forward is one of some length.
    - `divides_logits`: whether the logit scale divides (Granite) or multiplies.
    - `hidden_query_scale_layers`: models of so many layers scale queries by hidden / heads.
    - `tensors`: a part's usual name -> its name in this architecture's files.
    """

    name: str
    attention: Literal["heads", "latent"] = "heads"
    rope_pairing: RopePairing = "half"
    rope_use: RopeUse = "always"
    ropes_windows_only: bool = False
    yarn_rounds_ramp: bool = True
    long_rope_factor: float = 0.0
    local_rope_base: float = 0.0
    window_period: int = 0
    chunk_size: int = 0
    attention_scale: float = 0.0
    values_may_be_keys: bool = False
    norms_values: bool = False
    head_norms: HeadNorms = "before_rope"
    unnormed_expert_count: int = 0
    temperature_interval: int = 0
    temperature_rate: float = 0.0
    query_holds_gate: bool = False
    recurrent: RecurrentKind = "none"
    attention_period: int = 0
    delta_net_heads: HeadOrder = "grouped"
    activation: str = "silu"
    scoring: str = "softmax"
    corrected_scoring: str = ""
    router_normalises: bool = True
    weighs_expert_input: bool = False
    gates_feed_forward: bool = True
    has_one_branch: bool = False
    embedding_scale: Literal["none", "sqrt_hidden"] = "none"
    divides_logits: bool = False
    hidden_query_scale_layers: int = 0
    tensors: dict[str, str] = field(default_factory=dict)

    @property
    def activation_kind(self) -> Activation:
        """The activation of the feed-forward."""
        return Activation[self.activation.upper()]

    @property
    def corrected_scoring_kind(self) -> Scoring:
        """The scoring of router logits in files with a score correction."""
        return Scoring[(self.corrected_scoring or self.scoring).upper()]

    @property
    def scoring_kind(self) -> Scoring:
        """The scoring of router logits."""
        return Scoring[self.scoring.upper()]


def supported_architectures() -> list[str]:
    """Returns the names of all architectures, as in `general.architecture`, sorted."""
    return sorted(path.stem for path in models_folder().glob("*.toml"))


@cache
def load_spec(architecture: str) -> ArchitectureSpec:
    """Loads the spec of an architecture.

    Raises UnsupportedModelError, which lists the known ones, for any other.
    """
    if architecture not in supported_architectures():
        known = ", ".join(supported_architectures())
        raise UnsupportedModelError(
            f"architecture {architecture!r} is not supported; sharpi runs: {known}"
        )
    text = (models_folder() / f"{architecture}.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    values.pop("docs", None)  # the architecture's row in docs/models.md
    return parse_spec(architecture, values)


def parse_spec(architecture: str, values: dict[str, Any]) -> ArchitectureSpec:
    """Makes a spec from TOML values; raises ValueError, which names an unknown key or value."""
    kinds = get_type_hints(ArchitectureSpec)
    if unknown := sorted(set(values) - set(kinds)):
        raise ValueError(f"models/{architecture}.toml: unknown keys {', '.join(unknown)}")
    for key, value in values.items():
        if not _is_of_kind(value, kinds[key]):
            raise ValueError(f"models/{architecture}.toml: {key} {value!r}")
    spec = ArchitectureSpec(**values)
    scorings = (spec.scoring, spec.corrected_scoring or spec.scoring)
    for enum, name in ((Activation, spec.activation), *((Scoring, each) for each in scorings)):
        if name.upper() not in enum.__members__:
            raise ValueError(
                f"models/{architecture}.toml: {name!r} is not a value of {enum.__name__}"
            )
    return spec


def _is_of_kind(value: object, kind: Any) -> bool:
    """Says if a value has the type that a field declares."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    wanted = get_origin(kind) or kind
    return type(value) is wanted or (wanted is float and type(value) is int)
