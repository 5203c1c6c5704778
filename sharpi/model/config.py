"""ModelConfig: what the file says about the model, with the architecture's spec applied.

Sizes that the weights themselves show (vocabulary, hidden widths of experts) are read from them.
Keys are those of the GGUF specification, `<architecture>.` in front.
"""

import math
from dataclasses import dataclass

from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.fault import file_fault, printable
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile
from sharpi.model.rope import RopeScaling, read_scaling
from sharpi.model.spec import ArchitectureSpec, load_spec
from sharpi.ops.interface import AttentionShape, Scoring

_SCORING_OF_KEY = {1: Scoring.SOFTMAX, 2: Scoring.SIGMOID, 3: Scoring.SOFTMAX_OF_CHOSEN}
MAX_HEAD_DIM = 1024


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model's hyperparameters; names follow Hugging Face with `num_` spelled out."""

    spec: ArchitectureSpec
    architecture: str
    num_layers: int
    hidden_size: int
    context_length: int
    norm_epsilon: float
    attention: tuple[AttentionShape, ...]
    rope_dims: int
    rope_base: float
    local_rope_base: float
    rope_scaling: RopeScaling
    num_experts: int
    num_experts_per_token: int
    expert_scoring: Scoring
    expert_weights_normalised: bool
    expert_weights_scale: float
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    final_soft_cap: float

    @property
    def is_moe(self) -> bool:
        """Whether layers may have routed experts."""
        return self.num_experts > 0


def read_config(file: GgufFile) -> ModelConfig:
    """The configuration; raises UnsupportedModelError or ModelFileError naming the key at fault."""
    architecture = file.metadata.get_str("general.architecture")
    return _Keys(file.metadata, _spec(file, architecture), architecture).config()


def _spec(file: GgufFile, architecture: str) -> ArchitectureSpec:
    try:
        return load_spec(architecture)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(printable(f"{file.path}: {error}")) from None


