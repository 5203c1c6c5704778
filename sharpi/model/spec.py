"""ArchitectureSpec: the description of an architecture, read from `models/<architecture>.toml`.

Tensor names and sizes come from the model's file. A spec only has facts that the file does not
state.
"""

import tomllib
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from sharpi.errors import UnsupportedModelError
from sharpi.ops.attention_shape import HeadGate
from sharpi.ops.interface import Activation, Scoring
from sharpi.ops.recurrent import HeadOrder
from sharpi.resources import models_folder

RopePairing = Literal["half", "interleaved"]
RopeUse = Literal["always", "flagged", "never"]
RecurrentKind = Literal["none", "short_convolution", "delta_net", "mamba2", "kimi_delta"]
HeadNorms = Literal["before_rope", "after_rope", "length_after_rope", "none"]


class Variant(Struct, frozen=True, forbid_unknown_fields=True):
    """A model that differs from others of its architecture, recognised by sizes in its file."""

    model: str  # the model's name
    sizes: dict[str, int]  # short keys of the file and their values, all of which have to match
    changes: dict[str, Any]  # fields of the spec to change


class ArchitectureSpec(Struct, frozen=True):
    """The properties of one architecture that are not in the metadata of its files."""

    name: str
    # "latent" makes the keys and values of all heads from one latent vector.
    attention: Literal["heads", "latent"] = "heads"
    # "half" rotates values i and i + half together, the other pairing 2i and 2i + 1.
    rope_pairing: RopePairing = "half"
    # "flagged": layers rotate only if the file's `rope.scaling.finetuned` is true.
    rope_use: RopeUse = "always"
    # In a model with some sliding-window layers, only these rotate.
    ropes_windows_only: bool = False
    ropes_dense_layers: bool = False  # with `ropes_windows_only`, leading dense layers rotate, too
    nope_period: int = 0  # the last layer of each period has no rotary positions; 0: all have some
    # In layers without a window, only half as many values of a head rotate as the file states.
    whole_layers_rotate_half: bool = False
    yarn_rounds_ramp: bool = True  # see RopeScaling
    # Replaces the file's attention factor if its divisors depend on the context; 0 keeps it.
    long_rope_factor: float = 0.0
    # The RoPE base of sliding-window layers if the file has no key for it; 0 for the base of other
    # layers.
    local_rope_base: float = 0.0
    # If the file has no pattern, each period's last layer has no window; 0: all layers have one.
    window_period: int = 0
    window_period_begins_whole: bool = False  # the first layer of each period has no window
    # Windows are chunks of this many positions unless the file has another size; 0: windows slide.
    chunk_size: int = 0
    # The scale of queries if the file has none; 0 for 1 / sqrt of a size.
    attention_scale: float = 0.0
    # The size for `attention_scale`: that of a head, or the hidden size divided by the heads.
    query_scale_size: Literal["head", "hidden_per_head"] = "head"
    values_may_be_keys: bool = False  # a layer without a value matrix uses its keys as values
    norms_values: bool = False  # see AttentionSettings
    # Whether queries and keys are normed before or after rotation; "length_after_rope" has no
    # weights.
    head_norms: HeadNorms = "before_rope"
    # Queries are scaled by position (see Temperature). The file may have other values; 0 for none.
    temperature_interval: int = 0
    temperature_rate: float = 0.0
    temperature_offset: int = 0
    temperature_without_rope: bool = False  # only layers without a rope have one
    query_holds_gate: bool = False  # see Projections
    # An indexer beside latent attention rotates values i and i + half, whatever attention rotates.
    indexer_rotates_halves: bool = False
    head_gate: Literal["sigmoid", "softplus"] = "sigmoid"  # the activation of attention's gate
    # The mixer of layers without attention. The file states by flags, by a period or by 0 KV heads
    # which layers these are.
    recurrent: RecurrentKind = "none"
    mixes_side_by_side: bool = False  # each layer adds attention and the recurrent mixer
    attention_period: int = 0  # if the file has no period; the last layer of a period has attention
    delta_net_heads: HeadOrder = "grouped"  # see DeltaNetShape
    activation: str = "silu"  # the name of an Activation, in lower case
    scoring: str = "softmax"  # the name of a Scoring, in lower case
    corrected_scoring: str = ""  # the scoring of files with score corrections, if it differs
    # The weights of chosen experts are rescaled to sum to one; the file may have a key for it.
    router_normalises: bool = True
    weighs_expert_input: bool = False  # see ExpertWeights
    gates_feed_forward: bool = True  # False: the activation is applied to `up`
    # The mixer and the feed-forward read the same normed input of the layer.
    is_parallel: bool = False
    may_have_layer_norms: bool = False  # norms are layer norms if the file has no epsilon for RMS
    averages_shared_expert: bool = False  # the mean of routed and shared result, not the sum
    # Each layer has a mixer, or a feed-forward if its `feed_forward_length` in the file is not 0.
    has_one_branch: bool = False
    head_is_known: bool = True  # False: files do not say which attention their MTP head has
    head_ends_with_layer_norm: bool = False  # the MTP head's last norm is a layer norm without bias
    norms_branches: bool = True  # False: mixers and feed-forwards read the stream without a norm
    post_norm_epsilon: float = (
        0.0  # of the norms behind mixers and feed-forwards; 0: as before them
    )
    embedding_scale: Literal["none", "sqrt_hidden"] = "none"  # the factor of token embeddings
    norms_embedding: bool = False  # token embeddings are normed, without weights
    # Values of keys that old files lack, by their names without prefix.
    defaults: dict[str, float] = field(default_factory=dict)
    # The logit scale divides logits (Granite) instead of multiplying them.
    divides_logits: bool = False
    # Models of the architecture that behave differently, although no key of their files says so.
    variants: tuple[Variant, ...] = ()
    # Names of tensors in this architecture's files, by their usual names; see TensorSource.
    tensors: dict[str, str] = field(default_factory=dict)

    def for_model(self, size: Callable[[str], int]) -> "ArchitectureSpec":
        """Returns this spec with the changes of the variant that matches the model, if any.

        `size` returns the file's integer for a key without prefix, 0 if the key is missing.
        """
        for variant in self.variants:
            if all(size(key) == value for key, value in variant.sizes.items()):
                return replace(self, **variant.changes)
        return self

    @property
    def activation_kind(self) -> Activation:
        return Activation[self.activation.upper()]

    @property
    def head_gate_kind(self) -> HeadGate:
        return HeadGate[self.head_gate.upper()]

    @property
    def corrected_scoring_kind(self) -> Scoring:
        """The function from router logits to scores, in files with a score correction."""
        return Scoring[(self.corrected_scoring or self.scoring).upper()]

    @property
    def scoring_kind(self) -> Scoring:
        return Scoring[self.scoring.upper()]


_DIFFUSION = ("dream", "llada", "llada-moe", "rnd1")


def supported_architectures() -> list[str]:
    """Returns the sorted names of all supported architectures, as in `general.architecture`."""
    return sorted(path.stem for path in models_folder().glob("*.toml"))


@cache
def load_spec(architecture: str) -> ArchitectureSpec:
    """Loads an architecture's spec; raises UnsupportedModelError with the known names."""
    if architecture in _DIFFUSION:
        raise UnsupportedModelError(
            f"{architecture} is a diffusion model, which writes all words of an answer at once; "
            "sharpi runs models that write one token after the other"
        )
    if architecture not in supported_architectures():
        known = ", ".join(supported_architectures())
        raise UnsupportedModelError(
            f"architecture {architecture!r} is not supported; sharpi runs: {known}"
        )
    text = (models_folder() / f"{architecture}.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    values.pop("docs", None)  # for the architecture's row in docs/models.md
    return parse_spec(architecture, values)


def parse_spec(architecture: str, values: dict[str, Any]) -> ArchitectureSpec:
    """Returns a spec with the values of a TOML file; raises ValueError, which names the bad one."""
    values = dict(values)
    variants = _variants(architecture, values.pop("variants", []))
    _check(architecture, values)
    for variant in variants:
        _check(architecture, values | variant.changes)
    return ArchitectureSpec(**values, variants=variants)


def _variants(architecture: str, tables: Any) -> tuple[Variant, ...]:
    try:
        return convert(tables, tuple[Variant, ...])
    except ValidationError as error:
        raise ValueError(f"models/{architecture}.toml: variants: {error}") from None


def _check(architecture: str, values: dict[str, Any]) -> None:
    """Raises ValueError if a key is unknown or a value is not allowed for its key."""
    kinds = get_type_hints(ArchitectureSpec)
    kinds.pop("variants")
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


def _is_of_kind(value: object, kind: Any) -> bool:
    """Returns True if a value is of the type `kind`, which a field declares."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    wanted = get_origin(kind) or kind
    return type(value) is wanted or (wanted is float and type(value) is int)