class _Keys:
    """Reads the architecture's own keys."""

    def __init__(self, metadata: Metadata, spec: ArchitectureSpec, architecture: str) -> None:
        self._metadata = metadata
        self._spec = spec
        self._architecture = architecture
        self._num_layers = self._count("block_count", maximum=4096)
        self._hidden = self._count("embedding_length", maximum=1 << 20)

    def config(self) -> ModelConfig:
        return ModelConfig(
            spec=self._spec,
            architecture=self._architecture,
            num_layers=self._num_layers,
            hidden_size=self._hidden,
            context_length=self._count("context_length", maximum=1 << 31),
            norm_epsilon=self._positive("attention.layer_norm_rms_epsilon"),
            attention=self._attention(),
            rope_dims=self._rope_dims(),
            rope_base=self._positive("rope.freq_base", 10000.0),
            local_rope_base=self._positive("rope.freq_base_swa", self._spec.local_rope_base),
            rope_scaling=read_scaling(self._metadata, self._architecture),
            num_experts=self._int("expert_count", 0),
            num_experts_per_token=self._experts_used(),
            expert_scoring=self._scoring(),
            expert_weights_normalised=self._normalised(),
            expert_weights_scale=self._float("expert_weights_scale", 0.0) or 1.0,
            embedding_scale=self._embedding_scale(),
            residual_scale=self._float("residual_scale", 1.0) or 1.0,
            logit_scale=self._logit_scale(),
            final_soft_cap=self._float("final_logit_softcapping", 0.0),
        )

    def _key(self, name: str) -> str:
        return f"{self._architecture}.{name}"

    def _fault(self, what: str) -> ModelFileError:
        return file_fault(self._metadata.path, what)

    def _int(self, name: str, default: int | None = None) -> int:
        return self._metadata.get_int(self._key(name), default)

    def _float(self, name: str, default: float | None = None) -> float:
        return self._metadata.get_float(self._key(name), default)

    def _positive(self, name: str, default: float | None = None) -> float:
        value = self._float(name, default)
        if value <= 0 and value != default:
            raise self._fault(f"{self._key(name)} is {value}, not more than 0")
        return value

    def _count(self, name: str, maximum: int) -> int:
        value = self._int(name)
        if not 0 < value <= maximum:
            raise self._fault(f"{self._key(name)} is {value}, outside 1..{maximum}")
        return value

    def _per_layer(self, name: str) -> list[int]:
        """A key that is one number, or one a layer."""
        values = self._metadata.get_ints(self._key(name))
        if len(values) == 1:
            values = values * self._num_layers
        if len(values) != self._num_layers or min(values) < 1:
            raise self._fault(
                f"{self._key(name)} must be 1 or {self._num_layers} counts, not {values[:8]}"
            )
        return values

    def _heads(self) -> list[int]:
        return self._per_layer("attention.head_count")

    def _key_dim(self, num_heads: int) -> int:
        dim = self._int("attention.key_length", 0) or self._hidden // num_heads
        if not 0 < dim <= MAX_HEAD_DIM or dim % 2:
            raise self._fault(
                f"{self._key('attention.key_length')} is {dim}; even sizes to {MAX_HEAD_DIM} work"
            )
        return dim

    def _rope_dims(self) -> int:
        key_dim = min(map(self._key_dim, self._heads()))
        dims = self._int("rope.dimension_count", 0) or key_dim
        if not 0 < dims <= key_dim or dims % 2:
            key = self._key("rope.dimension_count")
            raise self._fault(f"{key} is {dims}, not an even number up to {key_dim}, a head's size")
        return dims

    def _attention(self) -> tuple[AttentionShape, ...]:
        heads = self._heads()
        has_kv_key = self._key("attention.head_count_kv") in self._metadata
        kv_heads = self._per_layer("attention.head_count_kv") if has_kv_key else heads
        shapes = []
        for layer, (num_heads, num_kv_heads) in enumerate(zip(heads, kv_heads, strict=True)):
            if num_heads % num_kv_heads:
                raise self._fault(
                    f"layer {layer}: {num_heads} heads cannot share {num_kv_heads} KV heads"
                )
            key_dim = self._key_dim(num_heads)
            shapes.append(
                AttentionShape(
                    layer=layer,
                    num_heads=num_heads,
                    num_kv_heads=num_kv_heads,
                    key_dim=key_dim,
                    value_dim=self._int("attention.value_length", 0) or key_dim,
                    scale=self._attention_scale(num_heads, key_dim),
                    window=self._window(layer),
                    soft_cap=self._float("attn_logit_softcapping", 0.0),
                )
            )
        return tuple(shapes)

    def _attention_scale(self, num_heads: int, key_dim: int) -> float:
        if self._num_layers == self._spec.hidden_query_scale_layers:
            return 1.0 / math.sqrt(self._hidden // num_heads)
        return self._float("attention.scale", 0.0) or 1.0 / math.sqrt(key_dim)

    def _window(self, layer: int) -> int:
        """The layer's sliding window in positions, 0 where it sees everything."""
        period = self._spec.window_period
        if period and layer % period == period - 1:
            return 0
        return self._metadata.get_int(self._key("attention.sliding_window"), 0, minimum=0)

    def _experts_used(self) -> int:
        experts, used = self._int("expert_count", 0), self._int("expert_used_count", 0)
        if experts and not 0 < used <= experts:
            key = self._key("expert_used_count")
            raise self._fault(f"{key} is {used}, outside 1..{experts}, the number of experts")
        return used

    def _scoring(self) -> Scoring:
        code = self._int("expert_gating_func", 0)
        if code == 0:
            return self._spec.scoring_kind
        if code not in _SCORING_OF_KEY:
            raise self._fault(f"{self._key('expert_gating_func')} is {code}; 1, 2 and 3 are known")
        return _SCORING_OF_KEY[code]

    def _normalised(self) -> bool:
        key = self._key("expert_weights_norm")
        return self._metadata.get_bool(key, self._spec.router_normalises)

    def _embedding_scale(self) -> float:
        if self._spec.embedding_scale == "sqrt_hidden":
            return math.sqrt(self._hidden)
        return self._float("embedding_scale", 1.0) or 1.0

    def _logit_scale(self) -> float:
        scale = self._float("logit_scale", 1.0) or 1.0
        return 1.0 / scale if self._spec.divides_logits else scale
